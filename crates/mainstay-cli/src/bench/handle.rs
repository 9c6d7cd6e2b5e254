//! Handling: how fast dispatchers with handlers empty an outbox, keep up with callers, and react.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, Message, Outbox, RunningMainstay};
use tokio::time::MissedTickBehavior;

use super::clock::Clock;
use super::enqueue::{TOPIC, payload};
use super::progress::{Goal, Progress};
use super::{PACE, Plan};
use crate::failure::Failure;
use crate::histogram::Histogram;
use crate::meter::Meter;
use crate::text::count;

const LATENCY_TOPIC: &str = "bench.latency";
/// Callers when messages are enqueued and handled at once.
const CALLERS: usize = 16;
/// A dispatcher that makes no progress for this long has failed.
const STUCK: Duration = Duration::from_secs(30);

/// Handlers that do nothing but note when they were reached.
pub(super) struct Handlers {
    base: Instant,
    latencies: Arc<Histogram>,
}

impl Handlers {
    pub(super) fn new() -> Self {
        Self { base: Instant::now(), latencies: Arc::default() }
    }

    /// Dispatchers over an outbox. For throughput they claim and hold more at once than by default.
    pub(super) async fn start(
        &self,
        provider: &Arc<dyn Provider>,
        dispatchers: usize,
        for_throughput: bool,
    ) -> anyhow::Result<Vec<RunningMainstay>> {
        let mut running = Vec::new();
        for _ in 0..dispatchers {
            let (base, latencies) = (self.base, Arc::clone(&self.latencies));
            let mainstay = Mainstay::builder_over(Arc::clone(provider)).outbox(|outbox| {
                let outbox = outbox.raw_handler(TOPIC, async |_: Context| {});
                let outbox = outbox.raw_handler(LATENCY_TOPIC, move |context: Context| {
                    // The payload is the moment before the enqueue, on this process's own clock.
                    if let Ok(sent) = context.payload().parse() {
                        latencies.record(base.elapsed().saturating_sub(Duration::from_nanos(sent)));
                    }
                    std::future::ready(())
                });
                if !for_throughput {
                    return outbox;
                }
                outbox.options(|options| {
                    options.concurrency = 64;
                    options.batch = 1_000;
                    options.prefetch = 2_000;
                })
            });
            running.push(mainstay.build()?.start().await?);
        }
        Ok(running)
    }

    /// From just before the call of enqueue to the start of the handler, in milliseconds: p50 and p99.
    pub(super) async fn latency(
        &self,
        progress: &mut Progress,
        outbox: &Outbox,
        meter: &Meter,
        plan: &Plan,
    ) -> anyhow::Result<(f64, f64)> {
        const NAME: &str = "latency";
        let messages = latency_messages(plan);
        let before = meter.read().done;
        let counter = AtomicU64::new(0);
        let work = async {
            let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / PACE));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for _ in 0..messages {
                ticks.tick().await;
                let payload = self.base.elapsed().as_nanos().to_string();
                outbox.enqueue(Message::new(LATENCY_TOPIC, payload)).await?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
            until_done(meter, before, messages, &AtomicU64::new(0)).await
        };
        progress.watch(NAME, Goal::Count(messages), &counter, work).await?;
        let percentile = |part| {
            let found = self.latencies.percentile(part);
            found.map(|it| it.as_secs_f64() * 1e3).context("no message of the latency measurement arrived")
        };
        let (p50, p99) = (percentile(0.5)?, percentile(0.99)?);
        progress.finish(NAME, &format!("p50 {p50:.2} ms, p99 {p99:.2} ms"));
        Ok((p50, p99))
    }
}

/// How many messages the latencies are of: twice the time of other measurements, for the sake of p99.
pub(super) fn latency_messages(plan: &Plan) -> u64 {
    (2 * PACE * plan.time.as_secs()).max(PACE)
}

/// Stops dispatchers, and waits for their end.
pub(super) async fn stop(running: Vec<RunningMainstay>) -> anyhow::Result<()> {
    for running in running {
        running.stop().await?;
    }
    Ok(())
}

/// Waits until so many more are done than `before`; gives their rate since `started`.
pub(super) async fn drained(
    progress: &mut Progress,
    title: &str,
    meter: &Meter,
    before: u64,
    messages: u64,
    started: Instant,
) -> anyhow::Result<f64> {
    let counter = AtomicU64::new(0);
    let work = until_done(meter, before, messages, &counter);
    progress.watch(title, Goal::Count(messages), &counter, work).await?;
    let rate = messages as f64 / started.elapsed().as_secs_f64().max(1e-9);
    progress.finish(title, &format!("{}/s", count(rate as u64)));
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

/// Enqueues and handles at the same time, as fast as it goes. The clock stops when the last is done.
pub(super) async fn end_to_end(
    progress: &mut Progress,
    title: &str,
    outbox: &Outbox,
    meter: &Meter,
    plan: &Plan,
) -> anyhow::Result<f64> {
    let before = meter.read().done;
    let clock = Clock::start(plan.time);
    let payload = payload();
    let work = async {
        let mut callers = tokio::task::JoinSet::new();
        for _ in 0..CALLERS {
            let (outbox, payload, clock) = (outbox.clone(), Arc::clone(&payload), clock.clone());
            callers.spawn(async move {
                while clock.is_running() {
                    outbox.enqueue(Message::new(TOPIC, &*payload)).await?;
                    clock.count(1);
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = callers.join_next().await {
            ended??;
        }
        let sent = clock.counter().load(Ordering::Relaxed);
        until_done(meter, before, sent, &AtomicU64::new(0)).await
    };
    progress.watch(title, Goal::Time(plan.time), clock.counter(), work).await?;
    let rate = clock.rate();
    progress.finish(title, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}
