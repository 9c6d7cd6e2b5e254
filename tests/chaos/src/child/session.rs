//! Connections of the application's own, by the driver of each database.

use anyhow::{Context as _, Result};
use mainstay::sqlserver::{Client, tiberius};
use tiberius::{ColumnData, Row};

use super::trouble::DriverError;

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
    /// SQL Server, or Babelfish.
    SqlServer,
}

/// Statements in the SQL of each database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dialects {
    pub(crate) postgres: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) sql_server: &'static str,
}

impl Dialects {
    /// Statements that all databases take as they are.
    pub(crate) const fn same(sql: &'static str) -> Self {
        Self { postgres: sql, sqlite: sql, sql_server: sql }
    }

    /// The statements for one of them.
    pub(crate) const fn of(self, engine: Engine) -> &'static str {
        match engine {
            Engine::Postgres => self.postgres,
            Engine::Sqlite => self.sqlite,
            Engine::SqlServer => self.sql_server,
        }
    }
}

/// A connection. Drop it when a call on it failed or was not awaited to its end.
pub(crate) enum Session {
    Postgres(tokio_postgres::Client),
    Sqlite(rusqlite::Connection),
    SqlServer(Box<Client>),
}

impl Session {
    /// Runs statements and ignores their answers.
    pub(crate) async fn execute(&mut self, sql: &str) -> Result<(), DriverError> {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await?,
            Self::Sqlite(connection) => tokio::task::block_in_place(|| connection.execute_batch(sql))?,
            Self::SqlServer(client) => drop(client.simple_query(sql).await?.into_results().await?),
        }
        Ok(())
    }

    /// Returns the rows of a query for a text and a number.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Vec<(String, i64)>> {
        match self {
            Self::Postgres(client) => {
                let rows = client.query_typed(sql, &[]).await?;
                rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
            }
            Self::Sqlite(connection) => tokio::task::block_in_place(|| {
                let mut select = connection.prepare(sql)?;
                let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                Ok(rows.collect::<rusqlite::Result<_>>()?)
            }),
            Self::SqlServer(client) => {
                let rows = client.simple_query(sql).await?.into_first_result().await?;
                rows.iter().map(text_and_number).collect()
            }
        }
    }
}

fn text_and_number(row: &Row) -> Result<(String, i64)> {
    let text: &str = row.try_get(0)?.context("a row without its text")?;
    // Counts are `INT`.
    let number = match row.get_column_data(1)? {
        ColumnData::I32(number) => number.map(i64::from),
        ColumnData::I64(number) => *number,
        _ => None,
    };
    Ok((text.to_owned(), number.context("a row without its number")?))
}
