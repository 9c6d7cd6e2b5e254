//! The work through awa.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use awa::{
    Client, InsertOpts, JobArgs, JobContext, JobError, JobResult, QueueConfig, QueueStorage,
    QueueStorageConfig, Worker,
};
use load::{Aim, Peer, Request, Result};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

const QUEUE: &str = "bench";
const CONNECTIONS: u32 = 24;

#[derive(Debug, Serialize, Deserialize, JobArgs)]
struct BenchJob {
    id: i64,
    d: String,
}

struct Handler;

#[async_trait]
impl Worker for Handler {
    fn kind(&self) -> &'static str {
        "bench_job"
    }

    async fn perform(&self, context: &JobContext) -> Result<JobResult, JobError> {
        load::handled(context.job.args["id"].as_i64().unwrap_or(-1));
        Ok(JobResult::Completed)
    }
}

#[derive(Clone)]
struct Awa {
    pool: PgPool,
    storage: Arc<QueueStorage>,
    filling: Arc<str>,
}

impl Awa {
    fn job(&self, id: i64) -> BenchJob {
        BenchJob { id, d: self.filling.to_string() }
    }
}

fn options() -> InsertOpts {
    InsertOpts { queue: QUEUE.into(), ..Default::default() }
}

impl Peer for Awa {
    const NAME: &'static str = "awa";
    const VERSION: &'static str = "0.6.9";
    const BULK: u64 = 1_000;
    type Workers = Client;

    async fn connect(request: &Request) -> Result<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(&request.database).await?;
        awa::migrations::run(&pool).await?;
        let storage = QueueStorage::new(QueueStorageConfig::default())?;
        storage.install(&pool).await?;
        storage.reset(&pool).await?;
        Ok(Self { pool, storage: Arc::new(storage), filling: request.filling().into() })
    }

    async fn enqueue(&self, id: i64) -> Result<()> {
        awa::insert_with(&self.pool, &self.job(id), options()).await?;
        Ok(())
    }

    async fn enqueue_many(&self, ids: Range<i64>) -> Result<()> {
        let jobs = ids.map(|id| awa::model::insert::params_with(&self.job(id), options()));
        // The fastest of its three ways.
        self.storage.enqueue_params_copy(&self.pool, &jobs.collect::<Result<Vec<_>, _>>()?).await?;
        Ok(())
    }

    async fn start(&self, aim: Aim) -> Result<Client> {
        let (max_workers, claimers) = if aim == Aim::Throughput { (512, 2) } else { (50, 1) };
        let queue = QueueConfig {
            max_workers,
            claimers,
            claim_batch_size: 512,
            poll_interval: Duration::from_millis(50),
            deadline_duration: Duration::ZERO,
            ..QueueConfig::default()
        };
        let client = Client::builder(self.pool.clone())
            .queue(QUEUE, queue)
            .queue_storage(
                QueueStorageConfig::default(),
                Duration::from_millis(1_000),
                Duration::from_millis(50),
            )
            .register_worker(Handler)
            .build()?;
        client.start().await?;
        Ok(client)
    }

    async fn unsettled(&self) -> Result<u64> {
        let counts = self.storage.queue_counts(&self.pool, QUEUE).await?;
        Ok((counts.available + counts.running).unsigned_abs())
    }

    async fn settle_down(&self) -> Result<()> {
        for statement in ["vacuum analyze", "checkpoint"] {
            sqlx::query(statement).execute(&self.pool).await?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    load::main::<Awa>()
}
