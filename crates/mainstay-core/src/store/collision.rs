//! Names that would get in each other's way: two tables of one name, or one that is called like what is derived from another's
//! name, such as `outbox_history`. Found from the templates themselves, so that nothing they make can be forgotten.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

use super::{Migration, Names, Queue};

/// The ledger of the steps has this name beside every outbox.
const LEDGER: &str = "mainstay_migration";

/// Fails if two of the names would make the same thing: for a provider, with all its steps and its functions by the queues they
/// are for. `same_case` where names that differ only in their case are the same.
pub fn check_collisions<'a>(
    operation: &'static str,
    names: &Names,
    steps: &[Migration],
    functions: impl IntoIterator<Item = (&'a str, Queue)>,
    same_case: bool,
) -> Result<()> {
    let mut makers = BTreeMap::from([(LEDGER.to_owned(), "schema")]);
    let mut add = |template: &str, queue: Queue| -> Result<()> {
        for (name, maker) in uses(template, &names.of(queue)) {
            let key = if same_case { name.to_ascii_lowercase() } else { name.clone() };
            let other = *makers.entry(key).or_insert(maker);
            if other != maker {
                return Err(collision(operation, names, &name, [other, maker]));
            }
        }
        Ok(())
    };
    for step in steps {
        for (template, queue) in step.parts() {
            add(template, queue)?;
        }
    }
    functions.into_iter().try_for_each(|(template, queue)| add(template, queue))
}

fn collision(operation: &'static str, names: &Names, name: &str, makers: [&'static str; 2]) -> Error {
    let table = |maker: &str| match maker {
        "schema" => format!("the ledger {LEDGER:?}"),
        maker => {
            let placeholder = maker.trim_end_matches(" table").replace(' ', "_");
            format!("the {maker} {:?}", names.fill(&format!("{{{{{placeholder}}}}}")))
        }
    };
    // Whoever was named is asked to go, and not one that has its name by default.
    let [first, second] = makers;
    let (field, other) = match (names.is_given(first), names.is_given(second)) {
        (_, true) => (second, first),
        (true, false) => (first, second),
        (false, false) => ("outbox table", if first == "outbox table" { second } else { first }),
    };
    let reason = format_args!(
        "name must not collide with {}, got {}: both would make {name:?}; choose another name",
        table(other),
        table(field)
    );
    Error::invalid(operation, field, reason)
}

/// Every name within double quotes that begins with that of a table: as it is filled in, and which table's it is.
fn uses(template: &str, names: &Names) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    for part in template.split("{{").skip(1) {
        let Some((placeholder, rest)) = part.split_once("}}") else { continue };
        let Some(maker) = names.field(placeholder) else { continue };
        let end = rest.find(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        if let Some((ending, after)) = end.and_then(|end| rest.split_at_checked(end))
            && after.starts_with('"')
        {
            found.push((names.fill(&format!("{{{{{placeholder}}}}}{ending}")), maker));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Template;

    const QUEUE: &str = r#"create table "{{schema}}"."{{queue}}" (); create table "{{queue}}_history" ();"#;
    const LEASE: &str = r#"create table "{{lease}}" (constraint "{{lease}}_pkey")"#;
    const STEPS: &[Migration] = &[Migration {
        version: 1,
        name: "tables",
        oldest_program: 1,
        templates: &[Template { sql: QUEUE, over: &[Queue::Outbox, Queue::Timers] }, Template::once(LEASE)],
    }];

    fn refused(names: &Names, same_case: bool) -> Option<&'static str> {
        let checked =
            check_collisions("test", names, STEPS, [(r#""{{lease}}_get""#, Queue::Outbox)], same_case);
        checked.err().map(|error| error.field().unwrap_or("none"))
    }

    #[test]
    fn names_that_collide_are_refused_by_their_field() {
        let names = Names::default;
        assert_eq!(refused(&names(), true), None);
        assert_eq!(refused(&names().with_outbox("mail").unwrap(), true), None);
        for (names, field) in [
            (names().with_timers("outbox").unwrap(), "timers table"),
            (names().with_lease("timers").unwrap(), "lease table"),
            (names().with_lease("outbox_history").unwrap(), "lease table"),
            (names().with_timers("lease_get").unwrap(), "timers table"),
            (names().with_lease("mainstay_migration").unwrap(), "lease table"),
            (names().with_outbox("mail").unwrap().with_timers("mail_leases").unwrap(), "timers table"),
            (names().with_outbox("mainstay_migration").unwrap(), "outbox table"),
        ] {
            assert_eq!(refused(&names, false), Some(field), "{names:?}");
        }
        let other_case = names().with_timers("Outbox").unwrap();
        assert_eq!((refused(&other_case, false), refused(&other_case, true)), (None, Some("timers table")));
    }
}
