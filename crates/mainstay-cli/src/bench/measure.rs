//! The measurements, one after the other on the same outbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, Message, Outbox, RunningMainstay};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::Progress;
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::Meter;
use crate::text::count;

const TOPIC: &str = "bench.work";
const LATENCY_TOPIC: &str = "bench.latency";
/// A payload of a common size.
pub(crate) const PAYLOAD_BYTES: usize = 200;
/// Callers at once, where there are many.
pub(crate) const CALLERS: u64 = 16;
/// Messages per call of the bulk enqueue.
pub(crate) const BULK: u64 = 1_000;
/// The pace of the latency measurement: a queue that is busy, but keeps up.
pub(crate) const PACE: Duration = Duration::from_millis(10);
/// Messages of the latency measurement at most.
const LATENCY_MESSAGES: u64 = 500;
/// A slow database ends a measurement by time, not by count.
const ENQUEUE_LIMIT: Duration = Duration::from_secs(5);
/// A dispatcher that makes no progress for this long has failed.
const STUCK: Duration = Duration::from_secs(30);

/// Messages per second, and latencies.
pub(crate) struct Results {
    pub(crate) enqueue_1: f64,
    pub(crate) enqueue_16: f64,
    pub(crate) bulk: f64,
    pub(crate) drain: f64,
    pub(crate) end_to_end: f64,
    pub(crate) latency_p50: Duration,
    pub(crate) latency_p99: Duration,
}

/// Measures everything.
pub(crate) async fn measure(
    provider: &Arc<dyn Provider>,
    messages: u64,
    progress: &mut Progress,
) -> anyhow::Result<Results> {
    provider.schema().deploy().await.context("the scratch schema can't be made")?;
    let meter = Meter::install();
    let outbox = Outbox::new(provider.outbox());

    let enqueue_1 = enqueue(progress, "enqueue, 1 caller", &outbox, messages, 1, 1).await?;
    let enqueue_16 = enqueue(progress, "enqueue, 16 callers", &outbox, messages, CALLERS, 1).await?;
    let bulk = enqueue(progress, "enqueue in bulk", &outbox, messages, 1, BULK).await?;

    let latencies = Arc::new(Histogram::default());
    let base = Instant::now();
    let waiting = meter.read().enqueued;
    let started = Instant::now();
    let running = start(provider, base, Arc::clone(&latencies)).await?;
    let drain = drained(progress, "drain", &meter, waiting, started).await?;

    let end_to_end = end_to_end(progress, &outbox, &meter, messages).await?;
    latency(progress, &outbox, &meter, messages.min(LATENCY_MESSAGES), base).await?;
    running.stop().await?;
    let percentile =
        |part| latencies.percentile(part).context("no message of the latency measurement arrived");
    Ok(Results {
        enqueue_1,
        enqueue_16,
        bulk,
        drain,
        end_to_end,
        latency_p50: percentile(0.5)?,
        latency_p99: percentile(0.99)?,
    })
}

/// Mainstay with its defaults, and handlers that do nothing but note when they were reached.
async fn start(
    provider: &Arc<dyn Provider>,
    base: Instant,
    latencies: Arc<Histogram>,
) -> anyhow::Result<RunningMainstay> {
    let mainstay = Mainstay::builder_over(Arc::clone(provider))
        .outbox(|outbox| {
            outbox.raw_handler(TOPIC, async |_: Context| {}).raw_handler(
                LATENCY_TOPIC,
                move |context: Context| {
                    // The payload is the moment before the enqueue, on this process's own clock.
                    if let Ok(sent) = context.payload().parse() {
                        latencies.record(base.elapsed().saturating_sub(Duration::from_nanos(sent)));
                    }
                    std::future::ready(())
                },
            )
        })
        .build()?;
    Ok(mainstay.start().await?)
}

