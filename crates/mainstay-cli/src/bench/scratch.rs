//! A place of the benchmark's own in the database, and its removal.
//!
//! Two schemas (on SQLite prefixes) that nobody else uses: one for the outbox, made anew for every measurement, and one for
//! the plain tables of the limits. One that is already there is never used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use mainstay::Outbox;
use mainstay::postgres::Postgres;
use mainstay::sqlserver::SqlServer;
use mainstay::store::{Names, Provider};
use tempfile::TempDir;
use uuid::Uuid;

use super::limits::batch;
use super::schema;
use crate::database::{Database, IfMissing, connect, connect_postgres, connect_sqlserver};

/// How the names of all schemas of all measurements begin.
const PREFIX: &str = "mainstay_bench_";
/// Connections to a server: one per caller, and some for the dispatchers.
const POOL: usize = 24;
/// What is still running when a run is given up can be in the way of the removal for a moment.
pub(super) const REMOVALS: u32 = 5;
/// How long it is waited for them.
pub(super) const LET_GO: Duration = Duration::from_millis(200);

/// Where the benchmark does its work.
pub(crate) struct Scratch {
    pub(super) place: Place,
    pub(crate) location: String,
    schema: String,
}

pub(super) enum Place {
    /// Each stage has one of its own, gone with it.
    Memory,
    /// A file of the user's, or a temporary one that goes with its folder.
    File { path: PathBuf, _folder: Option<TempDir> },
    /// The connections are those of the limits.
    Postgres { url: String, plain: Postgres },
    /// What makes clients of the driver for the limits.
    SqlServer { url: String, server: SqlServer },
}

/// An empty outbox with connections of its own.
pub(super) struct Stage {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) outbox: Outbox,
}

impl Scratch {
    /// A place of its own in the database, or in a temporary SQLite file. Nothing is made in a database yet.
    pub(crate) async fn make(database: Option<Database>) -> anyhow::Result<Self> {
        let schema = format!("{PREFIX}{:08x}", Uuid::new_v4().as_fields().0);
        let location = database.as_ref().map(ToString::to_string);
        let place = match database {
            Some(Database::Postgres(url)) => {
                let plain = connect_postgres(&url, Names::default(), POOL).await?;
                // A server that does not answer is told now, as everywhere else.
                plain.now().await?;
                Place::Postgres { url, plain }
            }
            Some(Database::SqliteMemory) => Place::Memory,
            Some(Database::SqlServer(url)) => {
                let server = connect_sqlserver(&url, Names::default(), POOL).await?;
                server.now().await?;
                Place::SqlServer { url, server }
            }
            Some(Database::SqliteFile(path)) => {
                // Only the user's own database is of interest; a mistyped path is not.
                let database = Database::SqliteFile(path.clone());
                database.open(Names::default(), IfMissing::Refuse).await?.close().await;
                Place::File { path, _folder: None }
            }
            None => {
                let folder = tempfile::Builder::new().prefix("mainstay-bench-").tempdir();
                let folder = folder.context("no temporary folder can be made")?;
                Place::File { path: folder.path().join("bench.db"), _folder: Some(folder) }
            }
        };
        let location = location.unwrap_or_else(|| "a temporary SQLite file".to_owned());
        Ok(Self { place, location, schema })
    }

    /// What a person would have to remove if this process were killed: what begins with this.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// What other measurements have made and not removed: they were killed, or are still at it. On PostgreSQL the statements that remove
    /// it, on SQL Server the schemas, on SQLite the names of tables and views.
    pub(crate) async fn left_behind(&self) -> anyhow::Result<Vec<String>> {
        match &self.place {
            Place::Memory | Place::File { _folder: Some(_), .. } => Ok(Vec::new()),
            Place::Postgres { plain, .. } => {
                let client = plain.pool().get().await.context("PostgreSQL can't be reached")?;
                let list = "select format('drop schema %I cascade;', nspname) from pg_namespace
                             where starts_with(nspname, $1) order by nspname";
                let rows = client.query(list, &[&PREFIX]).await?;
                Ok(rows.iter().map(|row| row.get(0)).collect())
            }
            Place::SqlServer { server, .. } => schema::left(server, PREFIX).await,
            Place::File { path, _folder: None } => {
                let path = path.clone();
                tokio::task::spawn_blocking(move || Ok(tables_left(&path)?)).await?
            }
        }
    }

    /// The schema, or the prefix, of the plain tables.
    pub(super) fn plain_schema(&self) -> String {
        format!("{}_limit", self.schema)
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self.place {
            Place::Postgres { .. } => "postgres",
            Place::SqlServer { .. } => "sqlserver",
            Place::Memory | Place::File { .. } => "sqlite",
        }
    }

    /// PostgreSQL, when it is that.
    pub(super) fn plain(&self) -> Option<&Postgres> {
        match &self.place {
            Place::Postgres { plain, .. } => Some(plain),
            Place::Memory | Place::File { .. } | Place::SqlServer { .. } => None,
        }
    }

