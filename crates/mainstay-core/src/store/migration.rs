//! Versions of the schema: what there is, what is wanted, what to do about it. The same for every provider;
//! providers only supply the lock, the reading and the running.

use std::fmt;

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::audit::bounded;
use crate::error::{Error, ErrorKind, Result};

use super::{Names, Queue, render};

const DEPLOY: &str = "schema.deploy";

/// SQL with placeholders for the names in it, and the queues it is rendered for.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    /// The text.
    pub sql: &'static str,
    /// The text is rendered once for each of these. `{{queue}}` is that queue; every other name is the same each time.
    pub over: &'static [Queue],
}

impl Template {
    /// A template that is rendered once.
    pub const fn once(sql: &'static str) -> Self {
        Self { sql, over: &[Queue::Outbox] }
    }

    /// A template that is rendered for each queue.
    pub const fn of_every_queue(sql: &'static str) -> Self {
        Self { sql, over: &Queue::ALL }
    }
}

/// A step from one version of the schema to the next.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// From 1, without gaps.
    pub version: i32,
    /// A short name.
    pub name: &'static str,
    /// The oldest program that works once this step is taken, by the version it wants. A release needs the one before it to
    /// work on its schema, so this is at most `version - 1`, except in the first step.
    pub oldest_program: i32,
    /// Its SQL, in order.
    pub templates: &'static [Template],
}

impl Migration {
    /// Every template with each queue it is rendered for.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, Queue)> {
        self.templates.iter().flat_map(|template| template.over.iter().map(|queue| (template.sql, *queue)))
    }

    /// Its SQL under these names.
    pub fn render(&self, names: &Names) -> String {
        let texts = self.parts().map(|(sql, queue)| render(sql, &names.of(queue)));
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The tables, views and whatever else it makes by `create <kind> "…"` at the beginning of a line, by their names.
    pub fn made(&self, kinds: &[&str], names: &Names) -> Vec<String> {
        self.parts().flat_map(|(sql, queue)| made(sql, kinds, &names.of(queue))).collect()
    }

    /// The checksum of its templates.
    pub fn checksum(&self) -> String {
        let texts: Vec<&str> = self.templates.iter().map(|template| template.sql).collect();
        checksum(&texts.concat())
    }

    /// Its record in the ledger.
    pub fn applied(&self) -> Applied {
        let (name, checksum) = (self.name.to_owned(), self.checksum());
        Applied { version: self.version, name, checksum, oldest_program: self.oldest_program }
    }
}

/// What a template makes by `create <kind> "…"` at the beginning of a line: the names, filled in, without schema and quotes. For
/// templates that put `{{schema}}` in front, as `"{{schema}}"."…"` or `"{{schema}}_…"`.
pub fn made(template: &str, kinds: &[&str], names: &Names) -> Vec<String> {
    let name = |line: &str| {
        let rest = kinds.iter().find_map(|kind| {
            let (start, rest) = line.split_at_checked(kind.len() + "create ".len())?;
            start.eq_ignore_ascii_case(&format!("create {kind}")).then_some(rest)
        })?;
        let rest = rest.strip_prefix(" \"{{schema}}")?;
        let rest = rest.strip_prefix("\".\"").or_else(|| rest.strip_prefix('_'))?;
        rest.split('"').next().map(|name| names.fill(name))
    };
    template.lines().filter_map(name).collect()
}

/// The version under which the ledger keeps the checksum of all functions or procedures. They are replaced as a whole whenever one
/// of them differs.
pub const ROUTINES: i32 = 0;

/// The checksum of the functions or procedures that the ledger has.
pub fn routines_checksum(applied: &[Applied]) -> Option<&str> {
    let all = applied.iter().find(|step| step.version == ROUTINES);
    all.map(|step| step.checksum.as_str())
}

/// A step that the database says was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its version.
    pub version: i32,
    /// Its name.
    pub name: String,
    /// The checksum of its template.
    pub checksum: String,
    /// The oldest program that works once this step is taken, by the version it wants.
    pub oldest_program: i32,
}

impl Applied {
    /// The record of the routines, which are replaced as a whole. The steps alone tell which programs are compatible.
    pub fn routines(name: &str, checksum: String) -> Self {
        Self { version: ROUTINES, name: name.to_owned(), checksum, oldest_program: 0 }
    }
}

