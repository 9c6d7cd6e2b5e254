//! The work through Mainstay, on PostgreSQL or SQLite.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use load::{Aim, Peer, Request, Result};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, Message, Outbox, RunningMainstay};

const TOPIC: &str = "noop";
/// As many as the others have: callers and dispatchers share them.
const CONNECTIONS: usize = 32;

#[derive(Clone)]
struct Program {
    provider: Arc<dyn Provider>,
    /// The same again, when it is PostgreSQL.
    postgres: Option<Postgres>,
    outbox: Outbox,
    filling: Arc<str>,
    workers: usize,
}

impl Program {
    fn message(&self, id: i64) -> Message {
        // The number first: the handler reads it without a parser's help.
        Message::new(TOPIC, format!(r#"{{"id":{id},"d":"{}"}}"#, self.filling))
    }
}

async fn handle(context: Context) {
    let digits = context.payload().strip_prefix(r#"{"id":"#).and_then(|rest| rest.split(',').next());
    load::handled(digits.and_then(|digits| digits.parse().ok()).unwrap_or(-1));
}

impl Peer for Program {
    const NAME: &'static str = "mainstay";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");
    const BULK: u64 = 5_000;
    type Workers = Vec<RunningMainstay>;

    async fn connect(request: &Request) -> Result<Self> {
        let (provider, postgres): (Arc<dyn Provider>, _) = match request.database.strip_prefix("sqlite:") {
            Some(path) => (Arc::new(Sqlite::builder(path).open().await?), None),
            None => {
                let connected = Postgres::builder(&request.database).pool_size(CONNECTIONS).connect().await?;
                (Arc::new(connected.clone()), Some(connected))
            }
        };
        provider.schema().deploy().await?;
        let outbox = Outbox::new(provider.outbox());
        let workers = request.workers.unwrap_or(2);
        Ok(Self { provider, postgres, outbox, filling: request.filling().into(), workers })
    }

    async fn enqueue(&self, id: i64) -> Result<()> {
        self.outbox.enqueue(self.message(id)).await?;
        Ok(())
    }

    async fn enqueue_many(&self, ids: Range<i64>) -> Result<()> {
        self.outbox.enqueue_many(ids.map(|id| self.message(id)).collect()).await?;
        Ok(())
    }

    async fn start(&self, aim: Aim) -> Result<Vec<RunningMainstay>> {
        let workers = if aim == Aim::Throughput { self.workers } else { 1 };
        let mut running = Vec::new();
        for _ in 0..workers {
            let mainstay = Mainstay::builder_over(Arc::clone(&self.provider))
                .outbox(|outbox| {
                    let outbox = outbox.raw_handler(TOPIC, handle);
                    match aim {
                        Aim::Throughput => outbox.options(|options| {
                            options.concurrency = 64;
                            options.batch = 1_000;
                            options.prefetch = 2_000;
                        }),
                        Aim::Latency => outbox,
                    }
                })
                .build()?;
            running.push(mainstay.start().await?);
        }
        Ok(running)
    }

    async fn unsettled(&self) -> Result<u64> {
        Ok(self.outbox.backlog().await?.open())
    }

    async fn settle_down(&self) -> Result<()> {
        let Some(postgres) = &self.postgres else { return Ok(()) };
        let client = postgres.pool().get().await.context("no connection")?;
        for statement in ["vacuum analyze", "checkpoint"] {
            client.batch_execute(statement).await?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    load::main::<Program>()
}
