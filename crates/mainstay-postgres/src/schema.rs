//! The deployment of tables and functions (R28).
//!
//! Everything happens in one transaction under a lock that ends with it, so any number of instances may deploy at
//! once, and one that dies midway leaves nothing behind. Steps are taken once each; the functions are replaced as a
//! whole whenever their text differs. A released change of the functions comes with a step, even an empty one: only
//! the number of the steps tells which of two programs is the older, and keeps that one from putting its functions back.

use async_trait::async_trait;
use mainstay_core::store::{
    Applied, Migration, Names, SchemaStatus, SchemaStore, checksum, plan_migrations, render,
};
use mainstay_core::{Error, ErrorKind, Result};
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

use crate::error::from_driver;
use crate::pool::{Connections, Parameter};
use crate::rows::{self, Reader};
use crate::statements::SchemaStatements;

const STATUS: &str = "schema.status";
const DEPLOY: &str = "schema.deploy";

/// The steps, in order.
pub(crate) const MIGRATIONS: &[Migration] =
    &[Migration { version: 1, name: "outbox", sql: include_str!("../migrations/0001_outbox.sql") }];

/// The functions.
const FUNCTIONS: &[&str] = &[
    include_str!("../functions/outbox_uuid.sql"),
    include_str!("../functions/outbox_wake.sql"),
    include_str!("../functions/outbox_lane.sql"),
    include_str!("../functions/outbox_enqueue.sql"),
    include_str!("../functions/outbox_enqueue_many.sql"),
    include_str!("../functions/outbox_take.sql"),
    include_str!("../functions/outbox_claim.sql"),
    include_str!("../functions/outbox_settle.sql"),
    include_str!("../functions/outbox_ack.sql"),
    include_str!("../functions/outbox_abandon.sql"),
    include_str!("../functions/outbox_fail.sql"),
    include_str!("../functions/outbox_release.sql"),
    include_str!("../functions/outbox_renew.sql"),
    include_str!("../functions/outbox_reap.sql"),
    include_str!("../functions/outbox_cancel.sql"),
    include_str!("../functions/outbox_requeue.sql"),
    include_str!("../functions/outbox_stats.sql"),
    include_str!("../functions/outbox_purge.sql"),
    include_str!("../functions/outbox_idle.sql"),
];

/// Under which version and name the functions' checksum is kept.
const FUNCTIONS_VERSION: i32 = 0;
const FUNCTIONS_NAME: &str = "functions";

/// The schema in PostgreSQL.
pub struct PostgresSchema {
    connections: Connections,
    names: Names,
    statements: SchemaStatements,
}

impl PostgresSchema {
    pub(crate) fn new(connections: Connections, names: Names) -> Result<Self> {
        let statements = SchemaStatements::new(&names)?;
        Ok(Self { connections, names, statements })
    }

    /// A name as an identifier, the way `to_regclass` and its like read it.
    fn quoted(name: &str) -> String {
        format!("\"{}\"", name.replace('"', "\"\""))
    }

    fn ledger_name(&self) -> String {
        format!("{}.mainstay_migration", Self::quoted(self.names.schema()))
    }

    /// Deploys on a connection whose transaction has begun.
    async fn deploy_on(&self, client: &Client) -> Result<()> {
        query(client, &self.statements.lock, &[]).await?;
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
        for step in &plan.steps {
            execute(client, &render(step.sql, &self.names)).await?;
            self.record(client, step.version, step.name, &checksum(step.sql)).await?;
        }
        // Whatever is there: one that somebody dropped comes back.
        self.replace_functions(client).await?;
        self.record(client, FUNCTIONS_VERSION, FUNCTIONS_NAME, &functions_checksum()).await?;
        Ok(())
    }