/// The checksum of a template. It is taken before names are filled in, so it is the same under every name.
pub fn checksum(template: &str) -> String {
    // Line ends must not matter: the same file may be checked out either way.
    let digest = Sha256::digest(template.replace("\r\n", "\n").as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a database's schema is, against what this version of Mainstay wants.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaStatus {
    /// As wanted.
    Current {
        /// Its version.
        version: i32,
    },
    /// Nothing is there.
    Missing {
        /// The version this program wants.
        wanted: i32,
    },
    /// Older than this program, or its functions are.
    Outdated {
        /// The version found.
        found: i32,
        /// The version wanted.
        wanted: i32,
    },
    /// Newer than this program, which still works on it.
    Compatible {
        /// The version found.
        found: i32,
        /// The version wanted.
        wanted: i32,
    },
    /// Newer than this program, which no longer works on it.
    Newer {
        /// The version found.
        found: i32,
        /// The version wanted.
        wanted: i32,
        /// The oldest program that works on it, by the version it wants.
        oldest_program: i32,
    },
    /// Of the right version, but something of it is gone.
    Incomplete {
        /// Its version.
        version: i32,
    },
    /// Something of it is there, but no record of the steps that made it.
    Unrecorded {
        /// What is there, as the database names it.
        found: Vec<String>,
        /// The table that should hold the record.
        ledger: String,
        /// The version wanted.
        wanted: i32,
    },
    /// A step that was taken is not the step this program knows under that number.
    Drifted {
        /// The step's version.
        version: i32,
        /// The step's name in this program.
        name: String,
    },
}

impl fmt::Display for SchemaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current { version } => write!(f, "the schema is at version {version}, as wanted"),
            Self::Missing { wanted } => write!(
                f,
                "the schema is not there (version {wanted} is wanted); run `mainstay migrate`, or switch schema deployment on"
            ),
            Self::Outdated { found, wanted } if found == wanted => write!(
                f,
                "the schema is at version {found}, but its functions are not this program's; run `mainstay migrate`, or switch schema deployment on"
            ),
            Self::Outdated { found, wanted } => write!(
                f,
                "the schema is at version {found} and version {wanted} is wanted; run `mainstay migrate`, or switch schema deployment on"
            ),
            Self::Compatible { found, wanted } => write!(
                f,
                "the schema is at version {found}, newer than this program's {wanted} and compatible with it"
            ),
            Self::Newer { found, wanted, oldest_program } => write!(
                f,
                "the schema is at version {found}, newer than this program's {wanted}, and needs a program for version \
                 {oldest_program} or later; update this program, or restore a backup from before the migration"
            ),
            Self::Incomplete { version } => write!(
                f,
                "the schema is at version {version}, but tables or views of it are gone; restore them from a backup, or use another schema or table name"
            ),
            Self::Unrecorded { found, ledger, wanted } => write!(
                f,
                "there is {} already, but no record in {ledger} of which version it is (version {wanted} is wanted): \
                 the record was dropped or emptied, or this is not Mainstay's; restore {ledger} from a backup, or \
                 write its rows again as `mainstay migrate --print` does, or use another schema or table name",
                found.join(", ")
            ),
            Self::Drifted { version, name } => write!(
                f,
                "step {version} ({name}) in the database is not the one this program knows; was it edited by hand, or made by another build?"
            ),
        }
    }
}

impl SchemaStatus {
    /// Whether this program works on the schema as it is.
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Current { .. } | Self::Compatible { .. })
    }

    /// Refuses to touch a schema that is newer, not ours, or damaged.
    pub fn check_deployable(&self) -> Result<()> {
        match self {
            Self::Newer { .. } | Self::Drifted { .. } | Self::Incomplete { .. } | Self::Unrecorded { .. } => {
                Err(Error::new(ErrorKind::Schema, DEPLOY, self.to_string()))
            }
            Self::Current { .. } | Self::Compatible { .. } | Self::Missing { .. } | Self::Outdated { .. } => {
                Ok(())
            }
        }
    }
}

/// What is to be done to a schema.
#[derive(Debug)]
pub struct MigrationPlan<'a> {
    /// What is there now.
    pub status: SchemaStatus,
    /// The steps to take, in order.
    pub steps: Vec<&'a Migration>,
}

/// Compares what was applied with what is known. `known` is in the order of its versions.
pub fn plan_migrations<'a>(known: &'a [Migration], applied: &[Applied]) -> MigrationPlan<'a> {
    let wanted = known.last().map_or(0, |step| step.version);
    let found = applied.iter().map(|step| step.version).max().unwrap_or(0);
    let drifted = known.iter().find(|step| {
        let taken = applied.iter().find(|taken| taken.version == step.version);
        taken.is_some_and(|taken| taken.checksum != step.checksum())
    });
    let oldest_program = applied.iter().map(|step| step.oldest_program).max().unwrap_or(0);
    let status = match drifted {
        Some(step) => SchemaStatus::Drifted { version: step.version, name: step.name.to_owned() },
        None if found == 0 => SchemaStatus::Missing { wanted },
        None if found > wanted && wanted >= oldest_program => SchemaStatus::Compatible { found, wanted },
        None if found > wanted => SchemaStatus::Newer { found, wanted, oldest_program },
        None if found < wanted => SchemaStatus::Outdated { found, wanted },
        None => SchemaStatus::Current { version: found },
    };
    let steps = known.iter().filter(|step| step.version > found).collect();
    MigrationPlan { status, steps }
}