/// Enqueues up to `messages`, `batch` per call, by callers that each wait for their call to be durable.
async fn enqueue(
    progress: &mut Progress,
    name: &str,
    outbox: &Outbox,
    messages: u64,
    callers: u64,
    batch: u64,
) -> anyhow::Result<f64> {
    let counter = Arc::new(AtomicU64::new(0));
    let work = call(outbox, Arc::clone(&counter), messages, callers, batch);
    let took = progress.watch(name, messages, &counter, work).await?;
    let rate = counter.load(Ordering::Relaxed) as f64 / took.as_secs_f64().max(1e-9);
    progress.finish(name, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}

async fn call(
    outbox: &Outbox,
    counter: Arc<AtomicU64>,
    messages: u64,
    callers: u64,
    batch: u64,
) -> anyhow::Result<Duration> {
    let taken = Arc::new(AtomicU64::new(0));
    let payload: Arc<str> = "x".repeat(PAYLOAD_BYTES).into();
    let started = Instant::now();
    let mut tasks: JoinSet<mainstay::Result<()>> = JoinSet::new();
    for _ in 0..callers {
        let (outbox, counter, taken) = (outbox.clone(), Arc::clone(&counter), Arc::clone(&taken));
        let payload = Arc::clone(&payload);
        tasks.spawn(async move {
            while started.elapsed() < ENQUEUE_LIMIT {
                let from = taken.fetch_add(batch, Ordering::Relaxed);
                let size = batch.min(messages.saturating_sub(from));
                match size {
                    0 => break,
                    1 => drop(outbox.enqueue(Message::new(TOPIC, &*payload)).await?),
                    _ => {
                        let each = (0..size).map(|_| Message::new(TOPIC, &*payload));
                        drop(outbox.enqueue_many(each.collect()).await?);
                    }
                }
                counter.fetch_add(size, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended?.context("a message could not be enqueued")?;
    }
    Ok(started.elapsed())
}

/// Waits until `messages` more are done than were at the start; gives their rate.
async fn drained(
    progress: &mut Progress,
    name: &str,
    meter: &Meter,
    messages: u64,
    started: Instant,
) -> anyhow::Result<f64> {
    let counter = AtomicU64::new(0);
    progress.watch(name, messages, &counter, until_done(meter, 0, messages, &counter)).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64().max(1e-9);
    progress.finish(name, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}

async fn until_done(meter: &Meter, before: u64, messages: u64, counter: &AtomicU64) -> anyhow::Result<()> {
    let mut last = (Instant::now(), 0);
    loop {
        let done = meter.read().done - before;
        counter.store(done, Ordering::Relaxed);
        if done >= messages {
            return Ok(());
        }
        if done > last.1 {
            last = (Instant::now(), done);
        } else if last.0.elapsed() > STUCK {
            return Err(Failure::new("the dispatcher makes no progress")
                .because(format!("{done} of {messages} messages were handled, and no more for {STUCK:?}"))
                .hint("run it again with -v to see what it says")
                .into());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Enqueues and handles at the same time, as fast as it goes.
async fn end_to_end(
    progress: &mut Progress,
    outbox: &Outbox,
    meter: &Meter,
    messages: u64,
) -> anyhow::Result<f64> {
    const NAME: &str = "end to end";
    let before = meter.read().done;
    let (sent, counter) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
    let started = Instant::now();
    let work = async {
        call(outbox, Arc::clone(&sent), messages, CALLERS, 1).await?;
        until_done(meter, before, sent.load(Ordering::Relaxed), &counter).await
    };
    progress.watch(NAME, messages, &sent, work).await?;
    let rate = sent.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64().max(1e-9);
    progress.finish(NAME, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}

/// Sends messages at an easy pace; their handlers note the time.
async fn latency(
    progress: &mut Progress,
    outbox: &Outbox,
    meter: &Meter,
    messages: u64,
    base: Instant,
) -> anyhow::Result<()> {
    let before = meter.read().done;
    let counter = AtomicU64::new(0);
    let work = async {
        let mut ticks = tokio::time::interval(PACE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for _ in 0..messages {
            ticks.tick().await;
            let payload = base.elapsed().as_nanos().to_string();
            outbox.enqueue(Message::new(LATENCY_TOPIC, payload)).await?;
            counter.fetch_add(1, Ordering::Relaxed);
        }
        until_done(meter, before, messages, &AtomicU64::new(0)).await
    };
    progress.watch("latency", messages, &counter, work).await
}
