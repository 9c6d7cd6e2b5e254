//! A database in which no message can be added: whoever tries stands still, in the middle of what it was doing.

use anyhow::Result;

use crate::client;

/// Nobody adds a message while this lasts.
pub enum Stall {
    /// A SQLite file, by its path.
    Sqlite(String),
    /// A transaction with a lock on the table, and the URL for looking.
    Postgres(tokio_postgres::Client, String),
}

impl Stall {
    /// Begins. Nobody may be adding messages yet.
    pub async fn begin(url: &str) -> Result<Self> {
        if let Some(path) = url.strip_prefix("sqlite:") {
            // It would take years to count these.
            let stall = "create table sand (grain integer);
                with recursive n(i) as (values (1) union all select i + 1 from n where i < 3000) insert into sand select i from n;
                create trigger stall before insert on infra_outbox begin
                    select count(*) from sand a, sand b, sand c, sand d, sand e;
                end";
            rusqlite::Connection::open(path)?.execute_batch(stall)?;
            return Ok(Self::Sqlite(path.to_owned()));
        }
        let client = client(url).await?;
        // Whoever only looks is let through, and so is whoever claims and finds nothing.
        client.batch_execute("begin; lock table infra.outbox in share mode").await?;
        Ok(Self::Postgres(client, url.to_owned()))
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
            Self::Postgres(_, url) => {
                let waiting = "select count(*) from pg_locks
                    where not granted and mode = 'RowExclusiveLock' and relation = 'infra.outbox'::regclass";
                Ok(client(url).await?.query_one(waiting, &[]).await?.get::<_, i64>(0) > 0)
            }
        }
    }

    /// Ends the sessions that stand still, as the server does when it finds that their clients are gone.
    pub async fn end_sessions(&self) -> Result<()> {
        let Self::Postgres(_, url) = self else { return Ok(()) };
        let end = "select pg_terminate_backend(pid) from pg_locks
            where not granted and mode = 'RowExclusiveLock' and relation = 'infra.outbox'::regclass";
        client(url).await?.batch_execute(end).await?;
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
            Self::Postgres(client, _) => client.batch_execute("commit").await?,
        }
        Ok(())
    }
}