impl MigrationPlan<'_> {
    /// Refuses to touch a schema that is too new or not ours.
    pub fn check(&self) -> Result<()> {
        self.status.check_deployable()
    }

    /// Whether a newer program has deployed: this one then leaves everything as it is, the routines above all.
    pub fn is_left_alone(&self) -> bool {
        matches!(self.status, SchemaStatus::Compatible { .. })
    }

    /// What the audit trail says of the deployment, from what was applied before and whether the routines are new; none if it has changed nothing.
    pub fn record(&self, applied: &[Applied], new_routines: bool) -> Option<String> {
        if self.steps.is_empty() && !new_routines {
            return None;
        }
        let found = applied.iter().map(|step| step.version).max().filter(|version| *version > 0);
        let became = self.steps.last().map(|step| step.version).or(found);
        let steps: Vec<&str> = self.steps.iter().map(|step| step.name).collect();
        let (before, after) = (json!({ "version": found }), json!({ "version": became }));
        Some(bounded(json!({ "before": before, "after": after, "steps": steps, "functions": new_routines })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [Migration; 2] = [
        Migration {
            version: 1,
            name: "one",
            oldest_program: 1,
            templates: &[Template::once("create table one")],
        },
        Migration {
            version: 2,
            name: "two",
            oldest_program: 1,
            templates: &[Template::once("create table two")],
        },
    ];

    fn applied(version: i32, checksum: String) -> Applied {
        Applied { version, name: String::new(), checksum, oldest_program: (version - 1).max(1) }
    }

    #[test]
    fn each_state_is_told_apart() {
        let one = applied(1, KNOWN[0].checksum());
        let two = applied(2, KNOWN[1].checksum());
        let three = applied(3, "?".to_owned());
        let four = applied(4, "?".to_owned());
        let cases = [
            (vec![], SchemaStatus::Missing { wanted: 2 }, 2, true),
            (vec![one.clone()], SchemaStatus::Outdated { found: 1, wanted: 2 }, 1, true),
            (vec![one.clone(), two.clone()], SchemaStatus::Current { version: 2 }, 0, true),
            (
                vec![one.clone(), two.clone(), three.clone()],
                SchemaStatus::Compatible { found: 3, wanted: 2 },
                0,
                true,
            ),
            (
                vec![one, two, three, four],
                SchemaStatus::Newer { found: 4, wanted: 2, oldest_program: 3 },
                0,
                false,
            ),
            (
                vec![applied(1, checksum("edited"))],
                SchemaStatus::Drifted { version: 1, name: "one".into() },
                1,
                false,
            ),
        ];
        for (applied, status, steps, may_deploy) in cases {
            let plan = plan_migrations(&KNOWN, &applied);
            assert_eq!(plan.status, status);
            assert_eq!(plan.steps.len(), steps);
            assert_eq!(plan.check().is_ok(), may_deploy);
            assert_eq!(plan.is_left_alone(), matches!(plan.status, SchemaStatus::Compatible { .. }));
        }
    }

    /// One step that the oldest programs cannot bear is enough, whatever later steps say.
    #[test]
    fn the_strictest_step_decides() {
        let strict = Applied { oldest_program: 3, ..applied(3, String::new()) };
        let lenient = Applied { oldest_program: 1, ..applied(4, String::new()) };
        let taken = [applied(1, KNOWN[0].checksum()), applied(2, KNOWN[1].checksum()), strict, lenient];
        let status = plan_migrations(&KNOWN, &taken).status;
        assert_eq!(status, SchemaStatus::Newer { found: 4, wanted: 2, oldest_program: 3 });
        let text = status.to_string();
        for told in ["version 4", "this program's 2", "a program for version 3 or later", "restore a backup"]
        {
            assert!(text.contains(told), "{told}: {text}");
        }
    }

    #[test]
    fn what_is_there_without_a_record_is_named_and_left_alone() {
        let status = SchemaStatus::Unrecorded {
            found: vec!["infra_outbox".to_owned(), "infra_outbox_hold".to_owned()],
            ledger: "infra_mainstay_migration".to_owned(),
            wanted: 1,
        };
        let error = status.check_deployable().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Schema);
        for told in ["infra_outbox, infra_outbox_hold", "no record in infra_mainstay_migration", "restore"] {
            assert!(error.message().contains(told), "{told}: {error}");
        }
        assert!(SchemaStatus::Incomplete { version: 1 }.check_deployable().is_err());
    }

    #[test]
    fn a_step_over_queues_is_made_for_each() {
        const SQL: &str =
            "create table \"{{schema}}\".\"{{queue}}_hold\" (\n)\nCREATE VIEW \"{{schema}}_{{queue}}_x\" AS";
        const QUEUES: &[Queue] = &[Queue::Inbox, Queue::Timers];
        let step = Migration {
            version: 1,
            name: "queues",
            oldest_program: 1,
            templates: &[Template { sql: SQL, over: QUEUES }],
        };
        let names = Names::default();
        assert_eq!(step.made(&["table"], &names), ["inbox_hold", "timers_hold"]);
        assert_eq!(step.made(&["view"], &names), ["inbox_x", "timers_x"]);
        assert!(step.render(&names).contains(r#""infra"."timers_hold""#));
    }

    #[test]
    fn line_ends_do_not_change_a_checksum() {
        assert_eq!(checksum("a\r\nb"), checksum("a\nb"));
    }
}
