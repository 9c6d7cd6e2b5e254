//! The names of schema and tables, and how they get into SQL.
//!
//! Names are the application's choice and may contain anything but what would let them out of their quotes, so they
//! are quoted wherever they stand and never change a statement (MST-022).

use std::collections::BTreeMap;

use crate::error::{Error, Result};

const NAMES: &str = "schema.names";

/// The longest name of a schema: PostgreSQL cuts identifiers at 63 bytes.
const SCHEMA_BYTES: usize = 40;

/// The longest name of a table: our endings and the names derived from it need room.
const TABLE_BYTES: usize = 36;

const OUTBOX: &str = "outbox table";

/// A table that is named after the outbox unless it is given a name.
struct Table {
    /// Its placeholder in templates, and its name beside an outbox of the usual name.
    plain: &'static str,
    /// Its name beside another outbox, whose own name is put in front.
    beside: &'static str,
    /// What sets its name, as errors call it.
    field: &'static str,
}

const TABLES: [Table; 9] = [
    table("inbox", "inbox table"),
    table("timers", "timers table"),
    table("jobs", "jobs table"),
    table("job_runs", "job runs table"),
    // In the plural: there is an index of the outbox that is called `mail_lease`.
    Table { plain: "lease", beside: "leases", field: "lease table" },
    table("joins", "joins table"),
    table("fanout", "fanout table"),
    table("audit", "audit table"),
    table("operations", "operations table"),
];

const fn table(plain: &'static str, field: &'static str) -> Table {
    Table { plain, beside: plain, field }
}

/// The work queues. One engine drives them all; each has its own tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Queue {
    /// Messages to be delivered.
    #[default]
    Outbox,
    /// Messages received.
    Inbox,
    /// Messages for later.
    Timers,
    /// Occurrences of jobs.
    JobRuns,
}

impl Queue {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Outbox, Self::Inbox, Self::Timers, Self::JobRuns];

    /// What it is called in names of operations, and the default name of its table.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
            Self::Timers => "timers",
            Self::JobRuns => "job_runs",
        }
    }
}

/// The names of the schema and of the tables; functions and indexes follow them (R28).
///
/// Tables that are not named have their plain names, such as `timers`; beside an outbox with a name of its own they have that in
/// front, such as `mail_timers`, so that a schema can hold several sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    schema: String,
    outbox: String,
    /// The names given, by placeholder.
    given: BTreeMap<&'static str, String>,
    /// The one that templates of the engine are filled in for.
    queue: Queue,
}

impl Default for Names {
    fn default() -> Self {
        Self {
            schema: "infra".to_owned(),
            outbox: Queue::Outbox.as_str().to_owned(),
            given: BTreeMap::new(),
            queue: Queue::Outbox,
        }
    }
}

impl Names {
    /// Puts everything into this schema; on SQLite it is a prefix. Defaults to `infra`.
    pub fn with_schema(mut self, name: impl Into<String>) -> Result<Self> {
        self.schema = validated("schema", name.into(), SCHEMA_BYTES)?;
        Ok(self)
    }

    /// Names the outbox's tables and functions. Defaults to `outbox`.
    pub fn with_outbox(mut self, name: impl Into<String>) -> Result<Self> {
        self.outbox = validated(OUTBOX, name.into(), TABLE_BYTES)?;
        Ok(self)
    }

    /// Names the inbox's tables and functions. Defaults to `inbox`.
    pub fn with_inbox(self, name: impl Into<String>) -> Result<Self> {
        self.with("inbox", name.into())
    }

    /// Names the timers' tables and functions. Defaults to `timers`.
    pub fn with_timers(self, name: impl Into<String>) -> Result<Self> {
        self.with("timers", name.into())
    }

    /// Names the jobs' table and functions. Defaults to `jobs`.
    pub fn with_jobs(self, name: impl Into<String>) -> Result<Self> {
        self.with("jobs", name.into())
    }

    /// Names the tables and functions of the jobs' runs. Defaults to `job_runs`.
    pub fn with_job_runs(self, name: impl Into<String>) -> Result<Self> {
        self.with("job_runs", name.into())
    }

