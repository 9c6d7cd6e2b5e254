//! The work through apalis.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use apalis::prelude::{BackendExt as _, BoxDynError, TaskBuilder, WorkerBuilder, WorkerBuilderExt as _};
use apalis_postgres::{Config, PostgresStorage};
use load::{Aim, Peer, Request, Result};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

const QUEUE: &str = "bench";
const CONNECTIONS: u32 = 24;

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Job {
    id: i64,
    d: String,
}

async fn handle(job: Job) -> Result<(), BoxDynError> {
    load::handled(job.id);
    Ok(())
}

#[derive(Clone)]
struct Apalis {
    pool: PgPool,
    filling: Arc<str>,
    workers: usize,
}

impl Peer for Apalis {
    const NAME: &'static str = "apalis";
    const VERSION: &'static str = "1.0.0";
    const BULK: u64 = 5_000;
    type Workers = JoinSet<()>;

    async fn connect(request: &Request) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&request.database).await?;
        PostgresStorage::setup(&pool).await?;
        Ok(Self { pool, filling: request.filling().into(), workers: request.workers.unwrap_or(2) })
    }

    async fn enqueue(&self, id: i64) -> Result<()> {
        self.enqueue_many(id..id + 1).await
    }

    async fn enqueue_many(&self, ids: Range<i64>) -> Result<()> {
        let task = |id| {
            let job = Job { id, d: self.filling.to_string() };
            Ok(TaskBuilder::new(serde_json::to_vec(&job)?).build())
        };
        let tasks = ids.map(task).collect::<Result<Vec<_>>>()?;
        let mut connection = self.pool.acquire().await?;
        apalis_postgres::queries::push_tasks(&mut *connection, QUEUE, tasks).await?;
        Ok(())
    }

    async fn start(&self, aim: Aim) -> Result<JoinSet<()>> {
        let mut running = JoinSet::new();
        match aim {
            Aim::Throughput => {
                for number in 0..self.workers {
                    let config = Config::default().queue(QUEUE).batch_size(500).lock_tasks(false);
                    let backend = PostgresStorage::<Job>::new(&self.pool)
                        .with_config(config)
                        .poll_with_interval(Duration::from_millis(10));
                    running.spawn(async move {
                        let worker =
                            WorkerBuilder::new(format!("worker-{number}")).backend(backend).concurrency(100);
                        if let Err(error) = worker.build(handle).run().await {
                            eprintln!("the worker ended: {error}");
                        }
                    });
                }
            }
            Aim::Latency => {
                let config = Config::default().queue(QUEUE).batch_size(10);
                let backend = PostgresStorage::<Job>::new(&self.pool).with_config(config).with_pubsub();
                running.spawn(async move {
                    let worker = WorkerBuilder::new("worker").backend(backend).concurrency(10);
                    if let Err(error) = worker.build(handle).run().await {
                        eprintln!("the worker ended: {error}");
                    }
                });
            }
        }
        Ok(running)
    }

    async fn unsettled(&self) -> Result<u64> {
        let count = "select count(*) from apalis.jobs where status <> 'Done'";
        let (count,): (i64,) = sqlx::query_as(count).fetch_one(&self.pool).await?;
        Ok(count.unsigned_abs())
    }

    async fn settle_down(&self) -> Result<()> {
        for statement in ["vacuum analyze", "checkpoint"] {
            sqlx::query(statement).execute(&self.pool).await?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    load::main::<Apalis>()
}
