//! The deployment of tables and procedures: one transaction that holds a lock, so any number of instances may do it at once.

mod procedure;
#[cfg(test)]
mod reference;
mod script;

use std::collections::BTreeSet;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::store::{
    Applied, Argument, Migration, Names, Queue, ROUTINES, SchemaStatus, SchemaStore, Step, Template,
    check_collisions, plan_migrations, routines_checksum,
};
use mainstay_core::{Error, ErrorKind, Result};
use serde_json::json;

use crate::parameters::{Call, listed, named};
use crate::pool::{Connections, Lease};
use crate::rows::{Reader, Row};
use procedure::{ON_BABELFISH, PROCEDURES, Procedure, batches, fill, procedures, procedures_checksum};
pub(crate) use script::{granted_names, grants_script, table_names};

const STATUS: &str = "schema.status";
const DEPLOY: &str = "schema.deploy";

/// Every step of the schema.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "baseline",
        oldest_program: 1,
        templates: &[
            Template::once(include_str!("../migrations/0001_baseline/basics.sql")),
            Template::of_every_queue(include_str!("../migrations/0001_baseline/queue.sql")),
            Template::once(include_str!("../migrations/0001_baseline/lease.sql")),
            Template::once(include_str!("../migrations/0001_baseline/audit.sql")),
            Template::once(include_str!("../migrations/0001_baseline/inbox.sql")),
            Template::once(include_str!("../migrations/0001_baseline/operations.sql")),
            Template::once(include_str!("../migrations/0001_baseline/jobs.sql")),
            Template::once(include_str!("../migrations/0001_baseline/joins.sql")),
            Template::once(include_str!("../migrations/0001_baseline/fanout.sql")),
        ],
    },
    Migration {
        version: 2,
        name: "schema_view",
        oldest_program: 1,
        templates: &[Template::once(include_str!("../migrations/0002_schema_view/view.sql"))],
    },
];

const CREATE_SCHEMA: &str =
    "IF SCHEMA_ID(N'{{schema:literal}}') IS NULL EXEC(N'CREATE SCHEMA \"{{schema:nested}}\"');";

/// The steps taken, by outbox, made by the runner and not by a step.
const CREATE_LEDGER: &str = "CREATE TABLE \"{{schema}}\".\"mainstay_migration\" (
    \"outbox\" NVARCHAR(100) NOT NULL,
    \"version\" INT NOT NULL,
    \"name\" NVARCHAR(100) NOT NULL,
    \"checksum\" NVARCHAR(64) NOT NULL,
    \"oldest_program\" INT NOT NULL,
    \"applied_at\" DATETIME2(6) NOT NULL,
    CONSTRAINT \"PK_mainstay_migration\" PRIMARY KEY (\"outbox\", \"version\")
);";

/// What everything relies on that a session can be without: filtered indexes need quoted identifiers, and so do names.
const SETTINGS: &str = "SET QUOTED_IDENTIFIER ON; SET ANSI_NULLS ON; SET ANSI_PADDING ON; SET ANSI_WARNINGS ON; SET ARITHABORT ON; SET CONCAT_NULL_YIELDS_NULL ON;";

/// Refuses a database that is kept as an older server's: it has no `OPENJSON` and no `STRING_SPLIT`, and says of them that they are not there.
const LEVEL: &str = "IF SERVERPROPERTY(N'BabelfishVersion') IS NULL AND (SELECT d.compatibility_level FROM sys.databases d WHERE d.name = DB_NAME()) < 130
    THROW 50001, N'the compatibility level of the database must be 130 or more: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 150', 1;";

/// Keeps deployments apart, until the transaction ends.
const LOCK: &str = "DECLARE @Got INT; EXEC @Got = sp_getapplock @Resource = N'mainstay deployment', @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 600000;";