    /// Names the leases' table and functions. Defaults to `lease`.
    pub fn with_lease(self, name: impl Into<String>) -> Result<Self> {
        self.with("lease", name.into())
    }

    /// Names the joins' tables and functions. Defaults to `joins`.
    pub fn with_joins(self, name: impl Into<String>) -> Result<Self> {
        self.with("joins", name.into())
    }

    /// Names the tables and functions of fan-outs. Defaults to `fanout`.
    pub fn with_fanout(self, name: impl Into<String>) -> Result<Self> {
        self.with("fanout", name.into())
    }

    /// Names the audit trail's tables and functions. Defaults to `audit`.
    pub fn with_audit(self, name: impl Into<String>) -> Result<Self> {
        self.with("audit", name.into())
    }

    /// Names the tables and functions of operations. Defaults to `operations`.
    pub fn with_operations(self, name: impl Into<String>) -> Result<Self> {
        self.with("operations", name.into())
    }

    /// The name of a table by its plain name: `outbox`, `job_runs`. For names that are read from somewhere. Refuses a table there is not.
    pub fn with_table(self, table: &str, name: impl Into<String>) -> Result<Self> {
        if table == Queue::Outbox.as_str() {
            return self.with_outbox(name);
        }
        match TABLES.iter().find(|known| known.plain == table) {
            Some(known) => self.with(known.plain, name.into()),
            None => {
                let known: Vec<_> = TABLES.iter().map(|known| known.plain).collect();
                let reason = format_args!("must be outbox, {}, got {table:?}", known.join(", "));
                Err(Error::invalid(NAMES, "table", reason))
            }
        }
    }

    fn with(mut self, placeholder: &'static str, name: String) -> Result<Self> {
        let field = self.field(placeholder).unwrap_or(placeholder);
        self.given.insert(placeholder, validated(field, name, TABLE_BYTES)?);
        Ok(self)
    }

    /// The same names, with templates of the engine filled in for this queue.
    #[must_use]
    pub fn of(&self, queue: Queue) -> Self {
        Self { queue, ..self.clone() }
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The outbox table.
    pub fn outbox(&self) -> &str {
        &self.outbox
    }

    /// The inbox table.
    pub fn inbox(&self) -> String {
        self.table("inbox")
    }

    /// The timers table.
    pub fn timers(&self) -> String {
        self.table("timers")
    }

    /// The jobs table.
    pub fn jobs(&self) -> String {
        self.table("jobs")
    }

    /// The table of the jobs' runs.
    pub fn job_runs(&self) -> String {
        self.table("job_runs")
    }

    /// The leases' table.
    pub fn lease(&self) -> String {
        self.table("lease")
    }

    /// The joins' table.
    pub fn joins(&self) -> String {
        self.table("joins")
    }

    /// The fan-outs' table.
    pub fn fanout(&self) -> String {
        self.table("fanout")
    }

    /// The audit trail's table.
    pub fn audit(&self) -> String {
        self.table("audit")
    }

    /// The operations' table.
    pub fn operations(&self) -> String {
        self.table("operations")
    }

    /// The queue these names are for; see [`Names::of`].
    pub fn kind(&self) -> Queue {
        self.queue
    }

    /// The table of the queue these names are for; see [`Names::of`].
    pub fn queue(&self) -> String {
        match self.queue {
            Queue::Outbox => self.outbox.clone(),
            Queue::Inbox => self.inbox(),
            Queue::Timers => self.timers(),
            Queue::JobRuns => self.job_runs(),
        }
    }

    fn table(&self, placeholder: &str) -> String {
        let beside =
            TABLES.iter().find(|table| table.plain == placeholder).map_or(placeholder, |table| table.beside);
        match self.given.get(placeholder) {
            Some(name) => name.clone(),
            None if self.outbox == Queue::Outbox.as_str() => placeholder.to_owned(),
            None => format!("{}_{beside}", self.outbox),
        }
    }

    /// The field that a placeholder's name is set by, as errors call it. None for the schema.
    pub(super) fn field(&self, placeholder: &str) -> Option<&'static str> {
        match if placeholder == "queue" { self.queue.as_str() } else { placeholder } {
            "outbox" => Some(OUTBOX),
            table => TABLES.iter().find(|known| known.plain == table).map(|known| known.field),
        }
    }