    /// Whether other processes could be at it too.
    pub(super) fn is_on_a_server(&self) -> bool {
        matches!(self.place, Place::Postgres { .. } | Place::SqlServer { .. })
    }

    /// Makes an empty outbox.
    pub(super) async fn stage(&self) -> anyhow::Result<Stage> {
        let provider = self.connect().await?;
        if let Some(plain) = self.plain() {
            let client = plain.pool().get().await.context("PostgreSQL can't be reached")?;
            // Without `if not exists`: what is there is somebody else's.
            client.batch_execute(&format!("create schema \"{}\"", self.schema)).await?;
        }
        if let Place::SqlServer { server, .. } = &self.place {
            let create = format!("CREATE SCHEMA \"{}\"", self.schema);
            batch(&mut server.client().await?, &create).await?;
        }
        provider.schema().deploy().await.context("the scratch schema can't be made")?;
        Ok(Stage { outbox: Outbox::new(provider.outbox()), provider })
    }

    /// The provider of a stage once more, with other connections.
    pub(super) async fn connect(&self) -> anyhow::Result<Arc<dyn Provider>> {
        let names = Names::default().with_schema(&self.schema)?;
        Ok(match &self.place {
            Place::Postgres { url, .. } => {
                // As the limits do.
                let settings = Postgres::builder(url).names(names).pool_size(POOL).prepared_statements(true);
                Arc::new(connect(settings).await?)
            }
            Place::SqlServer { .. } => Arc::new(self.connect_sqlserver().await?),
            Place::Memory => Database::SqliteMemory.open(names, IfMissing::Create).await?,
            Place::File { path, .. } => {
                Database::SqliteFile(path.clone()).open(names, IfMissing::Create).await?
            }
        })
    }

    /// The same where it is a SQL Server.
    pub(super) async fn connect_sqlserver(&self) -> anyhow::Result<SqlServer> {
        let Place::SqlServer { url, .. } = &self.place else { anyhow::bail!("not on SQL Server") };
        connect_sqlserver(url, Names::default().with_schema(&self.schema)?, POOL).await
    }

    /// Removes a stage.
    pub(super) async fn clear(&self, stage: Stage) -> anyhow::Result<()> {
        stage.provider.close().await;
        self.drop_all(&self.schema).await
    }

    /// Removes everything that was made.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        let removed = match self.drop_all(&self.plain_schema()).await {
            Ok(()) => self.drop_all(&self.schema).await,
            failed => failed,
        };
        if let Some(plain) = self.plain() {
            plain.close().await;
        }
        if let Place::SqlServer { server, .. } = &self.place {
            server.close().await;
        }
        removed
    }

    async fn drop_all(&self, schema: &str) -> anyhow::Result<()> {
        let failed = || {
            format!(
                "the scratch schema {schema} could not be removed from {}; remove it by hand",
                self.location
            )
        };
        match &self.place {
            Place::Postgres { plain, .. } => drop_schema(plain, schema).await.with_context(failed),
            Place::SqlServer { server, .. } => schema::remove(server, schema).await.with_context(failed),
            Place::Memory => Ok(()),
            Place::File { path, .. } => {
                let (path, prefix) = (path.clone(), schema.to_owned());
                let drop = tokio::task::spawn_blocking(move || drop_tables(&path, &prefix));
                drop.await?.with_context(failed)
            }
        }
    }
}

async fn drop_schema(plain: &Postgres, schema: &str) -> anyhow::Result<()> {
    let drop = format!("drop schema if exists \"{schema}\" cascade");
    let mut tries = 0;
    loop {
        let client = plain.pool().get().await?;
        match client.batch_execute(&drop).await {
            Ok(()) => return Ok(()),
            // A deadlock, for one, with a claim that is still under way.
            Err(_) if tries < REMOVALS => {
                tries += 1;
                tokio::time::sleep(LET_GO).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The tables and views of other measurements.
fn tables_left(path: &Path) -> rusqlite::Result<Vec<String>> {
    let connection = rusqlite::Connection::open(path)?;
    let list = "select name from sqlite_schema where type in ('view', 'table') and substr(name, 1, ?1) = ?2 order by name";
    let mut found = connection.prepare(list)?;
    let found = found.query_map(rusqlite::params![PREFIX.len() as i64, PREFIX], |row| row.get(0))?;
    found.collect()
}

/// Removes the tables and views whose names begin with the prefix; indexes and triggers go with them.
fn drop_tables(path: &Path, prefix: &str) -> rusqlite::Result<()> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    // Or the order of the tables would matter.
    connection.execute_batch("pragma foreign_keys = off")?;
    let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let list =
        "select type, name from sqlite_schema where type in ('view', 'table') and substr(name, 1, ?1) = ?2
                order by type desc";
    let found: Vec<(String, String)> = tx
        .prepare(list)?
        .query_map(rusqlite::params![prefix.len() as i64, prefix], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    for (kind, name) in found {
        tx.execute_batch(&format!("drop {kind} if exists \"{}\"", name.replace('"', "\"\"")))?;
    }
    tx.commit()
}