/// The names as the tables have them: those that are not given are written as is usual on SQL Server, `Outbox` and `JobRuns`.
pub(crate) fn local(names: &Names) -> Result<Names> {
    if names.outbox() != Queue::Outbox.as_str() {
        return Ok(names.clone());
    }
    let usual = |name: String, plain: &str| match name == plain {
        true => plain.split('_').map(capitalised).collect(),
        false => name,
    };
    let all = names.clone().with_outbox("Outbox")?;
    let all = all.with_inbox(usual(names.inbox(), "inbox"))?.with_timers(usual(names.timers(), "timers"))?;
    let all =
        all.with_jobs(usual(names.jobs(), "jobs"))?.with_job_runs(usual(names.job_runs(), "job_runs"))?;
    let all = all.with_lease(usual(names.lease(), "lease"))?.with_joins(usual(names.joins(), "joins"))?;
    let all = all.with_fanout(usual(names.fanout(), "fanout"))?.with_audit(usual(names.audit(), "audit"))?;
    all.with_operations(usual(names.operations(), "operations"))
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// SQL Server takes no name twice, in whatever case.
fn check_names(names: &Names) -> Result<()> {
    // Endings of procedures are written with capitals, which the look for names that collide does not know.
    let texts: Vec<_> = PROCEDURES
        .iter()
        .flat_map(|set| set.over.iter().map(move |queue| (set.sql.to_ascii_lowercase(), *queue)))
        .collect();
    check_collisions(
        DEPLOY,
        names,
        MIGRATIONS,
        texts.iter().map(|(text, queue)| (text.as_str(), *queue)),
        true,
    )
}

/// The schema in SQL Server.
pub struct SqlServerSchema {
    connections: Connections,
    names: Names,
    /// Names the outbox in logs.
    store: String,
}

impl SqlServerSchema {
    /// The version this program makes and wants.
    pub const VERSION: i32 = MIGRATIONS[MIGRATIONS.len() - 1].version;

    pub(crate) fn new(connections: Connections, names: Names) -> Result<Self> {
        check_names(&names)?;
        let store = format!("{}/{}.{}", connections.store(), names.schema(), names.outbox());
        Ok(Self { connections, names, store })
    }

    fn ledger(&self) -> String {
        format!("{}.mainstay_migration", self.names.schema())
    }

    /// The steps taken; none where nothing says which.
    async fn applied(&self) -> Result<Option<Vec<Applied>>> {
        let migrations = Call::new(&named(&self.names, self.names.outbox(), "Migrations")).step();
        match self.connections.run(STATUS, &migrations).await {
            Ok(rows) => applied(STATUS, &rows).map(Some),
            Err(error) if error.kind() == ErrorKind::Schema => self.applied_directly().await,
            // Who may make and alter things need not have the right to execute them. Who sees nothing is told of the right that is missing.
            Err(error) if error.kind() == ErrorKind::Denied => {
                self.applied_directly().await?.ok_or(error).map(Some)
            }
            Err(error) => Err(error),
        }
    }

    /// The same where the procedure is not there: somebody may have dropped it.
    async fn applied_directly(&self) -> Result<Option<Vec<Applied>>> {
        if !self.inventory().await?.contains("mainstay_migration") {
            return Ok(None);
        }
        self.connections.run(STATUS, &self.reading()).await.and_then(|rows| applied(STATUS, &rows)).map(Some)
    }

    fn reading(&self) -> Step {
        let sql = "SELECT m.\"version\" AS version, m.\"name\" AS name, m.\"checksum\" AS checksum,
            m.\"oldest_program\" AS oldest_program
            FROM \"{{schema}}\".\"mainstay_migration\" m WHERE m.\"outbox\" = N'{{outbox:literal}}' ORDER BY m.\"version\"";
        Step { sql: fill(sql, &self.names).into(), arguments: Vec::new() }
    }

    /// The names of all objects in the schema that one can see, in lower case.
    async fn inventory(&self) -> Result<BTreeSet<String>> {
        named_in(STATUS, &self.connections.run(STATUS, &self.listing()).await?)
    }

    /// The same within a transaction.
    async fn inventory_on(&self, lease: &mut Lease) -> Result<BTreeSet<String>> {
        named_in(DEPLOY, &lease.query(DEPLOY, &self.listing()).await?)
    }

    fn listing(&self) -> Step {
        let sql =
            "SELECT LOWER(o.name) AS name FROM sys.objects o JOIN sys.schemas s ON s.schema_id = o.schema_id
            WHERE LOWER(s.name) = LOWER(@P1) AND o.type IN (N'U', N'V', N'P')";
        Step { sql: sql.into(), arguments: vec![Argument::Text(self.names.schema().to_owned())] }
    }

    /// Deploys on a connection whose transaction has begun.
    async fn deploy_on(&self, lease: &mut Lease, by: &Actor) -> Result<()> {
        lease.batch(DEPLOY, LEVEL).await?;
        lease.batch(DEPLOY, fill(CREATE_SCHEMA, &self.names)).await?;
        let exists =
            "SELECT COUNT(*) AS found FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id
            WHERE LOWER(s.name) = LOWER(@P1) AND LOWER(t.name) = N'mainstay_migration'";
        let exists =
            Step { sql: exists.into(), arguments: vec![Argument::Text(self.names.schema().to_owned())] };
        let rows = lease.query(DEPLOY, &exists).await?;
        if crate::rows::only(DEPLOY, &rows)?.count("found")? == 0 {
            lease.batch(DEPLOY, fill(CREATE_LEDGER, &self.names)).await?;
        }
        let taken = applied(DEPLOY, &lease.query(DEPLOY, &self.reading()).await?)?;
        let plan = plan_migrations(MIGRATIONS, &taken);
        plan.check()?;
        if plan.is_left_alone() {
            return Ok(());
        }
        for step in &plan.steps {
            for (sql, queue) in step.parts() {
                for batch in batches(&fill(sql, &self.names.of(queue))) {
                    lease.batch(DEPLOY, batch).await?;
                }
            }
            self.record(lease, &step.applied()).await?;
            tracing::info!(store = self.store, version = step.version, step = step.name, "deployed");
        }
        // Whatever is there: one that somebody dropped comes back.
        let seen = self.inventory_on(lease).await?;
        let engine = format!("SELECT CASE WHEN {ON_BABELFISH} THEN 1 ELSE 0 END AS babelfish");
        let rows = lease.batch(DEPLOY, engine).await?;
        let babelfish = crate::rows::only(DEPLOY, &rows)?.flag("babelfish")?;
        for procedure in procedures(&self.names) {
            for batch in procedure.making(seen.contains(&procedure.catalogued()), babelfish) {
                lease.batch(DEPLOY, batch).await?;
            }
        }
        self.record(lease, &procedures_applied()).await?;
        let new_procedures = routines_checksum(&taken) != Some(procedures_checksum().as_str());
        match plan.record(&taken, new_procedures) {
            Some(data) => self.note(lease, by, data).await,
            None => Ok(()),
        }
    }

    async fn note(&self, lease: &mut Lease, by: &Actor, data: String) -> Result<()> {
        let anchors = json!([{ "kind": "schema", "value": listed(self.names.schema()) }]);
        let call = Call::new(&named(&self.names, &self.names.audit(), "Write"))
            .text("Name", DEPLOY)
            .text("Actor", by.as_str());
        let call = call.maybe_text("CorrelationId", by.correlation_id()).text("Data", data);
        lease.query(DEPLOY, &call.text("Anchors", anchors.to_string()).step()).await.map(drop)
    }

    async fn record(&self, lease: &mut Lease, step: &Applied) -> Result<()> {
        lease.batch(DEPLOY, recording(&self.names, step)).await.map(drop)
    }
}

/// Notes a step where it is not noted; of the procedures what they are now.
fn recording(names: &Names, step: &Applied) -> String {
    let Applied { version, name, checksum, oldest_program } = step;
    let known = format!("\"outbox\" = N'{{{{outbox:literal}}}}' AND \"version\" = {version}");
    let ledger = "\"{{schema}}\".\"mainstay_migration\"";
    let mut sql = match *version == ROUTINES {
        true => format!(
            "UPDATE {ledger} SET \"checksum\" = N'{checksum}', \"applied_at\" = SYSUTCDATETIME() WHERE {known};\n"
        ),
        false => String::new(),
    };
    sql.push_str(&format!(
        "IF NOT EXISTS (SELECT 1 FROM {ledger} WHERE {known}) INSERT INTO {ledger} (\"outbox\", \"version\", \"name\", \"checksum\", \"oldest_program\", \"applied_at\") VALUES (N'{{{{outbox:literal}}}}', {version}, N'{name}', N'{checksum}', {oldest_program}, SYSUTCDATETIME());"
    ));
    fill(&sql, names)
}

/// The record of the procedures in the ledger.
fn procedures_applied() -> Applied {
    Applied::routines("procedures", procedures_checksum())
}

fn named_in(operation: &'static str, rows: &[Row]) -> Result<BTreeSet<String>> {
    rows.iter().map(|row| Reader::new(operation, row).text("name")).collect()
}

fn applied(operation: &'static str, rows: &[Row]) -> Result<Vec<Applied>> {
    let read = |row: &Row| {
        let row = Reader::new(operation, row);
        let number = |name| row.integer(name).map(|number| i32::try_from(number).unwrap_or(i32::MAX));
        Ok(Applied {
            version: number("version")?,
            name: row.text("name")?,
            checksum: row.text("checksum")?,
            oldest_program: number("oldest_program")?,
        })
    };
    rows.iter().map(read).collect()
}

#[async_trait]
impl SchemaStore for SqlServerSchema {
    async fn status(&self) -> Result<SchemaStatus> {
        let applied = self.applied().await?.unwrap_or_default();
        let status = plan_migrations(MIGRATIONS, &applied).status;
        if !matches!(status, SchemaStatus::Current { .. } | SchemaStatus::Missing { .. }) {
            return Ok(status);
        }
        let seen = self.inventory().await?;
        let wanted: BTreeSet<String> = MIGRATIONS
            .iter()
            .flat_map(|step| step.made(&["table", "view"], &self.names))
            .map(|name| name.to_lowercase())
            .collect();
        let found: Vec<String> = wanted.intersection(&seen).cloned().collect();
        Ok(match status {
            // Whoever may only execute sees no table at all.
            SchemaStatus::Current { version } if !found.is_empty() && found.len() < wanted.len() => {
                SchemaStatus::Incomplete { version }
            }
            SchemaStatus::Current { version } => {
                let is_old = routines_checksum(&applied) != Some(procedures_checksum().as_str());
                let lacks = |procedure: &Procedure| !seen.contains(&procedure.catalogued());
                match is_old || procedures(&self.names).iter().any(lacks) {
                    true => SchemaStatus::Outdated { found: version, wanted: version },
                    false => status,
                }
            }
            SchemaStatus::Missing { wanted } if !found.is_empty() => {
                // Made by somebody since the ledger was read? Then the record came with it.
                let applied = self.applied().await?.unwrap_or_default();
                match plan_migrations(MIGRATIONS, &applied).status {
                    SchemaStatus::Missing { .. } => {
                        SchemaStatus::Unrecorded { found, ledger: self.ledger(), wanted }
                    }
                    status => status,
                }
            }
            status => status,
        })
    }

    async fn deploy_by(&self, by: &Actor) -> Result<SchemaStatus> {
        // Without a right to change anything, a schema that this program can use is fine.
        let status = self.status().await?;
        if status.is_usable() {
            return Ok(status);
        }
        status.check_deployable()?;
        let mut lease = self.connections.lease(DEPLOY).await?.unbounded();
        // Whoever runs a procedure is waited for before it is altered.
        let begin = format!("{SETTINGS} SET LOCK_TIMEOUT 600000; SET XACT_ABORT ON; BEGIN TRANSACTION;");
        lease.batch(DEPLOY, begin).await?;
        let rows = lease.batch(DEPLOY, format!("{LOCK} SELECT @Got AS got;")).await?;
        if crate::rows::only(DEPLOY, &rows)?.integer("got")? < 0 {
            return Err(Error::new(
                ErrorKind::Conflict,
                DEPLOY,
                "another deployment is still under way; try again when it has ended",
            ));
        }
        // On an error the lease is dropped, and with the connection goes the transaction.
        self.deploy_on(&mut lease, by).await?;
        lease.batch(DEPLOY, "COMMIT TRANSACTION").await?;
        // Its settings are those of a deployment, so nobody else gets the connection.
        drop(lease);
        self.status().await
    }

    fn script(&self) -> String {
        script::whole(&self.names)
    }
}

impl std::fmt::Debug for SqlServerSchema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerSchema").field("store", &self.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        local(&Names::default()).unwrap()
    }

    #[test]
    fn procedures_that_workers_call_have_a_limit_for_locks() {
        let all = procedures(&names());
        for name in [
            "Outbox_Claim",
            "Inbox_Settle",
            "Outbox_RenewMany",
            "JobRuns_ReapExpired",
            "Timers_Forward",
            "Outbox_Purge",
            "Inbox_Forget",
            "Lease_Acquire",
            "Lease_AcquireMany",
            "Lease_Renew",
            "Lease_RenewMany",
            "Lease_Release",
            "Lease_ReleaseMany",
            "Jobs_Advance",
            "Jobs_Reject",
            "Jobs_Dispatch",
            "Jobs_Collect",
            "Jobs_Purge",
            "Joins_Expire",
            "Joins_Purge",
            "Operations_MarkStalled",
            "Operations_Purge",
            "Audit_Purge",
        ] {
            let named = format!(".\"{name}\"");
            let procedure = all.iter().find(|procedure| procedure.name.ends_with(&named)).unwrap();
            assert!(procedure.text.contains("SET LOCK_TIMEOUT 4000;"), "{name} waits for locks without end");
        }
    }

    #[test]
    fn names_are_written_as_is_usual_unless_they_are_given() {
        let own = Names::default().with_timers("clock").unwrap();
        let own = local(&own).unwrap();
        assert_eq!(
            (own.outbox(), own.timers().as_str(), own.job_runs().as_str()),
            ("Outbox", "clock", "JobRuns")
        );
        let other = local(&Names::default().with_outbox("mail").unwrap()).unwrap();
        assert_eq!((other.outbox(), other.timers().as_str()), ("mail", "mail_timers"));
    }

    #[test]
    fn the_procedures_of_the_order_are_there_for_every_queue() {
        let all: BTreeSet<String> =
            procedures(&names()).into_iter().map(|procedure| procedure.name).collect();
        for queue in ["Outbox", "Inbox", "Timers", "JobRuns"] {
            for verb in ["Enqueue", "Claim", "Ack", "Abandon", "Fail", "Renew", "ReapExpired"] {
                let name = format!("\"infra\".\"{queue}_{verb}\"");
                assert!(all.contains(&name), "{name} is missing");
            }
        }
    }

    #[test]
    fn nothing_is_left_to_fill_in_and_nothing_is_used_that_an_engine_lacks() {
        let names = names();
        let mut texts: Vec<String> = procedures(&names).iter().map(Procedure::definition).collect();
        for step in MIGRATIONS {
            texts.extend(step.parts().map(|(sql, queue)| fill(sql, &names.of(queue))));
        }
        for text in texts {
            let code: String = text
                .lines()
                .filter(|line| !line.trim_start().starts_with("--"))
                .collect::<Vec<_>>()
                .join("\n");
            assert!(!code.contains("{{"), "{code}");
            for word in
                ["MERGE ", "CREATE OR ALTER", "WAITFOR", "WITH TIES", " FORMAT(", "deleted.\"LockedUntil\""]
            {
                assert!(!code.contains(word), "{word}: {code}");
            }
        }
    }

    #[tokio::test]
    async fn the_script_is_one_transaction_in_batches_and_the_grants_are_to_execute_alone() {
        let server = crate::SqlServer::connect("mssql://user:secret@localhost/shop").await.unwrap();
        let script = mainstay_core::store::Provider::schema(&server).script();
        let batches: Vec<&str> = script.split("\nGO\n").collect();
        // Where `:on error exit` is not known, that batch fails and no other one.
        assert!(batches[0].ends_with("\n:on error exit") && !batches[0].contains("SET "), "{}", batches[0]);
        assert_eq!(batches[1], format!("{SETTINGS}\nSET XACT_ABORT ON;"));
        assert!(batches[2].starts_with("BEGIN TRANSACTION;"), "{}", batches[2]);
        assert!(batches[batches.len() - 2].ends_with("\nCOMMIT TRANSACTION;"));
        // Nothing runs beside a transaction that is gone.
        let guarded = &batches[3..batches.len() - 1];
        let guard = "IF @@ERROR <> 0 OR @@TRANCOUNT = 0 THROW 50005, ";
        assert!(guarded.iter().all(|batch| batch.starts_with(guard)));
        for procedure in procedures(&names()) {
            let making = script::making(&procedure);
            let has_batch = guarded.iter().any(|batch| batch.ends_with(making.trim()));
            assert!(has_batch && !making.starts_with("ALTER"), "{} has no batch", procedure.name);
        }
        let grants = server.grants_script("app\"x");
        let (settings, grants) = grants.split_once("\nGO\n").unwrap();
        assert!(settings.ends_with(SETTINGS), "{settings}");
        for line in grants.lines() {
            assert!(line.starts_with("GRANT EXECUTE ON ") && line.ends_with(" TO \"app\"\"x\";"), "{line}");
        }
        for internal in [
            "Outbox_Retire",
            "Outbox_Lock",
            "Outbox_OnceLock",
            "Outbox_RefuseKnown",
            "Audit_Add",
            "Lease_Take",
        ] {
            assert!(!grants.contains(&format!("\"{internal}\"")), "{internal}");
        }
        assert!(
            grants.contains("ON \"infra\".\"Outbox_Claim\"")
                && grants.contains("TYPE::\"infra\".\"Outbox_IdList\"")
        );
    }

    #[tokio::test]
    async fn the_script_refuses_what_it_does_not_know_before_it_changes_anything() {
        let server = crate::SqlServer::connect("mssql://user:secret@localhost/shop").await.unwrap();
        let script = mainstay_core::store::Provider::schema(&server).script();
        let newer = format!("\"version\" > {}) THROW 50009", SqlServerSchema::VERSION);
        let refused = script.find(&newer).unwrap();
        let first = MIGRATIONS.first().unwrap();
        let changed = format!("\"version\" = 1 AND \"checksum\" <> N'{}') THROW", first.checksum());
        assert!(refused < script.find(&changed).unwrap());
        assert!(script.find(&changed).unwrap() < script.find("CREATE FUNCTION").unwrap());
        // A step that is noted stays as it was noted.
        assert_eq!(script.matches("UPDATE \"infra\".\"mainstay_migration\"").count(), 1);
    }

    #[test]
    fn procedures_that_take_a_table_are_altered_wherever_they_can_be() {
        let all = procedures(&names());
        let ack = all.iter().find(|procedure| procedure.name.ends_with("Outbox_Ack\"")).unwrap();
        assert!(ack.preparation().starts_with("IF SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL AND"));
        assert!(ack.definition().contains("IF OBJECT_ID(N'\"infra\".\"Outbox_Ack\"', N'P') IS NULL SET"));
        assert!(ack.making(true, false)[1].contains("ALTER PROCEDURE"));
        assert!(ack.making(true, true)[1].contains("CREATE PROCEDURE"));
        assert!(ack.making(false, false)[0].contains("CREATE PROCEDURE"));
    }

    #[test]
    fn names_cannot_get_out_of_their_quotes() {
        let names =
            local(&Names::default().with_schema("a\"b'c").unwrap().with_outbox("o'x\"y").unwrap()).unwrap();
        for procedure in procedures(&names) {
            assert!(procedure.name.starts_with("\"a\"\"b'c\".\""), "{}", procedure.name);
            assert!(procedure.preparation().contains("N'\"a\"\"b''c\".\""), "{}", procedure.preparation());
        }
        assert_eq!(
            fill(CREATE_SCHEMA, &names),
            "IF SCHEMA_ID(N'a\"b''c') IS NULL EXEC(N'CREATE SCHEMA \"a\"\"b''c\"');"
        );
    }

    #[test]
    fn no_procedure_is_called_like_a_table_in_whatever_case() {
        let names = names();
        let mut seen = BTreeSet::new();
        for name in MIGRATIONS
            .iter()
            .flat_map(|step| step.made(&["table", "view", "function", "type", "trigger"], &names))
        {
            assert!(seen.insert(format!("\"infra\".\"{name}\"").to_lowercase()), "{name} is made twice");
        }
        for procedure in procedures(&names) {
            assert!(seen.insert(procedure.name.to_lowercase()), "{} is there already", procedure.name);
        }
    }

    #[test]
    fn names_that_collide_are_refused() {
        for table in ["Outbox", "outbox_history", "OUTBOX_CLAIM", "mainstay_migration"] {
            let names = local(&Names::default().with_lease(table).unwrap()).unwrap();
            assert!(check_names(&names).is_err(), "{table}");
        }
    }
}
