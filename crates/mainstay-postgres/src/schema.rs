//! The deployment of tables and functions (R28).
//!
//! Everything happens in one transaction under a lock that ends with it, so any number of instances may deploy at
//! once, and one that dies midway leaves nothing behind. Steps are taken once each; the functions are replaced as a
//! whole whenever their text differs. A released change of the functions comes with a step, even an empty one: only
//! the number of the steps tells which of two programs is the older, and keeps that one from putting its functions back.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::store::{
    Applied, Migration, Names, Queue, SchemaStatus, SchemaStore, Template, check_collisions, checksum, made,
    plan_migrations, render, routines_checksum,
};
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::{LOCK_NOT_AVAILABLE, from_driver, is_of_code};
use crate::pool::{Connections, Parameter};
use crate::rows::{self, Reader};
use crate::statements::{AuditStatements, SchemaStatements};

const CONNECT: &str = "postgres.connect";
const STATUS: &str = "schema.status";
const DEPLOY: &str = "schema.deploy";

/// The steps, in order.
pub(crate) const MIGRATIONS: &[Migration] = &[
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

/// The functions.
const FUNCTIONS: &[Template] = &[
    Template::of_every_queue(include_str!("../functions/queue_uuid.sql")),
    Template::once(include_str!("../functions/audit_write.sql")),
    Template::of_every_queue(include_str!("../functions/queue_wake.sql")),
    Template::of_every_queue(include_str!("../functions/queue_lane.sql")),
    Template::of_every_queue(include_str!("../functions/queue_pause.sql")),
    Template::of_every_queue(include_str!("../functions/queue_add.sql")),
    // What has rules of its own for getting in has functions of its own for it.
    Template { sql: include_str!("../functions/queue_enqueue.sql"), over: &[Queue::Outbox, Queue::Timers] },
    Template {
        sql: include_str!("../functions/queue_enqueue_many.sql"),
        over: &[Queue::Outbox, Queue::Timers],
    },
    Template::of_every_queue(include_str!("../functions/queue_floor.sql")),
    Template::of_every_queue(include_str!("../functions/queue_take.sql")),
    Template::of_every_queue(include_str!("../functions/queue_claim.sql")),
    Template::of_every_queue(include_str!("../functions/queue_settle.sql")),
    Template::of_every_queue(include_str!("../functions/queue_ack.sql")),
    Template::of_every_queue(include_str!("../functions/queue_abandon.sql")),
    Template::of_every_queue(include_str!("../functions/queue_fail.sql")),
    Template::of_every_queue(include_str!("../functions/queue_release.sql")),
    Template::of_every_queue(include_str!("../functions/queue_renew.sql")),
    Template::of_every_queue(include_str!("../functions/queue_reap.sql")),
    Template::of_every_queue(include_str!("../functions/queue_cancel.sql")),
    Template::of_every_queue(include_str!("../functions/queue_requeue.sql")),
    Template::of_every_queue(include_str!("../functions/queue_stats.sql")),
    Template::of_every_queue(include_str!("../functions/queue_purge.sql")),
    Template::of_every_queue(include_str!("../functions/queue_idle.sql")),
    Template { sql: include_str!("../functions/queue_forward.sql"), over: &[Queue::Timers, Queue::JobRuns] },
    Template::once(include_str!("../functions/joins_start.sql")),
    Template::once(include_str!("../functions/joins_count.sql")),
    Template::once(include_str!("../functions/joins_attach.sql")),
    Template::once(include_str!("../functions/joins_keep.sql")),
    Template::once(include_str!("../functions/inbox_mark.sql")),
    Template::once(include_str!("../functions/inbox_follow.sql")),
    Template::once(include_str!("../functions/inbox_begin.sql")),
    Template::once(include_str!("../functions/inbox_enqueue.sql")),
    Template::once(include_str!("../functions/inbox_keep.sql")),
    Template::once(include_str!("../functions/lease_home.sql")),
    Template::once(include_str!("../functions/lease_numbers.sql")),
    Template::once(include_str!("../functions/lease_acquire.sql")),
    Template::once(include_str!("../functions/lease_renew.sql")),
    Template::once(include_str!("../functions/lease_release.sql")),
    Template::once(include_str!("../functions/lease_many.sql")),
    Template::once(include_str!("../functions/lease_guard.sql")),
    Template::once(include_str!("../functions/lease_list.sql")),
    Template {
        sql: include_str!("../functions/queue_first_due.sql"),
        over: &[Queue::Timers, Queue::JobRuns],
    },
    Template { sql: include_str!("../functions/timers_schedule.sql"), over: &[Queue::Timers] },
    Template { sql: include_str!("../functions/timers_reschedule.sql"), over: &[Queue::Timers] },
    Template::once(include_str!("../functions/jobs_define.sql")),
    Template::once(include_str!("../functions/jobs_runs.sql")),
    Template::once(include_str!("../functions/jobs_materialise.sql")),
    Template::once(include_str!("../functions/jobs_next.sql")),
    Template { sql: include_str!("../functions/timers_next_event.sql"), over: &[Queue::Timers] },
    Template::once(include_str!("../functions/fanout_rules.sql")),
    Template::once(include_str!("../functions/fanout_policy.sql")),
    Template::once(include_str!("../functions/fanout_cursor.sql")),
    Template::once(include_str!("../functions/operations_track.sql")),
];

/// How long a step may wait for a table that is in use. Whoever comes after it waits behind it, workers that settle included, so
/// it must not wait for as long as somebody's longest transaction takes.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a deployment is tried that could not get a table in time, and how long the others are let through in between.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// The schema in PostgreSQL.
pub struct PostgresSchema {
    connections: Connections,
    names: Names,
    statements: Arc<SchemaStatements>,
    /// Of the audit trail, where a deployment is recorded.
    audit: Arc<AuditStatements>,
    /// Names the outbox in logs.
    store: String,
}

impl PostgresSchema {
    /// The version this program makes and wants.
    pub const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

    pub(crate) fn new(connections: Connections, names: Names) -> Result<Self> {
        check_names(&names)?;
        let (statements, audit) = (SchemaStatements::shared(&names)?, AuditStatements::shared(&names)?);
        let store = format!("{}/{}.{}", connections.store(), names.schema(), names.outbox());
        Ok(Self { connections, names, statements, audit, store })
    }

    /// A name as an identifier, the way `to_regclass` and its like read it.
    fn quoted(name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    fn ledger_name(&self) -> String {
        format!("{}.mainstay_migration", Self::quoted(self.names.schema()))
    }

    /// The steps taken, none where there is no ledger.
    async fn applied(&self) -> Result<Vec<Applied>> {
        let connections = &self.connections;
        let ledger = self.ledger_name();
        let exists =
            connections.query(STATUS, &self.statements.ledger_exists, &[(&ledger, Type::TEXT)]).await?;
        match rows::value(STATUS, &exists)? {
            true => applied(STATUS, &connections.query(STATUS, &self.statements.ledger, &[]).await?),
            false => Ok(Vec::new()),
        }
    }

    async fn inventory(&self) -> Result<Inventory> {
        let (schema, functions) = (self.names.schema(), function_names(&self.names));
        let (relations, domains) =
            (qualified_names(&self.names, &["table", "view"]), qualified_names(&self.names, &["domain"]));
        let parameters: [Parameter<'_>; 4] = [
            (&schema, Type::TEXT),
            (&relations, Type::TEXT_ARRAY),
            (&functions, Type::TEXT_ARRAY),
            (&domains, Type::TEXT_ARRAY),
        ];
        let rows = self.connections.query(STATUS, &self.statements.inventory, &parameters).await?;
        let nothing = || Error::new(ErrorKind::Internal, STATUS, "the database returned no row");
        let row = Reader::new(STATUS, rows.first().ok_or_else(nothing)?);
        Ok(Inventory { found: row.get(0)?, lacks_relations: row.get(1)?, lacks_functions: row.get(2)? })
    }

    /// Deploys on a connection whose transaction has begun.
    async fn deploy_on(&self, client: &Client, by: &Actor) -> Result<()> {
        query(client, &self.statements.lock, &[]).await?;
        // Not for the lock above: another deployment takes as long as it takes, and nobody else waits for that.
        execute(client, &format!("set local lock_timeout = {}", LOCK_TIMEOUT.as_millis())).await?;
        // Asked first: making what is there already needs rights that the asking does not.
        let schema = Self::quoted(self.names.schema());
        if !rows::value(
            DEPLOY,
            &query(client, &self.statements.schema_exists, &[(&schema, Type::TEXT)]).await?,
        )? {
            execute(client, &self.statements.create_schema).await?;
        }
        let ledger = self.ledger_name();
        if !rows::value(
            DEPLOY,
            &query(client, &self.statements.ledger_exists, &[(&ledger, Type::TEXT)]).await?,
        )? {
            execute(client, &self.statements.create_ledger).await?;
        }
        let applied = applied(DEPLOY, &query(client, &self.statements.ledger, &[]).await?)?;
        let plan = plan_migrations(MIGRATIONS, &applied);
        plan.check()?;
        if plan.is_left_alone() {
            return Ok(());
        }
        for step in &plan.steps {
            execute(client, &step.render(&self.names)).await?;
            self.record(client, &step.applied()).await?;
            tracing::info!(store = self.store, version = step.version, step = step.name, "deployed");
        }
        // Whatever is there: one that somebody dropped comes back.
        self.replace_functions(client).await?;
        self.record(client, &functions_applied()).await?;
        let new_functions = routines_checksum(&applied) != Some(functions_checksum().as_str());
        match plan.record(&applied, new_functions) {
            Some(data) => self.note(client, by, &data).await,
            None => Ok(()),
        }
    }

    /// Records in the audit trail what was deployed.
    async fn note(&self, client: &Client, by: &Actor, data: &str) -> Result<()> {
        let (by, about) = (by.as_str(), by.correlation_id());
        let (kinds, values) = (["schema"], [self.names.schema()]);
        let parameters: [Parameter<'_>; 6] = [
            (&DEPLOY, Type::TEXT),
            (&by, Type::TEXT),
            (&data, Type::TEXT),
            (&kinds.as_slice(), Type::TEXT_ARRAY),
            (&values.as_slice(), Type::TEXT_ARRAY),
            (&about, Type::TEXT),
        ];
        query(client, &self.audit.note, &parameters).await.map(drop)
    }

    /// The error of a deployment that waited for too long, with who it waited for, as far as the server tells.
    async fn held_up(&self, client: &Client, error: Error) -> Error {
        let schema = self.names.schema();
        let holders = async {
            execute(client, "rollback").await?;
            query(client, &self.statements.holders, &[(&schema, Type::TEXT)]).await
        };
        let holder = holders.await.ok().and_then(|rows| rows.first()?.try_get::<_, String>(0).ok());
        let holder = holder.unwrap_or_else(|| format!("a table of the schema {schema:?}"));
        let message = format!(
            "another transaction holds {holder}, also after {ATTEMPTS} attempts; nothing was changed; try again when it has ended"
        );
        Error::new(ErrorKind::Conflict, DEPLOY, message).with_source(error)
    }

    async fn replace_functions(&self, client: &Client) -> Result<()> {
        for text in functions(&self.names) {
            execute(client, &text).await?;
        }
        let schema = self.names.schema();
        let names = function_names(&self.names);
        let parameters: [Parameter<'_>; 2] = [(&schema, Type::TEXT), (&names, Type::TEXT_ARRAY)];
        for stale in query(client, &self.statements.stale_functions, &parameters).await? {
            let stale: &str = Reader::new(DEPLOY, &stale).get(0)?;
            execute(client, &format!("drop function {stale}")).await?;
        }
        Ok(())
    }

    async fn record(&self, client: &Client, step: &Applied) -> Result<()> {
        let parameters: [Parameter<'_>; 4] = [
            (&step.version, Type::INT4),
            (&step.name, Type::TEXT),
            (&step.checksum, Type::TEXT),
            (&step.oldest_program, Type::INT4),
        ];
        query(client, &self.statements.record, &parameters).await.map(drop)
    }
}

#[async_trait]
impl SchemaStore for PostgresSchema {
    async fn status(&self) -> Result<SchemaStatus> {
        let applied = self.applied().await?;
        let status = plan_migrations(MIGRATIONS, &applied).status;
        if !matches!(status, SchemaStatus::Current { .. } | SchemaStatus::Missing { .. }) {
            return Ok(status);
        }
        let inventory = self.inventory().await?;
        match status {
            SchemaStatus::Current { version } if inventory.lacks_relations => {
                Ok(SchemaStatus::Incomplete { version })
            }
            SchemaStatus::Current { version } => {
                let is_old = routines_checksum(&applied) != Some(functions_checksum().as_str());
                if is_old || inventory.lacks_functions {
                    return Ok(SchemaStatus::Outdated { found: version, wanted: version });
                }
                Ok(status)
            }
            SchemaStatus::Missing { wanted } if !inventory.found.is_empty() => {
                // Made by somebody since the ledger was read? Then the record came with it.
                let applied = self.applied().await?;
                match plan_migrations(MIGRATIONS, &applied).status {
                    SchemaStatus::Missing { .. } => Ok(SchemaStatus::Unrecorded {
                        found: inventory.found,
                        ledger: self.ledger_name(),
                        wanted,
                    }),
                    status => Ok(status),
                }
            }
            status => Ok(status),
        }
    }

    async fn deploy_by(&self, by: &Actor) -> Result<SchemaStatus> {
        // Without a right to change anything, a schema that this program can use is fine.
        let status = self.status().await?;
        if status.is_usable() {
            return Ok(status);
        }
        status.check_deployable()?;
        let mut attempt = 1;
        loop {
            let lease = self.connections.lease(DEPLOY).await?;
            // Without a time limit: another deployment is waited for, and a step over a large table takes as long as it takes.
            let client = lease.client()?;
            execute(client, "begin isolation level read committed read write").await?;
            // On an error the lease is dropped, and with the connection goes the transaction.
            match self.deploy_on(client, by).await {
                Ok(()) => {
                    execute(client, "commit").await?;
                    lease.give_back();
                    break;
                }
                Err(error) if !is_of_code(&error, LOCK_NOT_AVAILABLE) => return Err(error),
                Err(error) if attempt == ATTEMPTS => return Err(self.held_up(client, error).await),
                Err(_) => drop(lease),
            }
            attempt += 1;
            tokio::time::sleep(PAUSE).await;
        }
        self.status().await
    }

    fn script(&self) -> String {
        let names = &self.names;
        let mut script = String::from(
            "-- Mainstay's tables and functions, for an empty schema. Run it with psql -v ON_ERROR_STOP=1 --file; it is one transaction.\n\nbegin;\n\n",
        );
        let mut add = |sql: &str| {
            script.push_str(sql.trim_end().trim_end_matches(';'));
            script.push_str(";\n\n");
        };
        let record = |step: &Applied| {
            let template = "insert into \"{{schema}}\".mainstay_migration values ('{{outbox:literal}}', ";
            let Applied { version, name, checksum, oldest_program } = step;
            format!("{}{version}, '{name}', '{checksum}', {oldest_program}, now())", render(template, names))
        };
        add(&self.statements.create_schema);
        add(&self.statements.create_ledger);
        for step in MIGRATIONS {
            add(&step.render(names));
            add(&record(&step.applied()));
        }
        for text in functions(names) {
            add(&text);
        }
        add(&record(&functions_applied()));
        add("commit");
        script
    }
}

impl std::fmt::Debug for PostgresSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresSchema").field("names", &self.names).finish_non_exhaustive()
    }
}

/// What gives `role` the rights of an application.
pub(crate) fn grants_script(names: &Names, role: &str) -> String {
    let list =
        |names: Vec<String>| names.iter().map(|name| format!("    {name}")).collect::<Vec<_>>().join(",\n");
    let schema = PostgresSchema::quoted(names.schema());
    let functions = function_names(names)
        .iter()
        .map(|name| format!("{schema}.{}", PostgresSchema::quoted(name)))
        .collect();
    // Names come last: they may contain anything but braces, and a role even those.
    render(include_str!("../grants.sql"), names)
        .replace("{{tables}}", &list(qualified_names(names, &["table"])))
        .replace("{{views}}", &list(qualified_names(names, &["view"])))
        .replace("{{functions}}", &list(functions))
        .replace("{{role}}", &role.replace('"', "\"\""))
}

fn applied(operation: &'static str, rows: &[Row]) -> Result<Vec<Applied>> {
    let read = |row| {
        let row = Reader::new(operation, row);
        Ok(Applied {
            version: row.get(0)?,
            name: row.get(1)?,
            checksum: row.get(2)?,
            oldest_program: row.get(3)?,
        })
    };
    rows.iter().map(read).collect()
}

fn functions_checksum() -> String {
    let texts: Vec<&str> = FUNCTIONS.iter().map(|functions| functions.sql).collect();
    checksum(&texts.concat())
}

/// The record of the functions in the ledger.
fn functions_applied() -> Applied {
    Applied::routines("functions", functions_checksum())
}

/// What is there of the schema, whatever the ledger says.
struct Inventory {
    /// Tables, views and domains.
    found: Vec<String>,
    lacks_relations: bool,
    lacks_functions: bool,
}

/// PostgreSQL makes no schema of a name that begins with `pg_`, has one whose tables are not for others, and makes nothing twice.
fn check_names(names: &Names) -> Result<()> {
    let got = names.schema();
    if got.starts_with("pg_") {
        let reason =
            format_args!("name must not begin with `pg_`, which PostgreSQL keeps to itself, got {got:?}");
        return Err(Error::invalid(CONNECT, "schema", reason));
    }
    if got == "information_schema" {
        let reason = "name must not be `information_schema`, which is PostgreSQL's own";
        return Err(Error::invalid(CONNECT, "schema", reason));
    }
    let functions = FUNCTIONS.iter().flat_map(|file| file.over.iter().map(|queue| (file.sql, *queue)));
    check_collisions(CONNECT, names, MIGRATIONS, functions, false)
}

/// What the steps make of these kinds, the way `to_regclass` reads it.
fn qualified_names(names: &Names, kinds: &[&str]) -> Vec<String> {
    let schema = PostgresSchema::quoted(names.schema());
    let made = relation_names(names, kinds).into_iter();
    made.map(|name| format!("{schema}.{}", PostgresSchema::quoted(&name))).collect()
}

/// What the steps make of these kinds, without the schema's name.
pub(crate) fn relation_names(names: &Names, kinds: &[&str]) -> Vec<String> {
    MIGRATIONS.iter().flat_map(|step| step.made(kinds, names)).collect()
}

/// The definitions of all functions.
fn functions(names: &Names) -> impl Iterator<Item = String> {
    let each = |file: &'static Template| file.over.iter().map(|queue| (file.sql, *queue));
    FUNCTIONS.iter().flat_map(each).map(|(sql, queue)| render(sql, &names.of(queue)))
}

/// The names of all functions, from their definitions; one with several forms comes once.
pub(crate) fn function_names(names: &Names) -> Vec<String> {
    let each = |file: &'static Template| file.over.iter().map(|queue| (file.sql, *queue));
    let made = FUNCTIONS
        .iter()
        .flat_map(each)
        .flat_map(|(sql, queue)| made(sql, &["or replace function"], &names.of(queue)));
    made.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

async fn query(client: &Client, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
    client.query_typed(sql, parameters).await.map_err(failed)
}

async fn execute(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(failed)
}

fn failed(error: tokio_postgres::Error) -> Error {
    from_driver(DEPLOY, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_file_is_deployed() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/functions");
        let mut on_disk: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
            .collect();
        let mut deployed: Vec<_> = FUNCTIONS.iter().map(|file| file.sql.to_owned()).collect();
        on_disk.sort();
        deployed.sort();
        assert_eq!(on_disk, deployed);
    }

    #[test]
    fn migrations_are_numbered_without_gaps() {
        for (step, version) in MIGRATIONS.iter().zip(1..) {
            assert_eq!(step.version, version);
        }
    }

    #[test]
    fn everything_that_is_made_is_in_the_inventory() {
        let names = Names::default();
        let starts = |text: &str, start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        for kind in ["table", "view", "domain"] {
            let start = format!("create {kind} ");
            let made: usize = MIGRATIONS.iter().map(|step| starts(&step.render(&names), &start)).sum();
            assert_eq!(qualified_names(&names, &[kind]).len(), made, "{kind}");
        }
        let made: std::collections::BTreeSet<String> = functions(&names)
            .flat_map(|text| {
                let definitions =
                    text.lines().filter_map(|line| line.strip_prefix("create or replace function "));
                definitions.filter_map(|rest| rest.split('(').next().map(str::to_owned)).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(function_names(&names).len(), made.len());
    }

    #[test]
    fn a_name_that_postgresql_keeps_to_itself_is_refused_by_its_field() {
        let error = check_names(&Names::default().with_schema("pg_x").unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("schema")));
        assert!(error.message().contains("\"pg_x\""), "{error}");
        let error = check_names(&Names::default().with_schema("information_schema").unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("schema")));
        for fine in ["pg", "pgx", "PG_x", "my_pg_", "Information_Schema"] {
            check_names(&Names::default().with_schema(fine).unwrap()).unwrap();
        }
    }

    #[test]
    fn names_that_collide_are_refused_by_their_field() {
        let names = Names::default;
        for fine in [names(), names().with_outbox("mail").unwrap(), names().with_timers("Outbox").unwrap()] {
            check_names(&fine).unwrap();
        }
        for (names, field) in [
            (names().with_timers("outbox").unwrap(), "timers table"),
            (names().with_lease("timers").unwrap(), "lease table"),
            (names().with_jobs("job_runs").unwrap(), "jobs table"),
            (names().with_lease("outbox_history").unwrap(), "lease table"),
            (names().with_inbox("outbox_history_pkey").unwrap(), "inbox table"),
            (names().with_timers("lease_guard").unwrap(), "timers table"),
            (names().with_outbox("inbox").unwrap().with_inbox("inbox").unwrap(), "inbox table"),
        ] {
            let error = check_names(&names).unwrap_err();
            assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)), "{error}");
        }
    }

    #[test]
    fn every_function_is_granted() {
        let names = Names::default();
        let script = grants_script(&names, r#"a"b"#);
        assert!(script.contains(r#"to "a""b""#), "{script}");
        for name in function_names(&names) {
            assert_eq!(
                script.matches(&format!(".\"{name}\"")).count(),
                2,
                "{name} is not revoked and granted"
            );
        }
    }
}
