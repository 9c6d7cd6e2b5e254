//! The database that a process works on.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::sqlserver::{Client, SqlServer};
use mainstay::store::Provider;
use tokio_postgres::NoTls;

use super::session::{Dialects, Engine, Session};

/// Connections of a provider's pool.
pub(crate) const POOL: usize = 4;

/// The tables beside Mainstay's own.
const TABLES: Dialects = Dialects {
    postgres: "
create table if not exists chaos_effect (id text not null);
create index if not exists chaos_effect_id on chaos_effect (id);
create table if not exists chaos_business (id text not null);
create table if not exists chaos_received (source text not null, id text not null);
create table if not exists chaos_guarded
    (n bigint generated always as identity, name text, epoch bigint, value text, seen bigint);
",
    sqlite: "
create table if not exists chaos_effect (id text not null);
create index if not exists chaos_effect_id on chaos_effect (id);
create table if not exists chaos_business (id text not null);
create table if not exists chaos_received (source text not null, id text not null);
create table if not exists chaos_guarded
    (n integer primary key autoincrement, name text, epoch integer, value text, seen integer);
",
    sql_server: "
CREATE TABLE chaos_effect (id NVARCHAR(100) NOT NULL);
CREATE INDEX chaos_effect_id ON chaos_effect (id);
CREATE TABLE chaos_business (id NVARCHAR(100) NOT NULL);
CREATE TABLE chaos_received (source NVARCHAR(100) NOT NULL, id NVARCHAR(100) NOT NULL);
CREATE TABLE chaos_guarded
    (n BIGINT IDENTITY(1, 1) NOT NULL, name NVARCHAR(100) NOT NULL, epoch BIGINT NOT NULL,
     value NVARCHAR(100) NOT NULL, seen BIGINT NOT NULL);
",
};

/// A database by its URL: `sqlite:path`, `postgres://…` or `mssql://…`.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    url: String,
}

impl Database {
    pub(crate) fn new(url: &str) -> Self {
        Self { url: url.to_owned() }
    }

    /// Its kind.
    pub(crate) fn engine(&self) -> Engine {
        if self.path().is_some() {
            Engine::Sqlite
        } else if SqlServer::is_connection_string(&self.url) {
            Engine::SqlServer
        } else {
            Engine::Postgres
        }
    }

    /// The path of a SQLite file.
    fn path(&self) -> Option<&str> {
        self.url.strip_prefix("sqlite:")
    }

    /// Connects as the library does.
    pub(crate) async fn provider(&self) -> mainstay::Result<Arc<dyn Provider>> {
        Ok(match self.path() {
            Some(path) => Arc::new(Sqlite::open(path).await?),
            None if self.engine() == Engine::SqlServer => {
                Arc::new(SqlServer::builder(&self.url).pool_size(POOL).connect().await?)
            }
            None => Arc::new(Postgres::builder(&self.url).pool_size(POOL).connect().await?),
        })
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
    pub(crate) async fn session(&self) -> Result<Session> {
        Ok(match self.engine() {
            Engine::Postgres => Session::Postgres(self.client().await?),
            Engine::Sqlite => Session::Sqlite(self.connection()?),
            Engine::SqlServer => Session::SqlServer(Box::new(self.sql_server_client().await?)),
        })
    }

    /// Connects to PostgreSQL as an application's own driver does.
    pub(crate) async fn client(&self) -> Result<tokio_postgres::Client> {
        let mut config: tokio_postgres::Config = self.url.parse().context("the URL of the database")?;
        config.connect_timeout(Duration::from_secs(10));
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Opens the SQLite file as an application's own driver does.
    pub(crate) fn connection(&self) -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(self.path().context("not SQLite")?)?;
        connection.busy_timeout(Duration::from_secs(5))?;
        Ok(connection)
    }

    /// Connects to SQL Server as an application's own driver does.
    pub(crate) async fn sql_server_client(&self) -> Result<Client> {
        Ok(SqlServer::connect(&self.url).await?.client().await?)
    }

    /// Runs a query for rows of a text and a number, on a connection of its own.
    pub(crate) async fn rows(&self, query: Dialects) -> Result<Vec<(String, i64)>> {
        self.session().await?.rows(query.of(self.engine())).await
    }

    /// Deploys the schema, and the tables of the processes.
    pub(crate) async fn set_up(&self) -> Result<()> {
        let provider = self.provider().await?;
        provider.schema().deploy().await?;
        provider.close().await;
        self.session().await?.execute(TABLES.of(self.engine())).await?;
        Ok(())
    }
}
