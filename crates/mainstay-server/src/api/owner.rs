//! Who holds a lease over HTTP, as the database, logs and the audit trail have it: the caller, the name he gave, and a mark.
//!
//! The mark is the digest of a secret that only the ticket has. Whoever sees an owner can't write a ticket with it.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::problem::{Kind, Problem};

/// Begins the mark.
const MARK: &str = " ~";
/// Its length, in hexadecimal digits.
const MARK_LENGTH: usize = 32;

/// Characters of a caller before it is cut: with a name and a mark it must still be an owner.
const CALLER_MAX: usize = 100;

/// Who is to hold a lease, or does.
pub(super) struct Owner {
    /// What is shown.
    pub(super) name: String,
    /// What proves it.
    pub(super) secret: Option<String>,
}

impl Owner {
    /// An instance has a secret, or anybody who looks at the lease could renew and release it. Whoever wants to take it from an earlier
    /// instance of itself can't have one; such an owner is known by the caller it belongs to.
    pub(super) fn new(caller: &str, given: Option<&str>, reentrant: bool) -> Result<Self, Problem> {
        if let Some(length) =
            given.map(|given| given.chars().count()).filter(|length| !(1..=100).contains(length))
        {
            return Err(Problem::invalid("owner", format_args!("must be 1 to 100 characters, got {length}")));
        }
        let caller = escaped(caller);
        let name = match (given, reentrant) {
            (None, false) => caller,
            (given, _) => format!("{caller}/{}", given.unwrap_or_default()),
        };
        if reentrant && shown(&name) != name {
            return Err(Problem::invalid(
                "owner",
                "must not end as the server marks owners: ` ~` and 32 digits",
            ));
        }
        Ok(Self { name, secret: (!reentrant).then(|| Uuid::new_v4().simple().to_string()) })
    }

    /// As a ticket has it, which may be anybody's own writing.
    pub(super) fn of_ticket(caller: &str, name: String, secret: Option<String>) -> Result<Self, Problem> {
        let own = || shown(&name) == name && name.starts_with(&format!("{}/", escaped(caller)));
        if secret.is_none() && !own() {
            return Err(Problem::new(
                Kind::Forbidden,
                "the lease is not the caller's; only an admin takes leases away",
            ));
        }
        Ok(Self { name, secret })
    }

    /// As the database has it.
    pub(super) fn stored(&self) -> String {
        match &self.secret {
            Some(secret) => format!("{}{MARK}{}", self.name, digest(secret)),
            None => self.name.clone(),
        }
    }
}

/// What is shown of an owner that the database has.
pub(super) fn shown(stored: &str) -> &str {
    match stored.rsplit_once(MARK) {
        Some((name, mark))
            if mark.len() == MARK_LENGTH && mark.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            name
        }
        _ => stored,
    }
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(MARK_LENGTH / 2).map(|byte| format!("{byte:02x}")).collect()
}

/// The caller, so that it ends at the first slash: `a` with the name `b/c` is somebody else than `a/b` with the name `c`.
fn escaped(caller: &str) -> String {
    let escaped = caller.replace('%', "%25").replace('/', "%2F");
    if escaped.chars().count() <= CALLER_MAX {
        return escaped;
    }
    let begin: String = escaped.chars().take(CALLER_MAX - MARK_LENGTH - 1).collect();
    format!("{begin}%{}", digest(caller))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(caller: &str, given: Option<&str>, reentrant: bool) -> String {
        Owner::new(caller, given, reentrant).unwrap().stored()
    }

    #[test]
    fn who_sees_an_owner_can_not_be_it() {
        let made = Owner::new("token:ci", Some("worker ~7"), false).unwrap();
        let secret = made.secret.clone().unwrap();
        assert_eq!(shown(&made.stored()), "token:ci/worker ~7");
        assert!(!made.stored().contains(&secret), "{}", made.stored());
        assert_ne!(made.stored(), stored("token:ci", Some("worker ~7"), false));
        let again = Owner::of_ticket("token:other", made.name.clone(), Some(secret)).unwrap();
        assert_eq!(again.stored(), made.stored());
        let mark = made.stored().rsplit_once(MARK).unwrap().1.to_owned();
        let forged = Owner::of_ticket("token:ci", made.name.clone(), Some(mark)).unwrap();
        assert_ne!(forged.stored(), made.stored());
        assert!(Owner::of_ticket("token:ci", made.stored(), None).is_err());
        assert!(Owner::new("token:ci", Some(&format!("w{MARK}{}", digest("x"))), true).is_err());
        assert!(Owner::new("token:ci", Some(""), false).is_err());
    }

    #[test]
    fn a_caller_is_nobody_else() {
        assert_eq!(stored("token:ci", None, true), "token:ci/");
        assert_eq!(shown(&stored("token:ci", None, false)), "token:ci");
        assert_ne!(stored("token:a", Some("b/w"), true), stored("token:a/b", Some("w"), true));
        assert!(Owner::of_ticket("token:a", "token:a%2Fb/w".to_owned(), None).is_err());
        assert!(Owner::of_ticket("token:a/b", stored("token:a/b", Some("w"), true), None).is_ok());
        let long = |end: &str| format!("user:{}{end}", "/".repeat(200));
        assert_ne!(stored(&long("a"), Some("w"), true), stored(&long("b"), Some("w"), true));
        assert!(stored(&long("a"), Some(&"w".repeat(100)), false).chars().count() <= 255);
    }
}
