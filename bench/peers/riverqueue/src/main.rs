//! The work through riverqueue, on PostgreSQL or SQLite.

use std::ops::Range;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use load::{Aim, Peer, Request, Result};
use riverqueue::migrate::{PostgresMigrator, SqliteMigrator};
use riverqueue::{
    BoxError, Client, InsertOpts, Job, JobArgs, QueueConfig, RunHandle, WorkContext, WorkOutcome, Workers,
};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};

const CONNECTIONS: u32 = 30;

#[derive(Clone, Debug, Deserialize, JobArgs, Serialize)]
#[river(kind = "noop")]
struct Noop {
    id: i64,
    d: String,
}

async fn handle(_context: WorkContext, job: Job<Noop>) -> Result<WorkOutcome, BoxError> {
    load::handled(job.args.id);
    Ok(WorkOutcome::Complete)
}

#[derive(Clone)]
enum Database {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

#[derive(Clone)]
struct River {
    database: Database,
    client: Client,
    filling: Arc<str>,
}

impl River {
    fn job(&self, id: i64) -> Noop {
        Noop { id, d: self.filling.to_string() }
    }
}

/// As durable as Mainstay on SQLite is.
async fn open_sqlite(url: &str) -> Result<SqlitePool> {
    let options = SqliteConnectOptions::from_str(url)?
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30));
    // One connection is best: SQLite has one writer, and several only wait for each other.
    Ok(SqlitePoolOptions::new().max_connections(1).connect_with(options).await?)
}

impl Peer for River {
    const NAME: &'static str = "riverqueue";
    const VERSION: &'static str = "0.5.0";
    const BULK: u64 = 5_000;
    type Workers = RunHandle;

    async fn connect(request: &Request) -> Result<Self> {
        let filling = request.filling().into();
        if request.database.starts_with("sqlite:") {
            let pool = open_sqlite(&request.database).await?;
            SqliteMigrator::new(pool.clone()).migrate_up().await?;
            let client = Client::builder(pool.clone()).build()?;
            return Ok(Self { database: Database::Sqlite(pool), client, filling });
        }
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&request.database).await?;
        PostgresMigrator::new(pool.clone()).migrate_up().await?;
        let client = Client::builder(pool.clone()).build()?;
        Ok(Self { database: Database::Postgres(pool), client, filling })
    }

    async fn enqueue(&self, id: i64) -> Result<()> {
        self.client.insert(self.job(id)).await?;
        Ok(())
    }

    async fn enqueue_many(&self, ids: Range<i64>) -> Result<()> {
        let jobs: Vec<_> = ids.map(|id| (self.job(id), InsertOpts::default())).collect();
        self.client.insert_many(jobs).await?;
        Ok(())
    }

    async fn start(&self, aim: Aim) -> Result<RunHandle> {
        let mut workers = Workers::new();
        workers.add_fn(handle)?;
        // The shortest pause between fetches is the best for both; the number of workers is also the batch.
        let (workers_at_once, cooldown) = match aim {
            Aim::Throughput => (1_000, Duration::from_millis(1)),
            Aim::Latency => (50, Duration::from_millis(1)),
        };
        let queue = QueueConfig::new(workers_at_once)
            .with_fetch_cooldown(cooldown)
            .with_fetch_poll_interval(Duration::from_millis(20));
        let builder = match &self.database {
            Database::Postgres(pool) => Client::builder(pool.clone()),
            Database::Sqlite(pool) => Client::builder(pool.clone()),
        };
        Ok(builder.workers(workers).queue("default", queue).build()?.start()?)
    }

    async fn unsettled(&self) -> Result<u64> {
        let count = "select count(*) from river_job where state <> 'completed'";
        let (count,): (i64,) = match &self.database {
            Database::Postgres(pool) => sqlx::query_as(count).fetch_one(pool).await?,
            Database::Sqlite(pool) => sqlx::query_as(count).fetch_one(pool).await?,
        };
        Ok(count.unsigned_abs())
    }

    async fn settle_down(&self) -> Result<()> {
        match &self.database {
            Database::Postgres(pool) => {
                for statement in ["vacuum analyze", "checkpoint"] {
                    sqlx::query(statement).execute(pool).await?;
                }
            }
            Database::Sqlite(pool) => {
                sqlx::query("pragma wal_checkpoint(truncate)").execute(pool).await?;
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    load::main::<River>()
}
