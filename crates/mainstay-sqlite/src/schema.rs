//! The deployment of the tables. One transaction that has the database to itself, so any number of processes may do it at once.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::store::{
    Applied, Migration, Names, SchemaStatus, SchemaStore, Template, check_collisions, plan_migrations, render,
};
use mainstay_core::{Error, Result};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::audit::note;
use crate::database::Database;
use crate::error::Fault;
use crate::writer::Ticket;

const STATUS: &str = "schema.status";
const DEPLOY: &str = "schema.deploy";

/// How long a deployment may take: it may have to build an index over all there is.
const DEPLOYMENT: Duration = Duration::from_secs(3_600);

/// Every step of the schema.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "baseline",
        oldest_program: 1,
        templates: &[
            Template::of_every_queue(include_str!("../migrations/0001_baseline/queue.sql")),
            Template::once(include_str!("../migrations/0001_baseline/lease.sql")),
            Template::once(include_str!("../migrations/0001_baseline/inbox.sql")),
            Template::once(include_str!("../migrations/0001_baseline/jobs.sql")),
            Template::once(include_str!("../migrations/0001_baseline/joins.sql")),
            Template::once(include_str!("../migrations/0001_baseline/fanout.sql")),
            Template::once(include_str!("../migrations/0001_baseline/audit.sql")),
            Template::once(include_str!("../migrations/0001_baseline/operations.sql")),
        ],
    },
    Migration {
        version: 2,
        name: "schema_view",
        oldest_program: 1,
        templates: &[Template::once(include_str!("../migrations/0002_schema_view/view.sql"))],
    },
];

/// The steps taken, by outbox, made by the runner and not by a step. Names of tables are not case-sensitive, so the
/// outbox's is not either.
const TABLE: &str = r#"CREATE TABLE IF NOT EXISTS "{{schema}}_mainstay_migration" (
    outbox         TEXT    NOT NULL COLLATE NOCASE,
    version        INTEGER NOT NULL,
    name           TEXT    NOT NULL,
    checksum       TEXT    NOT NULL,
    oldest_program INTEGER NOT NULL,
    applied_at     INTEGER NOT NULL,
    PRIMARY KEY (outbox, version)
);"#;

const NOW: &str = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000";

/// The schema in one SQLite database.
pub(crate) struct SqliteSchema {
    database: Arc<Database>,
}

impl SqliteSchema {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl SchemaStore for SqliteSchema {
    async fn status(&self) -> Result<SchemaStatus> {
        let names = self.database.names.clone();
        check_names(STATUS, &names)?;
        let read = move |connection: &Connection, _: &_| Ok(status(connection, &names)?);
        self.database.read(STATUS, read).await
    }

    async fn deploy_by(&self, by: &Actor) -> Result<SchemaStatus> {
        let (names, store) = (self.database.names.clone(), self.database.identifier.clone());
        let (audit, by) = (Arc::clone(&self.database.audit), by.clone());
        check_names(DEPLOY, &names)?;
        self.database.create(DEPLOY).await?;
        let deploy = move |connection: &Connection, _: &_| {
            let (status, record) = deploy(connection, &names, &store, &by)?;
            record.map(|record| note(connection, &audit, &record)).transpose()?;
            Ok(status)
        };
        self.database.write(Ticket::from(DEPLOY).limit(DEPLOYMENT), deploy).await
    }

