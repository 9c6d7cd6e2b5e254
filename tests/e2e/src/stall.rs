//! A database in which no message can be added, or no step of a join counted: whoever tries stands still, in the middle of what
//! it was doing.

use anyhow::Result;

use crate::client;

/// Nobody adds a message, or counts a step, while this lasts.
pub enum Stall {
    /// A SQLite file, by its path.
    Sqlite(String),
    /// A transaction with a lock on the table, the URL for looking, and the table.
    Postgres(tokio_postgres::Client, String, &'static str),
}

impl Stall {
    /// Begins. Nobody may be adding messages yet.
    pub async fn begin(url: &str) -> Result<Self> {
        Self::of(url, "insert on infra_outbox", "infra.outbox").await
    }

    /// Begins for those who count steps of joins. Nobody may be at it yet.
    pub async fn begin_counting(url: &str) -> Result<Self> {
        Self::of(url, "update on infra_joins", "infra.joins_slot").await
    }

    async fn of(url: &str, event: &str, table: &'static str) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            // It would take years to count these.
            let stall = format!(
                "create table sand (grain integer);
                with recursive n(i) as (values (1) union all select i + 1 from n where i < 3000) insert into sand select i from n;
                create trigger stall before {event} begin
                    select count(*) from sand a, sand b, sand c, sand d, sand e;
                end"
            );
            rusqlite::Connection::open(path)?.execute_batch(&stall)?;
            return Ok(Self::Sqlite(path.to_owned()));
        }
        let client = client(url).await?;
        // Whoever only looks is let through, and so is whoever claims and finds nothing.
        client.batch_execute(&format!("begin; lock table {table} in share mode")).await?;
        Ok(Self::Postgres(client, url.to_owned(), table))
    }

    /// Whether somebody stands still.
    pub async fn is_reached(&self) -> Result<bool> {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path)?;
                // Nobody else writes for this long.
                connection.busy_timeout(std::time::Duration::from_secs(2))?;
                Ok(connection.execute_batch("begin immediate; rollback").is_err())
            }
            Self::Postgres(_, url, table) => {
                let waiting = format!(
                    "select count(*) from pg_locks
                    where not granted and mode = 'RowExclusiveLock' and relation = '{table}'::regclass"
                );
                Ok(client(url).await?.query_one(&waiting, &[]).await?.get::<_, i64>(0) > 0)
            }
        }
    }

    /// Ends the sessions that stand still, as the server does when it finds that their clients are gone.
    pub async fn end_sessions(&self) -> Result<()> {
        let Self::Postgres(_, url, table) = self else { return Ok(()) };
        let end = format!(
            "select pg_terminate_backend(pid) from pg_locks
            where not granted and mode = 'RowExclusiveLock' and relation = '{table}'::regclass"
        );
        client(url).await?.batch_execute(&end).await?;
        Ok(())
    }

    /// Lets everybody go on.
    pub async fn end(self) -> Result<()> {
        match self {
            Self::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path)?;
                connection.busy_timeout(std::time::Duration::from_secs(30))?;
                connection.execute_batch("drop trigger stall; drop table sand")?;
            }
            Self::Postgres(client, ..) => client.batch_execute("commit").await?,
        }
        Ok(())
    }
}
