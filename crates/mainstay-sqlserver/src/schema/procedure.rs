//! The procedures: which templates there are, what becomes of them for each queue, and the statements that make them.

use mainstay_core::store::{Names, Queue, Routines as Procedures, checksum, render};

/// The procedures.
pub(super) const PROCEDURES: &[Procedures] = &[
    Procedures::once(include_str!("../../procedures/basics.sql")),
    Procedures::once(include_str!("../../procedures/audit.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_lane.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_pause.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_add.sql")),
    // What is received has a procedure of its own for getting in.
    Procedures {
        sql: include_str!("../../procedures/queue_enqueue.sql"),
        over: &[Queue::Outbox, Queue::Timers, Queue::JobRuns],
    },
    Procedures::of_every_queue(include_str!("../../procedures/queue_retire.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_claim.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_settle.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/queue_admin.sql")),
    Procedures {
        sql: include_str!("../../procedures/queue_forward.sql"),
        over: &[Queue::Timers, Queue::JobRuns],
    },
    Procedures::once(include_str!("../../procedures/lease.sql")),
    Procedures::once(include_str!("../../procedures/inbox.sql")),
    Procedures::once(include_str!("../../procedures/timers.sql")),
    Procedures::once(include_str!("../../procedures/jobs_define.sql")),
    Procedures::once(include_str!("../../procedures/jobs_materialise.sql")),
    Procedures::once(include_str!("../../procedures/jobs_next.sql")),
    Procedures::once(include_str!("../../procedures/jobs_runs.sql")),
    Procedures::once(include_str!("../../procedures/joins_start.sql")),
    Procedures::once(include_str!("../../procedures/joins_count.sql")),
    Procedures::once(include_str!("../../procedures/joins_attach.sql")),
    Procedures::once(include_str!("../../procedures/joins_keep.sql")),
    Procedures::once(include_str!("../../procedures/fanout_policy.sql")),
    Procedures::once(include_str!("../../procedures/fanout_cursor.sql")),
    Procedures::of_every_queue(include_str!("../../procedures/health_queue.sql")),
    Procedures::once(include_str!("../../procedures/health.sql")),
    Procedures::once(include_str!("../../procedures/operations.sql")),
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

/// What a procedure says that does more than its caller may do by itself with the tables it names. Babelfish takes no such clause, and asks for no such right.
const AS_OWNER: &str = "WITH EXECUTE AS OWNER";

/// A procedure: its name with quotes, and the statement that makes it.
pub(super) struct Procedure {
    pub(super) name: String,
    pub(super) text: String,
}

impl Procedure {
    /// One that takes a table, or has an apostrophe in its name, can't be altered on every engine, so it is made anew.
    fn is_made_anew(&self) -> bool {
        self.text.contains(" READONLY") || self.name.contains('\'')
    }

    /// Its name as the catalog has it, in lower case.
    pub(super) fn catalogued(&self) -> String {
        let name = self.name.split("\".\"").nth(1).unwrap_or_default().trim_end_matches('"');
        name.replace("\"\"", "\"").to_lowercase()
    }

    /// What makes sure that it is there to be altered, or not there to be made.
    pub(super) fn preparation(&self) -> String {
        let name = nested(&self.name);
        match self.is_made_anew() {
            true => format!("IF OBJECT_ID(N'{name}', N'P') IS NOT NULL EXEC(N'DROP PROCEDURE {name}');"),
            false => format!(
                "IF OBJECT_ID(N'{name}', N'P') IS NULL EXEC(N'CREATE PROCEDURE {name} AS BEGIN SET NOCOUNT ON; END');"
            ),
        }
    }

    /// What makes it after its preparation.
    pub(super) fn definition(&self) -> String {
        match self.is_made_anew() {
            true => self.creation(),
            false => as_owner(self.text.clone()),
        }
    }

    /// What makes it where it is not there.
    pub(super) fn creation(&self) -> String {
        as_owner(self.text.replacen("ALTER PROCEDURE", "CREATE PROCEDURE", 1))
    }
}

/// The statement that makes a procedure, as far as the server takes it.
fn as_owner(text: String) -> String {
    if !text.contains(AS_OWNER) {
        return text;
    }
    format!(
        "DECLARE @Text NVARCHAR(MAX) = N'{}';\nIF SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL SET @Text = REPLACE(@Text, N'{AS_OWNER}', N'');\nEXEC(@Text);",
        nested(&text)
    )
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
