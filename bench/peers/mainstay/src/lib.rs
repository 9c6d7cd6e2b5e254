//! What the programs about Mainstay alone have in common: an empty outbox in PostgreSQL, and ways to fill and to watch it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use load::Result;
use mainstay::postgres::Postgres;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, Outbox, RunningMainstay};

/// What dispatchers have a handler for.
pub const TOPIC: &str = "noop";

/// Messages per statement of [`Queue::fill`].
const CHUNK: u64 = 50_000;
/// Bytes of payloads per statement of [`Queue::fill`] at most: a server builds them in memory.
const CHUNK_BYTES: u64 = 64 << 20;

/// An outbox in PostgreSQL.
#[derive(Clone)]
pub struct Queue {
    /// The provider.
    pub postgres: Postgres,
    /// The application's handle.
    pub outbox: Outbox,
}

impl Queue {
    /// Connects, and deploys the schema if need be.
    pub async fn open(url: &str, connections: usize) -> Result<Self> {
        let postgres = Postgres::builder(url).pool_size(connections).connect().await?;
        postgres.schema().deploy().await?;
        Ok(Self { outbox: Outbox::new(postgres.outbox()), postgres })
    }

    /// Runs statements that answer nothing.
    pub async fn execute(&self, sql: &str) -> Result<()> {
        let client = self.postgres.pool().get().await.context("no connection")?;
        Ok(client.batch_execute(sql).await?)
    }

    /// Runs a statement that answers one row of numbers.
    pub async fn numbers<const N: usize>(&self, sql: &str) -> Result<[i64; N]> {
        let client = self.postgres.pool().get().await.context("no connection")?;
        let row = client.query_one(sql, &[]).await?;
        Ok(std::array::from_fn(|column| row.get::<_, Option<i64>>(column).unwrap_or(0)))
    }

    /// Adds messages by the public function, their payloads made by the server.
    pub async fn fill(&self, messages: u64, payload: u64) -> Result<()> {
        let chunk = CHUNK.min((CHUNK_BYTES / payload.max(1)).max(1));
        let mut left = messages;
        while left > 0 {
            let size = left.min(chunk);
            // Texts that don't compress, as a real payload of this size would not by much.
            let fill = format!(
                "with body as materialized (
                     select left(string_agg(md5(random()::text), ''), {payload}) as text
                       from generate_series(0, {payload} / 32))
                 select count(*) from infra.outbox_enqueue_many(null, null,
                     array_fill('{TOPIC}'::text, array[{size}]),
                     array_fill((select text from body), array[{size}]))"
            );
            let [_added] = self.numbers(&fill).await?;
            left -= size;
        }
        Ok(())
    }

    /// Brings the database to rest.
    pub async fn settle_down(&self) -> Result<()> {
        self.execute("vacuum analyze").await?;
        self.execute("checkpoint").await
    }

    /// Removes all messages.
    pub async fn clear(&self) -> Result<()> {
        self.execute("drop schema infra cascade").await?;
        self.postgres.schema().deploy().await?;
        Ok(())
    }

    /// Starts a dispatcher whose handler only counts.
    pub async fn start(&self) -> Result<RunningMainstay> {
        let provider: Arc<dyn Provider> = Arc::new(self.postgres.clone());
        let mainstay = Mainstay::builder_over(provider)
            .outbox(|outbox| {
                outbox.raw_handler(TOPIC, async |_: Context| load::handled(-1)).options(|options| {
                    options.concurrency = 64;
                    options.batch = 1_000;
                    options.prefetch = 2_000;
                })
            })
            .build()?;
        Ok(mainstay.start().await?)
    }

    /// Waits until no message is open.
    pub async fn until_empty(&self) -> Result<()> {
        while self.outbox.backlog().await?.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }
}
