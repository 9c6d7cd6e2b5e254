//! A place of the benchmark's own in the database, and its removal.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use mainstay::postgres::Postgres;
use mainstay::store::{Names, Provider};
use tempfile::TempDir;
use uuid::Uuid;

use crate::database::{Database, IfMissing, connect_postgres};

/// Connections to PostgreSQL: one per caller, and some for the dispatcher.
const POOL: usize = 24;

/// A schema, or on SQLite a prefix, that nobody else uses.
pub(crate) struct Scratch {
    pub(crate) provider: Arc<dyn Provider>,
    pub(crate) location: String,
    schema: String,
    place: Place,
}

enum Place {
    /// Gone with the folder.
    Temporary {
        _folder: TempDir,
    },
    /// Gone with the process.
    Memory,
    File(PathBuf),
    Postgres(Postgres),
}

impl Scratch {
    /// Makes a place of its own in the database, or in a temporary SQLite file.
    pub(crate) async fn make(database: Option<Database>) -> anyhow::Result<Self> {
        let schema = format!("mainstay_bench_{:08x}", Uuid::new_v4().as_fields().0);
        let names = Names::default().with_schema(&schema)?;
        let (provider, location, place): (Arc<dyn Provider>, _, _) = match database {
            Some(Database::Postgres(url)) => {
                let postgres = connect_postgres(&url, names, POOL).await?;
                let location = Database::Postgres(url).to_string();
                (Arc::new(postgres.clone()), location, Place::Postgres(postgres))
            }
            Some(database @ Database::SqliteMemory) => {
                (database.open(names, IfMissing::Create).await?, database.to_string(), Place::Memory)
            }
            Some(Database::SqliteFile(path)) => {
                let database = Database::SqliteFile(path.clone());
                // Only the user's own database is of interest; a mistyped path is not.
                (database.open(names, IfMissing::Refuse).await?, database.to_string(), Place::File(path))
            }
            None => {
                let folder = tempfile::Builder::new().prefix("mainstay-bench-").tempdir();
                let folder = folder.context("no temporary folder can be made")?;
                let database = Database::SqliteFile(folder.path().join("bench.db"));
                let provider = database.open(names, IfMissing::Create).await?;
                (provider, "a temporary SQLite file".to_owned(), Place::Temporary { _folder: folder })
            }
        };
        Ok(Self { provider, location, schema, place })
    }

    /// What a person would have to remove if this process were killed.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Removes everything that was made.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        let failed = || {
            format!(
                "the scratch schema {} could not be removed from {}; remove it by hand",
                self.schema, self.location
            )
        };
        if let Place::Postgres(postgres) = &self.place {
            let drop = format!("drop schema if exists \"{}\" cascade", self.schema);
            let client = postgres.pool().get().await.with_context(failed)?;
            client.batch_execute(&drop).await.with_context(failed)?;
        }
        self.provider.close().await;
        if let Place::File(path) = &self.place {
            let (path, schema) = (path.clone(), self.schema.clone());
            let drop = tokio::task::spawn_blocking(move || drop_tables(&path, &schema));
            drop.await?.with_context(failed)?;
        }
        Ok(())
    }
}

/// Removes the tables and views whose names begin with the prefix; indexes and triggers go with them.
fn drop_tables(path: &Path, prefix: &str) -> rusqlite::Result<()> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
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