    /// Whether the application has set this field, as far as can be told.
    pub(super) fn is_given(&self, field: &str) -> bool {
        match TABLES.iter().find(|table| table.field == field) {
            Some(table) => self.given.contains_key(table.plain),
            None => field == OUTBOX && self.outbox != Queue::Outbox.as_str(),
        }
    }

    /// Every placeholder and what it stands for.
    fn entries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let first =
            [("schema", self.schema.clone()), ("queue", self.queue()), ("outbox", self.outbox.clone())];
        first.into_iter().chain(TABLES.iter().map(|table| (table.plain, self.table(table.plain))))
    }

    /// Fills in a name that a template has within double quotes, as it is and without quotes.
    pub fn fill(&self, template: &str) -> String {
        let fill = |text: String, (placeholder, name): (&str, String)| {
            text.replace(&format!("{{{{{placeholder}}}}}"), &name)
        };
        self.entries().fold(template.to_owned(), fill)
    }
}

fn validated(field: &'static str, name: String, bytes: usize) -> Result<String> {
    if name.is_empty() || name.len() > bytes {
        let got = name.len();
        return Err(Error::invalid(NAMES, field, format_args!("name must be 1 to {bytes} bytes, got {got}")));
    }
    // `$` could end the dollar quotes around a function's body, braces could pose as a placeholder of a template.
    if name.contains(['$', '\0', '{', '}']) {
        return Err(Error::invalid(
            NAMES,
            field,
            format_args!("name must not contain $, {{, }} or NUL, got {name:?}"),
        ));
    }
    Ok(name)
}

/// Fills a template: `{{schema}}`, `{{outbox}}`, `{{timers}}` and so on for use within double quotes, `{{schema:literal}}` and so on
/// for use within single quotes. In templates of the engine, `{{queue}}` is the queue that `names` are for, and `{{queue:kind}}` what
/// that queue is called whatever its table's name.
pub fn render(template: &str, names: &Names) -> String {
    let mut text = template.replace("{{queue:kind}}", names.queue.as_str());
    for (placeholder, name) in names.entries() {
        text = text.replace(&format!("{{{{{placeholder}}}}}"), &name.replace('"', "\"\""));
        text = text.replace(&format!("{{{{{placeholder}:literal}}}}"), &name.replace('\'', "''"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_quotes() {
        let names = Names::default().with_schema(r#"a"; drop table b; --"#).unwrap();
        assert_eq!(
            render(r#"select 1 from "{{schema}}"."{{outbox}}_history""#, &names),
            r#"select 1 from "a""; drop table b; --"."outbox_history""#
        );
        let names = Names::default().with_outbox("o'x").unwrap();
        assert_eq!(render("'{{outbox:literal}}'", &names), "'o''x'");
    }

    #[test]
    fn tables_follow_the_outbox_unless_they_are_named() {
        let names = Names::default();
        assert_eq!(
            (names.timers(), names.of(Queue::Inbox).queue()),
            ("timers".to_owned(), "inbox".to_owned())
        );
        assert_eq!(names.clone().with_outbox("mail").unwrap().lease(), "mail_leases");
        let names = names.with_outbox("mail").unwrap().with_lease("locks").unwrap();
        assert_eq!((names.timers(), names.lease()), ("mail_timers".to_owned(), "locks".to_owned()));
        let engine = r#""{{schema}}"."{{queue}}_claim" into "{{outbox}}""#;
        assert_eq!(render(engine, &names.of(Queue::JobRuns)), r#""infra"."mail_job_runs_claim" into "mail""#);
        assert_eq!(names.fill("{{jobs}}_due"), "mail_jobs_due");
    }

    #[test]
    fn impossible_names_are_refused() {
        for name in ["", "a$b", "a\0b", "{{schema}}", &"x".repeat(41)] {
            assert!(Names::default().with_schema(name).is_err(), "{name:?}");
        }
    }
}
