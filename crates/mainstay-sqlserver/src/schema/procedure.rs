//! The procedures: which templates there are, what becomes of them for each queue, and the statements that make them.

use mainstay_core::store::{Names, Queue, Template, checksum, render};

/// The procedures.
pub(super) const PROCEDURES: &[Template] = &[
    Template::once(include_str!("../../procedures/basics.sql")),
    Template::once(include_str!("../../procedures/audit.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_lane.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_pause.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_add.sql")),
    // What is received has a procedure of its own for getting in.
    Template {
        sql: include_str!("../../procedures/queue_enqueue.sql"),
        over: &[Queue::Outbox, Queue::Timers, Queue::JobRuns],
    },
    Template::of_every_queue(include_str!("../../procedures/queue_retire.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_claim.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_settle.sql")),
    Template::of_every_queue(include_str!("../../procedures/queue_admin.sql")),
    Template {
        sql: include_str!("../../procedures/queue_forward.sql"),
        over: &[Queue::Timers, Queue::JobRuns],
    },
    Template::once(include_str!("../../procedures/lease.sql")),
    Template::once(include_str!("../../procedures/inbox.sql")),
    Template::once(include_str!("../../procedures/timers.sql")),
    Template::once(include_str!("../../procedures/jobs_define.sql")),
    Template::once(include_str!("../../procedures/jobs_materialise.sql")),
    Template::once(include_str!("../../procedures/jobs_next.sql")),
    Template::once(include_str!("../../procedures/jobs_runs.sql")),
    Template::once(include_str!("../../procedures/joins_start.sql")),
    Template::once(include_str!("../../procedures/joins_count.sql")),
    Template::once(include_str!("../../procedures/joins_attach.sql")),
    Template::once(include_str!("../../procedures/joins_keep.sql")),
    Template::once(include_str!("../../procedures/fanout_policy.sql")),
    Template::once(include_str!("../../procedures/fanout_cursor.sql")),
    Template::of_every_queue(include_str!("../../procedures/health_queue.sql")),
    Template::once(include_str!("../../procedures/health.sql")),
    Template::once(include_str!("../../procedures/diagnosis.sql")),
    Template::once(include_str!("../../procedures/operations.sql")),
];

/// What happens beside the items of a queue, at the places that the templates name.
fn hooked(template: &str, queue: Queue) -> String {
    let hooks: &[(&str, &str)] = match queue {
        Queue::Outbox => &[
            ("enqueued", include_str!("../../procedures/outbox_enqueued.sql")),
            ("retired", include_str!("../../procedures/outbox_retired.sql")),
            ("requeued", include_str!("../../procedures/outbox_requeued.sql")),
            ("purging", include_str!("../../procedures/outbox_purging.sql")),
        ],
        Queue::Inbox => &[
            ("retired", include_str!("../../procedures/inbox_retired.sql")),
            ("requeued", include_str!("../../procedures/inbox_requeued.sql")),
            ("returned", include_str!("../../procedures/inbox_returned.sql")),
        ],
        Queue::Timers => &[],
        Queue::JobRuns => &[
            ("requeued", include_str!("../../procedures/job_runs_requeued.sql")),
            ("purging", include_str!("../../procedures/job_runs_purging.sql")),
            ("forwarded", include_str!("../../procedures/job_runs_forwarded.sql")),
        ],
    };
    let place = |name: &str| format!("    {{{{{name}}}}}\n");
    let mut text = template.to_owned();
    for name in HOOKS {
        let sql = hooks.iter().find(|(hook, _)| *hook == name).map_or("", |(_, sql)| sql);
        text = text.replace(&place(name), sql);
    }
    text
}

/// The places at which a template lets something else happen.
const HOOKS: [&str; 6] = ["enqueued", "retired", "requeued", "returned", "purging", "forwarded"];

/// The batches of a script: SQL Server wants some statements to be alone.
pub(super) fn batches(script: &str) -> impl Iterator<Item = &str> {
    script
        .split("\nGO\n")
        .map(|batch| batch.trim_end().trim_end_matches("\nGO"))
        .filter(|batch| has_code(batch))
}

fn has_code(batch: &str) -> bool {
    batch.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with("--"))
}

/// A statement within a literal.
pub(super) fn nested(statement: &str) -> String {
    statement.replace('\'', "''")
}

pub(super) fn fill(template: &str, names: &Names) -> String {
    let schema = names.schema().replace('"', "\"\"").replace('\'', "''");
    render(&template.replace("{{schema:nested}}", &schema), names)
}