    async fn replace_functions(&self, client: &Client) -> Result<()> {
        for template in FUNCTIONS {
            execute(client, &render(template, &self.names)).await?;
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

    async fn record(&self, client: &Client, version: i32, name: &str, checksum: &str) -> Result<()> {
        let parameters: [Parameter<'_>; 3] =
            [(&version, Type::INT4), (&name, Type::TEXT), (&checksum, Type::TEXT)];
        query(client, &self.statements.record, &parameters).await.map(drop)
    }
}

#[async_trait]
impl SchemaStore for PostgresSchema {
    async fn status(&self) -> Result<SchemaStatus> {
        let connections = &self.connections;
        let ledger = self.ledger_name();
        let rows =
            connections.query(STATUS, &self.statements.ledger_exists, &[(&ledger, Type::TEXT)]).await?;
        let applied = match rows::value(STATUS, &rows)? {
            true => applied(STATUS, &connections.query(STATUS, &self.statements.ledger, &[]).await?)?,
            false => Vec::new(),
        };
        let status = plan_migrations(MIGRATIONS, &applied).status;
        let SchemaStatus::Current { version } = status else { return Ok(status) };
        let (schema, relations, functions) =
            (self.names.schema(), relation_names(&self.names), function_names(&self.names));
        let parameters: [Parameter<'_>; 3] =
            [(&schema, Type::TEXT), (&relations, Type::TEXT_ARRAY), (&functions, Type::TEXT_ARRAY)];
        let missing = connections.query(STATUS, &self.statements.missing, &parameters).await?;
        let nothing = || Error::new(ErrorKind::Internal, STATUS, "the database returned no row");
        let missing = Reader::new(STATUS, missing.first().ok_or_else(nothing)?);
        if missing.get(0)? {
            return Ok(SchemaStatus::Incomplete { version });
        }
        let is_old = functions_in(&applied) != Some(functions_checksum().as_str());
        if is_old || missing.get(1)? {
            return Ok(SchemaStatus::Outdated { found: version, wanted: version });
        }
        Ok(status)
    }

    async fn deploy(&self) -> Result<SchemaStatus> {
        // Without a right to change anything, a schema that is as it should be is fine.
        match self.status().await? {
            current @ SchemaStatus::Current { .. } => return Ok(current),
            incomplete @ SchemaStatus::Incomplete { .. } => {
                return Err(Error::new(ErrorKind::Schema, DEPLOY, incomplete.to_string()));
            }
            _ => {}
        }
        let lease = self.connections.lease(DEPLOY).await?;
        let client = lease.client()?;
        execute(client, "begin isolation level read committed read write").await?;
        // On an error the lease is dropped, and with the connection goes the transaction.
        self.deploy_on(client).await?;
        execute(client, "commit").await?;
        lease.give_back();
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
        let record = |version: i32, name: &str, checksum: &str| {
            let template = "insert into \"{{schema}}\".mainstay_migration values ('{{outbox:literal}}', ";
            format!("{}{version}, '{name}', '{checksum}', now())", render(template, names))
        };
        add(&self.statements.create_schema);
        add(&self.statements.create_ledger);
        for step in MIGRATIONS {
            add(&render(step.sql, names));
            add(&record(step.version, step.name, &checksum(step.sql)));
        }
        for template in FUNCTIONS {
            add(&render(template, names));
        }
        add(&record(FUNCTIONS_VERSION, FUNCTIONS_NAME, &functions_checksum()));
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
    // The role comes last: its name may contain anything, the other names can't contain a placeholder.
    render(include_str!("../grants.sql"), names).replace("{{role}}", &role.replace('"', "\"\""))
}

fn applied(operation: &'static str, rows: &[Row]) -> Result<Vec<Applied>> {
    let read = |row| {
        let row = Reader::new(operation, row);
        Ok(Applied { version: row.get(0)?, name: row.get(1)?, checksum: row.get(2)? })
    };
    rows.iter().map(read).collect()
}

fn functions_in(applied: &[Applied]) -> Option<&str> {
    let functions = applied.iter().find(|row| row.version == FUNCTIONS_VERSION);
    functions.map(|row| row.checksum.as_str())
}

fn functions_checksum() -> String {
    checksum(&FUNCTIONS.concat())
}

/// The names of all tables and views, the way `to_regclass` reads them.
fn relation_names(names: &Names) -> Vec<String> {
    let suffixes = ["", "_history", "_idempotency", "_hold", "_waiter", "_message"];
    let schema = PostgresSchema::quoted(names.schema());
    let name =
        |suffix| format!("{schema}.{}", PostgresSchema::quoted(&format!("{}{suffix}", names.outbox())));
    suffixes.into_iter().map(name).collect()
}

/// The names of all functions, from their definitions.
fn function_names(names: &Names) -> Vec<String> {
    const DEFINITION: &str = "create or replace function \"{{schema}}\".\"{{outbox}}";
    let suffixes = FUNCTIONS.iter().flat_map(|template| template.split(DEFINITION).skip(1));
    let suffixes = suffixes.filter_map(|rest| rest.split('"').next());
    suffixes.map(|suffix| format!("{}{suffix}", names.outbox())).collect()
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
        let mut deployed: Vec<_> = FUNCTIONS.iter().map(|text| (*text).to_owned()).collect();
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