    fn script(&self) -> String {
        let names = &self.database.names;
        let mut script = format!("BEGIN IMMEDIATE;\n\n{}\n", render(TABLE, names));
        for step in MIGRATIONS {
            script.push_str(&format!(
                "\n-- Step {}: {}\n\n{}\n",
                step.version,
                step.name,
                step.render(names)
            ));
            script.push_str(&record(step, names));
            script.push('\n');
        }
        script.push_str("\nCOMMIT;\n");
        script
    }
}

fn record(step: &Migration, names: &Names) -> String {
    let Applied { version, name, checksum, oldest_program } = step.applied();
    let insert = render(
        r#"INSERT INTO "{{schema}}_mainstay_migration" (outbox, version, name, checksum, oldest_program, applied_at)"#,
        names,
    );
    let outbox = render("'{{outbox:literal}}'", names);
    format!("{insert}\nVALUES ({outbox}, {version}, '{name}', '{checksum}', {oldest_program}, {NOW});")
}

/// SQLite keeps every name that begins with `sqlite_` to itself, however it is written, and takes none twice, in whatever case.
pub(crate) fn check_names(operation: &'static str, names: &Names) -> Result<()> {
    let prefix = format!("{}_", names.schema()).to_ascii_lowercase();
    if prefix.starts_with("sqlite_") {
        let got = names.schema();
        let reason = format_args!(
            "name must not be `sqlite` or begin with `sqlite_`, which SQLite keeps to itself, got {got:?}"
        );
        return Err(Error::invalid(operation, "schema", reason));
    }
    check_collisions(operation, names, MIGRATIONS, [], true)
}

/// Takes the steps that are not taken. What there is now, and what to record of it, if there was anything to do.
fn deploy(
    connection: &Connection,
    names: &Names,
    store: &str,
    by: &Actor,
) -> Result<(SchemaStatus, Option<PreparedAudit>), Fault> {
    status(connection, names)?.check_deployable()?;
    let taken = applied(connection, names)?;
    let plan = plan_migrations(MIGRATIONS, &taken);
    if plan.steps.is_empty() {
        return Ok((plan.status, None));
    }
    connection.execute_batch(&render(TABLE, names))?;
    for step in &plan.steps {
        connection.execute_batch(&step.render(names))?;
        connection.execute_batch(&record(step, names))?;
        tracing::info!(store, version = step.version, step = step.name, "deployed");
    }
    let status = plan_migrations(MIGRATIONS, &applied(connection, names)?).status;
    let version = |version: Option<i32>| json!({ "version": version });
    let before = version(taken.iter().map(|step| step.version).max());
    let after = version(plan.steps.last().map(|step| step.version));
    let steps: Vec<_> = plan.steps.iter().map(|step| step.name).collect();
    let data = json!({ "before": before, "after": after, "steps": steps });
    let record = PreparedAudit::administrative(DEPLOY, by, data).about("schema", [names.schema()]);
    Ok((status, Some(record)))
}

/// What is there, the tables themselves included: the ledger does not know what somebody dropped, and somebody may have
/// dropped the ledger.
fn status(connection: &Connection, names: &Names) -> rusqlite::Result<SchemaStatus> {
    let status = plan_migrations(MIGRATIONS, &applied(connection, names)?).status;
    let wanted: Vec<String> =
        MIGRATIONS.iter().flat_map(|step| step.made(&["table", "view"], names)).collect();
    let mut found = Vec::new();
    for name in &wanted {
        let name = format!("{}_{name}", names.schema());
        if exists(connection, &name)? {
            found.push(name);
        }
    }
    Ok(match status {
        SchemaStatus::Current { version } if found.len() < wanted.len() => {
            SchemaStatus::Incomplete { version }
        }
        SchemaStatus::Missing { wanted } if !found.is_empty() => {
            SchemaStatus::Unrecorded { found, ledger: ledger(names), wanted }
        }
        status => status,
    })
}

fn ledger(names: &Names) -> String {
    format!("{}_mainstay_migration", names.schema())
}

/// Whether there is a table or view of this name. Their names are not case-sensitive.
fn exists(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let count =
        "SELECT count(*) FROM sqlite_master WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE";
    Ok(connection.query_row(count, params![name], |row| row.get::<_, i64>(0))? > 0)
}

/// The steps taken for these names.
fn applied(connection: &Connection, names: &Names) -> rusqlite::Result<Vec<Applied>> {
    if !exists(connection, &ledger(names))? {
        return Ok(Vec::new());
    }
    let select = r#"SELECT version, name, checksum, oldest_program FROM "{{schema}}_mainstay_migration" WHERE outbox = ?1 ORDER BY version"#;
    let mut statement = connection.prepare(&render(select, names))?;
    let steps = statement.query_map([names.outbox()], |row| {
        Ok(Applied {
            version: row.get(0)?,
            name: row.get(1)?,
            checksum: row.get(2)?,
            oldest_program: row.get(3)?,
        })
    })?;
    steps.collect()
}
