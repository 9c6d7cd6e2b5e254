//! Who runs the program, as the operating system knows them.

/// The longest name that is taken from the system; an actor's is at most 255 characters.
const LONGEST: usize = 200;

/// The name of the user, or what stands for it.
pub(crate) fn name() -> String {
    let found = system_name().unwrap_or_else(|| "unknown".to_owned());
    found.chars().filter(|c| !c.is_control()).take(LONGEST).collect()
}

#[cfg(unix)]
fn system_name() -> Option<String> {
    let uid = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Users that come from elsewhere, a directory service say, are known by their number here, and by a name only to their shell.
    Some(name_of(uid, &users).or_else(|| variable("USER")).unwrap_or_else(|| uid.to_string()))
}

#[cfg(not(unix))]
fn system_name() -> Option<String> {
    variable("USERNAME")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The name of a user in a file like `/etc/passwd`.
#[cfg(unix)]
fn name_of(uid: u32, users: &str) -> Option<String> {
    let user = |line: &str| {
        let mut fields = line.split(':');
        let (name, _, number) = (fields.next()?, fields.next()?, fields.next()?);
        (number.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
    };
    users.lines().find_map(user)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nbroken\n:x:7::\nalice:x:1000:1000::/home/alice:/bin/sh\n";
        assert_eq!(name_of(0, users).as_deref(), Some("root"));
        assert_eq!(name_of(1000, users).as_deref(), Some("alice"));
        for nobody in [7, 1, 100] {
            assert_eq!(name_of(nobody, users), None);
        }
        assert!(!name().is_empty());
    }
}
