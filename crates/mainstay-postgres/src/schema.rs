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
pub(crate) const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, name: "outbox", sql: include_str!("../migrations/0001_outbox.sql") },
    Migration { version: 2, name: "floor", sql: include_str!("../migrations/0002_floor.sql") },
];

/// The functions.
const FUNCTIONS: &[&str] = &[
    include_str!("../functions/outbox_uuid.sql"),
    include_str!("../functions/outbox_wake.sql"),
    include_str!("../functions/outbox_lane.sql"),
    include_str!("../functions/outbox_add.sql"),
    include_str!("../functions/outbox_enqueue.sql"),
    include_str!("../functions/outbox_enqueue_many.sql"),
    include_str!("../functions/outbox_floor.sql"),
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

/// What a name's tables and views end in.
const RELATIONS: [&str; 7] = ["", "_history", "_idempotency", "_hold", "_waiter", "_floor", "_message"];

/// What its domains end in.
const DOMAINS: [&str; 5] = ["_label", "_error", "_priority", "_headers", "_time"];

/// Under which version and name the functions' checksum is kept.
const FUNCTIONS_VERSION: i32 = 0;
const FUNCTIONS_NAME: &str = "functions";

/// The schema in PostgreSQL.
pub struct PostgresSchema {
    connections: Connections,
    names: Names,
    statements: SchemaStatements,
    /// Names the outbox in logs.
    store: String,
}

impl PostgresSchema {
    pub(crate) fn new(connections: Connections, names: Names) -> Result<Self> {
        check_names(&names)?;
        let statements = SchemaStatements::new(&names)?;
        let store = format!("{}/{}.{}", connections.store(), names.schema(), names.outbox());
        Ok(Self { connections, names, statements, store })
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
            (qualified_names(&self.names, &RELATIONS), qualified_names(&self.names, &DOMAINS));
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
            tracing::info!(store = self.store, version = step.version, step = step.name, "deployed");
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
                let is_old = functions_in(&applied) != Some(functions_checksum().as_str());
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

    async fn deploy(&self) -> Result<SchemaStatus> {
        // Without a right to change anything, a schema that is as it should be is fine.
        let status = self.status().await?;
        if matches!(status, SchemaStatus::Current { .. }) {
            return Ok(status);
        }
        status.check_deployable()?;
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

/// What is there of the schema, whatever the ledger says.
struct Inventory {
    /// Tables, views and domains.
    found: Vec<String>,
    lacks_relations: bool,
    lacks_functions: bool,
}

/// PostgreSQL makes no schema of a name that begins with `pg_`.
fn check_names(names: &Names) -> Result<()> {
    let got = names.schema();
    if got.starts_with("pg_") {
        let reason =
            format_args!("name must not begin with `pg_`, which PostgreSQL keeps to itself, got {got:?}");
        return Err(Error::invalid("postgres.connect", "schema", reason));
    }
    Ok(())
}

/// Names with these endings, the way `to_regclass` reads them.
fn qualified_names(names: &Names, suffixes: &[&str]) -> Vec<String> {
    let schema = PostgresSchema::quoted(names.schema());
    let name = |suffix: &&str| {
        format!("{schema}.{}", PostgresSchema::quoted(&format!("{}{suffix}", names.outbox())))
    };
    suffixes.iter().map(name).collect()
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
    fn every_relation_and_domain_is_in_the_inventory() {
        let names = Names::default();
        let made: Vec<String> = MIGRATIONS
            .iter()
            .flat_map(|step| render(step.sql, &names).lines().map(str::to_owned).collect::<Vec<_>>())
            .filter_map(|line| {
                let kinds = ["create table ", "create view ", "create domain "];
                let rest = kinds.into_iter().find_map(|kind| line.strip_prefix(kind))?.to_owned();
                rest.split([' ', '(']).next().map(str::to_owned)
            })
            .collect();
        let mut known = [qualified_names(&names, &RELATIONS), qualified_names(&names, &DOMAINS)].concat();
        let mut made = made;
        made.sort();
        known.sort();
        assert_eq!(made, known);
    }

    #[test]
    fn a_name_that_postgresql_keeps_to_itself_is_refused_by_its_field() {
        let error = check_names(&Names::default().with_schema("pg_x").unwrap()).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("schema")));
        assert!(error.message().contains("\"pg_x\""), "{error}");
        for fine in ["pg", "pgx", "PG_x", "my_pg_"] {
            check_names(&Names::default().with_schema(fine).unwrap()).unwrap();
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
