//! The measurements themselves.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::json;
use tokio::task::JoinSet;

use crate::report::{Report, percentiles};
use crate::{Aim, Peer, Request, Result, Work, arrivals, process};

/// Messages a second when latency is measured: the workers are idle between any two.
const PACE: u64 = 50;
/// Callers when messages are enqueued and handled at once.
const CALLERS: u64 = 16;
/// Workers that get nothing done for this long have failed.
const STUCK: Duration = Duration::from_secs(60);
/// How long new workers get to come to rest before latency is measured.
const REST: Duration = Duration::from_secs(1);
/// How often the database is asked whether it is done; also the error of a time that ends so.
const GLANCE: Duration = Duration::from_millis(2);

/// Does what the arguments ask and prints one line of JSON.
pub fn main<P: Peer>() -> ExitCode {
    let run = || -> Result<()> {
        let request = Request::from_arguments()?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let report = runtime.block_on(measure::<P>(&request))?;
        report.print::<P>(&request);
        Ok(())
    };
    match run() {
        // At once: what still runs has no work, and nobody waits for its good end.
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("{}: {error:?}", P::NAME);
            ExitCode::FAILURE
        }
    }
}

async fn measure<P: Peer>(request: &Request) -> Result<Report> {
    let peer = P::connect(request).await.context("it can't be set up")?;
    match request.work {
        Work::Enqueue(callers) => enqueue(&peer, request, callers).await,
        Work::Bulk => bulk(&peer, request).await,
        Work::Drain => drain(&peer, request).await,
        Work::EndToEnd => end_to_end(&peer, request).await,
        Work::Latency => latency(&peer, request).await,
    }
}

async fn enqueue<P: Peer>(peer: &P, request: &Request, callers: u64) -> Result<Report> {
    // Connections and plans are made before the clock starts, as in a process that has run for a while.
    call(peer, callers, Duration::from_millis(300)).await?;
    peer.settle_down().await?;
    let started = Instant::now();
    let count = call(peer, callers, Duration::from_secs(request.seconds)).await?;
    Ok(Report::rate(count, started.elapsed().as_secs_f64()))
}

/// Enqueues for a while; tells how many.
async fn call<P: Peer>(peer: &P, callers: u64, time: Duration) -> Result<u64> {
    let count = Arc::new(AtomicU64::new(0));
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let (peer, count) = (peer.clone(), Arc::clone(&count));
        tasks.spawn(async move {
            while Instant::now() < end {
                let id = count.fetch_add(1, Ordering::Relaxed);
                peer.enqueue(id as i64).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended?.context("a message can't be enqueued")?;
    }
    Ok(count.load(Ordering::Relaxed))
}

async fn fill<P: Peer>(peer: &P, messages: u64) -> Result<()> {
    let mut from = 0;
    while from < messages {
        let to = messages.min(from + P::BULK);
        peer.enqueue_many(from as i64..to as i64).await.context("messages can't be enqueued")?;
        from = to;
    }
    Ok(())
}

async fn bulk<P: Peer>(peer: &P, request: &Request) -> Result<Report> {
    fill(peer, P::BULK.min(request.messages)).await?;
    peer.settle_down().await?;
    let started = Instant::now();
    fill(peer, request.messages).await?;
    let mut report = Report::rate(request.messages, started.elapsed().as_secs_f64());
    report.set("per_call", json!(P::BULK));
    Ok(report)
}

async fn drain<P: Peer>(peer: &P, request: &Request) -> Result<Report> {
    fill(peer, request.messages).await?;
    peer.settle_down().await?;
    process::forget_peak_memory();
    let started = Instant::now();
    let _workers = peer.start(Aim::Throughput).await?;
    until_handled(request.messages).await?;
    let handled = started.elapsed().as_secs_f64();
    until_settled(peer).await?;
    let mut report = Report::rate(request.messages, started.elapsed().as_secs_f64());
    report.set("handled_per_second", json!((request.messages as f64 / handled).round()));
    report.set("peak_memory_mib", json!(process::peak_memory_mib().map(f64::round)));
    Ok(report)
}

async fn end_to_end<P: Peer>(peer: &P, request: &Request) -> Result<Report> {
    let _workers = peer.start(Aim::Throughput).await?;
    warm_up(peer).await?;
    peer.settle_down().await?;
    let before = arrivals::count();
    let started = Instant::now();
    let count = call(peer, CALLERS, Duration::from_secs(request.seconds)).await?;
    let called = started.elapsed().as_secs_f64();
    until_handled(before + count).await?;
    until_settled(peer).await?;
    // The clock stops when all is done: a queue that only piles up gains nothing.
    let mut report = Report::rate(count, started.elapsed().as_secs_f64());
    report.set("enqueued_per_second", json!((count as f64 / called).round()));
    Ok(report)
}

/// From just before the call of enqueue to the start of the handler.
async fn latency<P: Peer>(peer: &P, request: &Request) -> Result<Report> {
    let messages = PACE * request.seconds;
    arrivals::keep_times(messages);
    let _workers = peer.start(Aim::Latency).await?;
    warm_up(peer).await?;
    peer.settle_down().await?;
    tokio::time::sleep(REST).await;
    let before = arrivals::count();
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / PACE));
    let mut calls: JoinSet<Result<f64>> = JoinSet::new();
    for id in 0..messages {
        ticks.tick().await;
        let peer = peer.clone();
        // A call that takes long must not hold up the next one.
        calls.spawn(async move {
            let called = Instant::now();
            arrivals::sent(id as i64);
            peer.enqueue(id as i64).await?;
            Ok(called.elapsed().as_secs_f64() * 1e3)
        });
    }
    let mut call_times = Vec::new();
    while let Some(ended) = calls.join_next().await {
        call_times.push(ended?.context("a message can't be enqueued")?);
    }
    until_handled(before + messages).await?;
    let mut report = Report::default();
    report.set("messages", json!(messages));
    report.times("", percentiles(arrivals::times_ms()));
    report.times("enqueue_", percentiles(call_times));
    Ok(report)
}

async fn warm_up<P: Peer>(peer: &P) -> Result<()> {
    const WARM_UPS: u64 = 20;
    for _ in 0..WARM_UPS {
        peer.enqueue(-1).await?;
    }
    until_handled(WARM_UPS).await
}

async fn until_handled(messages: u64) -> Result<()> {
    let mut last = (Instant::now(), 0);
    loop {
        let count = arrivals::count();
        if count >= messages {
            return Ok(());
        }
        if count > last.1 {
            last = (Instant::now(), count);
        } else if last.0.elapsed() > STUCK {
            bail!("{count} of {messages} messages were handled, and no more for {STUCK:?}");
        }
        tokio::time::sleep(GLANCE).await;
    }
}

async fn until_settled<P: Peer>(peer: &P) -> Result<()> {
    let deadline = Instant::now() + STUCK;
    loop {
        let unsettled = peer.unsettled().await?;
        if unsettled == 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{unsettled} messages are not settled {STUCK:?} after the last was handled");
        }
        tokio::time::sleep(GLANCE).await;
    }
}
