//! Whether claims become slower while somebody holds a transaction open.
//!
//! `rot --database URL [--rate N] [--minutes N] [--quick]`: messages flow at the rate; first without a transaction held open,
//! then with one that holds back all cleaning up, then without it again. A line per stretch of time, then what came of it.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use load::{Percentiles, Result, percentiles};
use mainstay::queue::ClaimRequest;
use mainstay::{Message, OwnerToken};
use peer_mainstay::{Queue, TOPIC};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Calls of enqueue a second; the rate makes the number of messages per call.
const CALLS: u64 = 100;
/// Messages per claim at most.
const BATCH: u32 = 100;
const PAYLOAD: usize = 200;
/// How long a consumer waits when there is nothing to claim.
const PAUSE: Duration = Duration::from_millis(5);

fn main() -> ExitCode {
    let run = || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(std::env::args().skip(1)))
    };
    match run() {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("rot: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (mut url, mut rate, mut minutes, mut quick) = (None, 1_000_u64, 10.0_f64, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--database" => url = arguments.next(),
            "--rate" => rate = arguments.next().context("--rate takes a value")?.parse()?,
            "--minutes" => minutes = arguments.next().context("--minutes takes a value")?.parse()?,
            "--quick" => quick = true,
            _ => bail!("there is no option {argument:?}"),
        }
    }
    let (held, stretch) = if quick {
        (Duration::from_secs(15), Duration::from_secs(3))
    } else {
        (Duration::from_secs_f64(minutes * 60.0), Duration::from_secs(30))
    };
    let queue = Queue::open(&url.context("--database is missing")?, 8).await?;
    let flow = Flow::start(&queue, rate);
    println!("{rate} messages a second; one transaction is held open for {held:?}");

    // Connections and plans are made, and the first pages written.
    tokio::time::sleep(stretch / 3).await;
    flow.take().await;
    let before = flow.watch(&queue, "before", stretch).await?;
    let (end, holder) = hold(&queue).await?;
    let mut last = before;
    let started = Instant::now();
    while started.elapsed() < held {
        last =
            flow.watch(&queue, &format!("held {:>4.0} s", started.elapsed().as_secs_f64()), stretch).await?;
    }
    tell_tables(&queue).await?;
    drop(end);
    holder.await??;
    let after = flow.watch(&queue, "after", stretch).await?;
    println!(
        "a claim took p50 {:.2} ms, p99 {:.2} ms before; at the end of the held transaction {:.2} and {:.2} times that, \
         afterwards {:.2} and {:.2} times",
        before.p50,
        before.p99,
        last.p50 / before.p50,
        last.p99 / before.p99,
        after.p50 / before.p50,
        after.p99 / before.p99
    );
    Ok(())
}

/// A transaction with a snapshot and a number of its own, until it is told to end.
async fn hold(queue: &Queue) -> Result<(oneshot::Sender<()>, JoinHandle<Result<()>>)> {
    let client = queue.postgres.pool().get().await.context("no connection")?;
    client.batch_execute("begin isolation level repeatable read; select pg_current_xact_id()").await?;
    let (end, ended) = oneshot::channel();
    let holder = tokio::spawn(async move {
        // Told, or nobody is left to tell: either way it ends before the connection is anybody else's.
        let _told = ended.await;
        Ok(client.batch_execute("rollback").await?)
    });
    Ok((end, holder))
}

/// Messages that come and go.
struct Flow {
    /// Ends with this.
    _tasks: JoinSet<Result<()>>,
    claims: watch::Receiver<()>,
    times: Arc<std::sync::Mutex<Vec<f64>>>,
    handled: Arc<AtomicU64>,
}

