//! The bare limit: plain statements on plain tables, the same work as the outbox's without what an outbox is for.
//!
//! Rows are of the size of a message: a number as the key and a text of 200 bytes. Nothing here goes through Mainstay,
//! except that connections to a server are made as it makes them.

mod latency;
mod postgres;
mod sqlite;
mod sqlserver;

use std::time::Duration;

use super::scratch::Place;
use super::{PAYLOAD_BYTES, Plan, Progress, Scratch};
use postgres::PostgresLimits;
use sqlite::SqliteLimits;
pub(super) use sqlite::{lock, open as open_sqlite};
use sqlserver::SqlServerLimits;
pub(super) use sqlserver::batch;

/// The plain tables of a database.
pub(super) enum Limits {
    Postgres(PostgresLimits),
    Sqlite(SqliteLimits),
    SqlServer(SqlServerLimits),
}

/// Rows that are claimed, and settled, at once.
const CLAIM_BATCH: i64 = 500;
/// Connections that claim: the best number on small machines, and no worse on large ones.
const CLAIMERS: usize = 2;
/// Rows that share a commit at most.
const SHARED_MOST: usize = 1_000;

fn body() -> String {
    "x".repeat(PAYLOAD_BYTES)
}

impl Limits {
    /// Makes the plain tables.
    pub(super) async fn make(scratch: &Scratch) -> anyhow::Result<Self> {
        let schema = scratch.plain_schema();
        Ok(match &scratch.place {
            Place::Postgres { url, plain } => {
                Self::Postgres(PostgresLimits::make(plain.clone(), url.clone(), schema).await?)
            }
            Place::SqlServer { server, .. } => {
                Self::SqlServer(SqlServerLimits::make(server.clone(), schema).await?)
            }
            Place::Memory => Self::Sqlite(SqliteLimits::make(None, schema)?),
            Place::File { path, .. } => Self::Sqlite(SqliteLimits::make(Some(path), schema)?),
        })
    }

    /// Rows a second, a commit for each, from so many connections (on SQLite callers of the one that writes).
    pub(super) async fn insert(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        connections: usize,
    ) -> anyhow::Result<f64> {
        match self {
            Self::Postgres(limits) => limits.insert(progress, title, time, connections, false).await,
            Self::SqlServer(limits) => limits.insert(progress, title, time, connections, false).await,
            Self::Sqlite(limits) => limits.insert(progress, title, time, connections, 1).await,
        }
    }

    /// The same, each in a transaction that is begun and committed by statements of its own.
    pub(super) async fn insert_in_tx(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        connections: usize,
    ) -> anyhow::Result<f64> {
        match self {
            Self::Postgres(limits) => limits.insert(progress, title, time, connections, true).await,
            Self::SqlServer(limits) => limits.insert(progress, title, time, connections, true).await,
            Self::Sqlite(limits) => limits.insert(progress, title, time, connections, 1).await,
        }
    }

    /// Rows a second when what arrives while one commit is under way shares the next.
    pub(super) async fn shared_commit(
        &self,
        progress: &mut Progress,
        title: &str,
        time: Duration,
        callers: usize,
    ) -> anyhow::Result<f64> {
        match self {
            Self::Postgres(limits) => limits.shared_commit(progress, title, time, callers).await,
            Self::SqlServer(limits) => limits.shared_commit(progress, title, time, callers).await,
            Self::Sqlite(limits) => limits.insert(progress, title, time, 1, callers as u64).await,
        }
    }

    /// Rows a second by the database's own bulk insert.
    pub(super) async fn copy(
        &self,
        progress: &mut Progress,
        title: &str,
        plan: &Plan,
    ) -> anyhow::Result<f64> {
        match self {
            Self::Postgres(limits) => limits.copy(progress, title, plan.messages).await,
            Self::SqlServer(limits) => limits.copy(progress, title, plan.messages).await,
            Self::Sqlite(limits) => limits.insert(progress, title, plan.time, 1, super::BULK).await,
        }
    }

    /// Rows a second that are claimed and settled by updates.
    pub(super) async fn claim_settle(
        &self,
        progress: &mut Progress,
        title: &str,
        plan: &Plan,
    ) -> anyhow::Result<f64> {
        match self {
            Self::Postgres(limits) => limits.claim_settle(progress, title, plan.messages).await,
            Self::SqlServer(limits) => limits.claim_settle(progress, title, plan.messages).await,
            Self::Sqlite(limits) => limits.claim_settle(progress, title, plan.messages).await,
        }
    }

    /// From just before an insert with a notification to the reader that has the row: p50 and p99 in milliseconds. None where
    /// there are no notifications, or where the server only talks to clients that can do more than this one.
    pub(super) async fn latency(
        &self,
        progress: &mut Progress,
        title: &str,
        plan: &Plan,
    ) -> anyhow::Result<Option<(f64, f64)>> {
        match self {
            Self::Postgres(limits) => latency::measure(limits, progress, title, plan).await,
            Self::Sqlite(_) | Self::SqlServer(_) => Ok(None),
        }
    }
}
