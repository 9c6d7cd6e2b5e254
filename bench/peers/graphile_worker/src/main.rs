//! The work through graphile_worker.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use graphile_worker::{
    Database, IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, RefetchDelayConfig, TaskHandler,
    WorkerContext, WorkerOptions, WorkerUtils,
};
use load::{Aim, Peer, Request, Result};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::task::JoinSet;

const SCHEMA: &str = "graphile_worker";
const CONNECTIONS: u32 = 40;

#[derive(Serialize, Deserialize)]
struct Job {
    id: i64,
    d: String,
}

impl TaskHandler for Job {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, _context: WorkerContext) -> impl IntoTaskHandlerResult {
        load::handled(self.id);
        Ok::<(), String>(())
    }
}

#[derive(Clone)]
struct Graphile {
    pool: PgPool,
    utils: Arc<WorkerUtils>,
    filling: Arc<str>,
    workers: usize,
}

impl Graphile {
    fn job(&self, id: i64) -> Job {
        Job { id, d: self.filling.to_string() }
    }
}

impl Peer for Graphile {
    const NAME: &'static str = "graphile_worker";
    const VERSION: &'static str = "0.14.1";
    const BULK: u64 = 5_000;
    type Workers = JoinSet<()>;

    async fn connect(request: &Request) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&request.database).await?;
        let utils = WorkerUtils::new(Database::from(pool.clone()), SCHEMA);
        utils.migrate().await?;
        // Two workers in a process drain faster than one.
        let workers = request.workers.unwrap_or(2);
        Ok(Self { pool, utils: Arc::new(utils), filling: request.filling().into(), workers })
    }

    async fn enqueue(&self, id: i64) -> Result<()> {
        self.utils.add_job(self.job(id), JobSpec::default()).await?;
        Ok(())
    }

    async fn enqueue_many(&self, ids: Range<i64>) -> Result<()> {
        let job = |id| {
            let payload = serde_json::to_value(self.job(id))?;
            Ok(RawJobSpec { identifier: Job::IDENTIFIER.into(), payload, spec: JobSpec::default() })
        };
        let jobs: Vec<_> = ids.map(job).collect::<Result<_>>()?;
        self.utils.add_raw_jobs(&jobs).await?;
        Ok(())
    }

    async fn start(&self, aim: Aim) -> Result<JoinSet<()>> {
        let mut running = JoinSet::new();
        let workers = if aim == Aim::Throughput { self.workers } else { 1 };
        for _ in 0..workers {
            let options = WorkerOptions::default().database(Database::from(self.pool.clone())).schema(SCHEMA);
            let options = match aim {
                // Batches in memory, completed together: many times the rate of its defaults.
                Aim::Throughput => options
                    .concurrency(24)
                    .complete_job_batch_delay(Duration::from_millis(5))
                    .local_queue(LocalQueueConfig::default().with_size(1_000).with_refetch_delay(
                        RefetchDelayConfig::default().with_duration(Duration::from_millis(10)),
                    )),
                // Without the local queue a notification is answered at once.
                Aim::Latency => options.concurrency(10).complete_job_batch_delay(Duration::from_millis(1)),
            };
            let worker = options.define_job::<Job>().init().await?;
            running.spawn(async move {
                if let Err(error) = worker.run().await {
                    eprintln!("the worker ended: {error}");
                }
            });
        }
        Ok(running)
    }

    async fn unsettled(&self) -> Result<u64> {
        let count = "select count(*) from graphile_worker._private_jobs";
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
    load::main::<Graphile>()
}
