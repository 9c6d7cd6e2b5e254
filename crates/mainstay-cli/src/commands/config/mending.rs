//! Reading a configuration file that may be wrong in several places, as the program would read it: each time it is refused, what is at fault
//! is noted and taken out, and it is read again. So what is known is never written down twice.

use serde::de::DeserializeOwned;

use super::check::Problem;

/// More than anybody mends at once.
const MOST: usize = 50;

/// The value, as far as it could be read, and all that is wrong with it. No value is ever quoted: it may be a password.
pub(super) fn read<T: DeserializeOwned>(text: &str, place: &str) -> (Option<T>, Vec<Problem>) {
    let mut left = text.to_owned();
    let mut problems = Vec::new();
    while problems.len() < MOST {
        let error = match toml::from_str(&left) {
            Ok(value) => return (Some(value), problems),
            Err(error) => error,
        };
        let at = error.span().map_or(0, |span| span.start).min(left.len());
        let number = left[..at].matches('\n').count();
        let problem = Problem::new(format!("{place}, line {}", number + 1), told(error.message()));
        problems.push(match nearest(error.message()) {
            Some(known) => problem.hint(format!("did you mean `{known}`?")),
            None => problem,
        });
        match without(&left, number) {
            Some(rest) => left = rest,
            None => break,
        }
    }
    (None, problems)
}

/// The message without a value in it.
pub(crate) fn told(message: &str) -> String {
    let first = message.lines().next().unwrap_or_default();
    // "unknown field `x`": the name is the key's, and what is expected is told by the nearest of them.
    if let Some(rest) = first.strip_prefix("unknown field ") {
        return format!("unknown key {}", rest.split(", ").next().unwrap_or_default());
    }
    // The last one: the value that is quoted before it may say the same words.
    match first.rsplit_once(", expected") {
        Some((_, expected)) if ["invalid", "unknown"].iter().any(|wrong| first.starts_with(wrong)) => {
            format!("a value of another kind: expected{expected}")
        }
        None if first.starts_with("unknown variant") => "a value that is not known".to_owned(),
        _ => first.to_owned(),
    }
}

/// The known key that is nearest to one that is not, if one is near.
pub(crate) fn nearest(message: &str) -> Option<&str> {
    let (unknown, expected) = message.strip_prefix("unknown field `")?.split_once('`')?;
    closest(unknown, expected.split('`').skip(1).step_by(2))
}

/// The nearest of several names, if one is near.
pub(super) fn closest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |name: &str| strsim::damerau_levenshtein(unknown, name);
    let near = known.map(|name| (distance(name), name)).min();
    near.filter(|(distance, name)| *distance <= 2.max(name.len() / 3)).map(|(_, name)| name)
}

/// The text without a line; without a whole section where it is the section's head. Lines keep their numbers. None if nothing is left to
/// take out.
fn without(text: &str, number: usize) -> Option<String> {
    let head = |line: &str| line.trim_start().starts_with('[');
    let lines: Vec<&str> = text.split('\n').collect();
    let wrong = lines.get(number).filter(|line| !line.trim().is_empty())?;
    let end = match head(wrong) {
        true => lines
            .iter()
            .skip(number + 1)
            .position(|line| head(line))
            .map_or(lines.len(), |next| number + 1 + next),
        false => number + 1,
    };
    let kept = lines.iter().enumerate();
    let kept = kept.map(|(at, line)| if (number..end).contains(&at) { "" } else { line });
    Some(kept.collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        database: Option<String>,
        #[serde(default)]
        serve: Serve,
    }

    #[derive(Default, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Serve {
        listen: Option<String>,
        max_batch: Option<u32>,
    }

    fn problems(text: &str) -> Vec<String> {
        let (_, problems) = read::<File>(text, "f");
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = "databse = 's3cret'\ndatabase = 'a.db'\n\n[serve]\nlisten = 7\nmax_bach = 3\nmax_batch = 4\n\n[serf]\nlisten = 's3cret'\n";
        let (file, problems) = read::<File>(text, "f");
        let file = file.unwrap();
        assert_eq!(
            (file.database.as_deref(), file.serve.max_batch, file.serve.listen),
            (Some("a.db"), Some(4), None)
        );
        let mut told: Vec<_> = problems.iter().map(ToString::to_string).collect();
        told.sort();
        assert_eq!(told.len(), 4, "{told:?}");
        assert_eq!(told[0], "f, line 1: unknown key `databse`; did you mean `database`?");
        assert!(told[1].starts_with("f, line 5: a value of another kind: expected a string"), "{told:?}");
        assert_eq!(told[2], "f, line 6: unknown key `max_bach`; did you mean `max_batch`?");
        assert_eq!(told[3], "f, line 9: unknown key `serf`; did you mean `serve`?");
        assert!(!told.iter().any(|one| one.contains("s3cret")));
    }

    #[test]
    fn no_value_is_quoted_whatever_it_says() {
        for message in [
            "invalid type: string \"Bearer s3cret\", expected a map",
            "invalid type: string \"a, expected s3cret\", expected a map",
            "unknown variant `s3cret`, expected `outbox` or `inbox`",
            "unknown variant `s3cret`, there are no variants",
            "invalid value: integer `5`, expected s3cret-free text",
        ] {
            let told = told(message);
            assert!(
                !told.contains("s3cret\"") && !told.contains("`s3cret`") && !told.contains("Bearer"),
                "{told}"
            );
        }
        assert_eq!(told("unknown field `databse`, expected one of `a`, `b`"), "unknown key `databse`");
    }

    #[test]
    fn what_is_no_toml_is_told_once_with_its_line() {
        let told = problems("database = 'a.db'\nwhat is this\n");
        assert!(told[0].starts_with("f, line 2: "), "{told:?}");
        assert_eq!(problems("far_from_anything = 1").len(), 1);
        assert!(!problems("far_from_anything = 1")[0].contains("did you mean"));
    }
}
