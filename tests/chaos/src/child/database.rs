//! The database that a process works on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use tokio_postgres::NoTls;

/// Connections of a provider's pool.
pub(crate) const POOL: usize = 4;

/// The tables beside Mainstay's own. In types that both databases have.
const TABLES: &str = "
create table if not exists chaos_effect (id text not null);
create index if not exists chaos_effect_id on chaos_effect (id);
create table if not exists chaos_business (id text not null);
create table if not exists chaos_received (source text not null, id text not null);
";

/// A database by its URL: `sqlite:path` or `postgres://…`.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    url: String,
}

impl Database {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    /// The path, if it is SQLite.
    pub(crate) fn sqlite(&self) -> Option<&str> {
        self.url.strip_prefix("sqlite:")
    }

    /// Connects as the library does.
    pub(crate) async fn provider(&self) -> mainstay::Result<Arc<dyn Provider>> {
        match self.sqlite() {
            Some(path) => Ok(Arc::new(Sqlite::open(path).await?)),
            None => Ok(Arc::new(Postgres::builder(&self.url).pool_size(POOL).connect().await?)),
        }
    }

    /// The same again and again until it succeeds: a server may be down for a while.
    pub(crate) async fn provider_at_last(&self) -> Arc<dyn Provider> {
        loop {
            match self.provider().await {
                Ok(provider) => return provider,
                Err(error) => eprintln!("cannot open the database: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Connects as an application's own driver does.
    pub(crate) async fn client(&self) -> Result<tokio_postgres::Client> {
        let mut config: tokio_postgres::Config = self.url.parse().context("the URL of the database")?;
        config.connect_timeout(Duration::from_secs(10));
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Opens the SQLite file as an application's own driver does.
    pub(crate) fn connection(&self) -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(self.sqlite().context("not SQLite")?)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    /// Deploys the schema, and the tables of the processes.
    pub(crate) async fn set_up(&self) -> Result<()> {
        let provider = self.provider().await?;
        provider.schema().deploy().await?;
        provider.close().await;
        match self.sqlite() {
            Some(_) => {
                let guarded = "create table if not exists chaos_guarded
                    (n integer primary key autoincrement, name text, epoch integer, value text)";
                let connection = self.connection()?;
                connection.execute_batch(TABLES)?;
                connection.execute_batch(guarded)?;
            }
            None => {
                let guarded = "create table if not exists chaos_guarded
                    (n bigint generated always as identity, name text, epoch bigint, value text)";
                let client = self.client().await?;
                client.batch_execute(TABLES).await?;
                client.batch_execute(guarded).await?;
            }
        }
        Ok(())
    }
}