impl Flow {
    fn start(queue: &Queue, rate: u64) -> Self {
        let mut tasks = JoinSet::new();
        let times = Arc::<std::sync::Mutex<Vec<f64>>>::default();
        let handled = Arc::new(AtomicU64::new(0));
        let (alive, claims) = watch::channel(());
        tasks.spawn(enqueue(queue.clone(), rate));
        tasks.spawn(consume(queue.clone(), Arc::clone(&times), Arc::clone(&handled), alive));
        Self { _tasks: tasks, claims, times, handled }
    }

    /// The times of the claims since the last call, in milliseconds.
    async fn take(&self) -> Vec<f64> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Looks on for a while and tells what it saw.
    async fn watch(&self, queue: &Queue, name: &str, stretch: Duration) -> Result<Percentiles> {
        self.take().await;
        let handled = self.handled.load(Ordering::Relaxed);
        tokio::time::sleep(stretch).await;
        if self.claims.has_changed().is_err() {
            bail!("the flow of messages broke off");
        }
        let claims = percentiles(self.take().await).context("nothing was claimed")?;
        let handled = self.handled.load(Ordering::Relaxed) - handled;
        let open = queue.outbox.backlog().await?.open();
        let [dead, size] = queue
            .numbers(
                "select sum(n_dead_tup)::bigint, sum(pg_total_relation_size(relid))::bigint
                   from pg_stat_user_tables where schemaname = 'infra' and relname not like '%history%'",
            )
            .await?;
        println!(
            "{name:<12} claim p50 {:>6.2} ms, p99 {:>7.2} ms; {:>6.0} handled/s, {open} open; \
             {dead} dead tuples, tables without history {:.1} MiB",
            claims.p50,
            claims.p99,
            handled as f64 / stretch.as_secs_f64(),
            size as f64 / f64::from(1 << 20)
        );
        Ok(claims)
    }
}

async fn enqueue(queue: Queue, rate: u64) -> Result<()> {
    let body = "x".repeat(PAYLOAD);
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / CALLS));
    // What was missed is made up for: the rate is kept.
    let mut sent = 0;
    for call in 1_u64.. {
        ticks.tick().await;
        let due = call * rate / CALLS;
        let messages: Vec<_> = (sent..due).map(|_| Message::new(TOPIC, body.clone())).collect();
        queue.outbox.enqueue_many(messages).await.inspect_err(|error| eprintln!("rot: {error}"))?;
        sent = due;
    }
    Ok(())
}

async fn consume(
    queue: Queue,
    times: Arc<std::sync::Mutex<Vec<f64>>>,
    handled: Arc<AtomicU64>,
    _alive: watch::Sender<()>,
) -> Result<()> {
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(BATCH);
    loop {
        let started = Instant::now();
        let batch = queue.outbox.claim(&request).await.inspect_err(|error| eprintln!("rot: {error}"))?;
        let took = started.elapsed().as_secs_f64() * 1e3;
        // An empty one counts too: it looks through what is left of those before it.
        times.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(took);
        let handles = batch.handles();
        if handles.is_empty() {
            tokio::time::sleep(PAUSE).await;
            continue;
        }
        queue.outbox.ack(owner, &handles).await.inspect_err(|error| eprintln!("rot: {error}"))?;
        handled.fetch_add(handles.len() as u64, Ordering::Relaxed);
    }
}

/// Size and rows of each table.
async fn tell_tables(queue: &Queue) -> Result<()> {
    let client = queue.postgres.pool().get().await.context("no connection")?;
    let tables = client
        .query(
            "select relname::text, pg_total_relation_size(relid), n_live_tup, n_dead_tup
               from pg_stat_user_tables where schemaname = 'infra' and n_tup_ins > 0 order by 2 desc",
            &[],
        )
        .await?;
    for table in tables {
        let (name, size): (String, i64) = (table.get(0), table.get(1));
        let (live, dead): (i64, i64) = (table.get(2), table.get(3));
        println!(
            "             {name}: {:.1} MiB, {live} live, {dead} dead",
            size as f64 / f64::from(1 << 20)
        );
    }
    Ok(())
}