/// What procedures say that Babelfish does not take, and what they say there. To act as the owner is for what its caller may not do with the tables it names; Babelfish asks for no
/// such right. A time with an offset can't be given there as a text, or as a time without one. Its texts are UTF-8 whatever their collation.
const ELSEWHERE: [(&str, &str); 3] = [
    ("WITH EXECUTE AS OWNER", ""),
    ("DATETIMEOFFSET(6) = NULL", "DATETIME2(6) = NULL"),
    (" COLLATE Latin1_General_100_BIN2_UTF8", ""),
];

/// What holds on Babelfish alone.
pub(super) const ON_BABELFISH: &str = "SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL";

/// A procedure: its name with quotes, and the statement that makes it.
pub(super) struct Procedure {
    pub(super) name: String,
    pub(super) text: String,
}

impl Procedure {
    /// One that takes a table, or has an apostrophe in its name, can't be altered on Babelfish, so it is made anew there. Elsewhere it is altered like all others, and whoever may
    /// execute it may do so still.
    fn is_made_anew(&self) -> bool {
        self.text.contains(" READONLY") || self.name.contains('\'')
    }

    /// Whether it is for other procedures alone: nobody needs a right to execute it.
    pub(super) fn is_internal(&self) -> bool {
        let comment = self.text.split("ALTER PROCEDURE").next().unwrap_or_default();
        comment.contains("-- Internal:")
    }

    /// Its name as the catalog has it, in lower case.
    pub(super) fn catalogued(&self) -> String {
        let name = self.name.split("\".\"").nth(1).unwrap_or_default().trim_end_matches('"');
        name.replace("\"\"", "\"").to_lowercase()
    }

    /// The batches that make it, where it is there or not.
    pub(super) fn making(&self, is_there: bool, on_babelfish: bool) -> Vec<String> {
        match is_there {
            false => vec![self.creation()],
            true if on_babelfish && self.is_made_anew() => vec![self.preparation(), self.creation()],
            true => vec![self.preparation(), self.definition()],
        }
    }

    /// What makes sure that it is there to be altered, or not there to be made.
    pub(super) fn preparation(&self) -> String {
        let name = nested(&self.name);
        match self.is_made_anew() {
            true => format!(
                "IF {ON_BABELFISH} AND OBJECT_ID(N'{name}', N'P') IS NOT NULL EXEC(N'DROP PROCEDURE {name}');"
            ),
            false => format!(
                "IF OBJECT_ID(N'{name}', N'P') IS NULL EXEC(N'CREATE PROCEDURE {name} AS BEGIN SET NOCOUNT ON; END');"
            ),
        }
    }

    /// What makes it after its preparation.
    pub(super) fn definition(&self) -> String {
        match self.is_made_anew() {
            true => {
                let absent = format!("OBJECT_ID(N'{}', N'P') IS NULL", nested(&self.name));
                let create = format!(
                    "IF {absent} SET @Text = STUFF(@Text, CHARINDEX(N'ALTER PROCEDURE', @Text), 5, N'CREATE');"
                );
                composed(&self.text, &[create])
            }
            false => as_taken(&self.text),
        }
    }

    /// What makes it where it is not there.
    pub(super) fn creation(&self) -> String {
        as_taken(&self.text.replacen("ALTER PROCEDURE", "CREATE PROCEDURE", 1))
    }
}

/// The statement that makes a procedure, as the server takes it.
fn as_taken(text: &str) -> String {
    match ELSEWHERE.iter().any(|(words, _)| text.contains(words)) {
        true => composed(text, &[]),
        false => text.to_owned(),
    }
}

/// The same, put together by the server with these changes.
fn composed(text: &str, changes: &[String]) -> String {
    let mut batch = format!("DECLARE @Text NVARCHAR(MAX) = N'{}';\n", nested(text));
    for (words, instead) in ELSEWHERE.iter().filter(|(words, _)| text.contains(words)) {
        batch.push_str(&format!("IF {ON_BABELFISH} SET @Text = REPLACE(@Text, N'{words}', N'{instead}');\n"));
    }
    for change in changes {
        batch.push_str(change);
        batch.push('\n');
    }
    batch.push_str("EXEC(@Text);");
    batch
}

pub(super) fn procedures(names: &Names) -> Vec<Procedure> {
    let mut all = Vec::new();
    for set in PROCEDURES {
        for queue in set.over {
            let text = fill(&hooked(set.sql, *queue), &names.of(*queue));
            let made = batches(&text).filter_map(|batch| {
                let (_, rest) = batch.split_once("ALTER PROCEDURE ")?;
                let name = rest.lines().next().unwrap_or_default().trim().to_owned();
                Some(Procedure { name, text: batch.to_owned() })
            });
            all.extend(made);
        }
    }
    all
}

pub(super) fn procedures_checksum() -> String {
    let all: Vec<_> = PROCEDURES
        .iter()
        .flat_map(|set| set.over.iter().map(move |queue| format!("{queue:?}{}", hooked(set.sql, *queue))))
        .collect();
    checksum(&all.join("\n"))
}
