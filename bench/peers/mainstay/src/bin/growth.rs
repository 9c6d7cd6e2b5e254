//! How cost grows: with the backlog, the size of payloads, the workers in a process, the processes.
//!
//! `growth --database URL [--quick] [--only backlog,payload,workers,processes]` prints a line of JSON per figure.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use load::{Result, percentiles};
use mainstay::queue::ClaimRequest;
use mainstay::{Message, OwnerToken};
use peer_mainstay::{Queue, TOPIC};
use serde_json::{Value, json};

/// The size of a payload, where it is not what is looked at.
const PAYLOAD: u64 = 200;
/// Claims per size of the backlog, and messages per claim.
const CLAIMS: usize = 200;
const BATCH: u32 = 100;
/// What starts this program as one of several that drain.
const CHILD: &str = "--drain-with-others";

struct Extent {
    backlogs: &'static [u64],
    payloads: &'static [u64],
    workers: &'static [usize],
    processes: &'static [usize],
    /// Messages to drain.
    messages: u64,
    /// Bytes of payloads to drain at most.
    bytes: u64,
}

const FULL: Extent = Extent {
    backlogs: &[10_000, 100_000, 1_000_000, 5_000_000],
    payloads: &[100, 1 << 10, 10 << 10, 100 << 10, 1 << 20],
    workers: &[1, 2, 4, 8, 16],
    processes: &[1, 2, 4, 8],
    messages: 100_000,
    bytes: 512 << 20,
};
const QUICK: Extent = Extent {
    backlogs: &[1_000, 10_000, 100_000],
    payloads: &[100, 10 << 10, 1 << 20],
    workers: &[1, 4, 16],
    processes: &[1, 4],
    messages: 10_000,
    bytes: 32 << 20,
};

fn main() -> ExitCode {
    let run = || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(std::env::args().skip(1)))
    };
    match run() {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("growth: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (mut url, mut extent, mut only, mut is_child) = (None, FULL, None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--database" => url = arguments.next(),
            "--only" => only = arguments.next(),
            "--quick" => extent = QUICK,
            CHILD => is_child = true,
            _ => bail!("there is no option {argument:?}"),
        }
    }
    let url = url.context("--database is missing")?;
    if is_child {
        return drain_with_others(&url).await;
    }
    let wants = |name: &str| only.as_ref().is_none_or(|only| only.split(',').any(|it| it == name));
    let queue = Queue::open(&url, 24).await?;
    if wants("backlog") {
        backlog(&queue, &extent).await?;
    }
    if wants("payload") {
        payload(&queue, &extent).await?;
    }
    if wants("workers") {
        workers(&queue, &extent).await?;
    }
    if wants("processes") {
        processes(&queue, &url, &extent).await?;
    }
    Ok(())
}

fn tell(what: &str, size: u64, figures: Value) {
    println!("{}", json!({ "growth": what, "size": size, "figures": figures }));
}

/// How long claims and settles take while so many wait. Each claim's messages are settled, and as many are added again.
async fn backlog(queue: &Queue, extent: &Extent) -> Result<()> {
    queue.clear().await?;
    let mut waiting = 0;
    for &size in extent.backlogs {
        queue.fill(size - waiting, PAYLOAD).await?;
        waiting = size;
        queue.settle_down().await?;
        let owner = OwnerToken::new();
        let request = ClaimRequest::new(owner).batch(BATCH);
        let (mut claims, mut settles) = (Vec::new(), Vec::new());
        // The first ones make plans and read pages, on whichever connection they get.
        for turn in 0..CLAIMS + CLAIMS / 10 {
            let started = Instant::now();
            let batch = queue.outbox.claim(&request).await?;
            let claimed = started.elapsed();
            let handles = batch.handles();
            if handles.len() != BATCH as usize {
                bail!("a claim of {BATCH} with {size} waiting gave {}", handles.len());
            }
            let started = Instant::now();
            queue.outbox.ack(owner, &handles).await?;
            let settled = started.elapsed();
            if turn >= CLAIMS / 10 {
                claims.push(claimed.as_secs_f64() * 1e3);
                settles.push(settled.as_secs_f64() * 1e3);
            }
            queue.fill(u64::from(BATCH), PAYLOAD).await?;
        }
        let (claims, settles) = (percentiles(claims), percentiles(settles));
        tell(
            "backlog",
            size,
            json!({
                "claim_p50_ms": claims.map(|it| it.p50), "claim_p99_ms": claims.map(|it| it.p99),
                "settle_p50_ms": settles.map(|it| it.p50), "settle_p99_ms": settles.map(|it| it.p99),
            }),
        );
    }
    queue.clear().await
}

/// How enqueueing and draining go with the size of payloads.
async fn payload(queue: &Queue, extent: &Extent) -> Result<()> {
    for &size in extent.payloads {
        let messages = extent.messages.min(extent.bytes / size).max(50);
        let body = "x".repeat(usize::try_from(size)?);
        let mut calls = Vec::new();
        for _ in 0..50 {
            let message = Message::new(TOPIC, body.clone());
            let started = Instant::now();
            queue.outbox.enqueue(message).await?;
            calls.push(started.elapsed().as_secs_f64() * 1e3);
        }
        queue.clear().await?;
        queue.fill(messages, size).await?;
        queue.settle_down().await?;
        load::forget_peak_memory();
        let rate = drain(queue, 1, messages).await?;
        let calls = percentiles(calls);
        tell(
            "payload",
            size,
            json!({
                "enqueue_p50_ms": calls.map(|it| it.p50), "enqueue_p99_ms": calls.map(|it| it.p99),
                "drain_per_second": rate, "drain_mib_per_second": rate * size as f64 / f64::from(1 << 20),
                "peak_memory_mib": load::peak_memory_mib(),
            }),
        );
    }
    Ok(())
}

/// How draining goes with the dispatchers in this process.
async fn workers(queue: &Queue, extent: &Extent) -> Result<()> {
    for &workers in extent.workers {
        queue.clear().await?;
        queue.fill(extent.messages, PAYLOAD).await?;
        queue.settle_down().await?;
        let rate = drain(queue, workers, extent.messages).await?;
        tell("workers", workers as u64, json!({ "drain_per_second": rate }));
    }
    Ok(())
}

async fn drain(queue: &Queue, workers: usize, messages: u64) -> Result<f64> {
    let started = Instant::now();
    let mut running = Vec::new();
    for _ in 0..workers {
        running.push(queue.start().await?);
    }
    queue.until_empty().await?;
    let took = started.elapsed();
    for running in running {
        running.stop().await?;
    }
    Ok(messages as f64 / took.as_secs_f64())
}

/// How draining goes with the processes that do it.
async fn processes(queue: &Queue, url: &str, extent: &Extent) -> Result<()> {
    for &processes in extent.processes {
        queue.clear().await?;
        queue.fill(extent.messages, PAYLOAD).await?;
        queue.settle_down().await?;
        let mut children: Vec<Drainer> =
            (0..processes).map(|_| Drainer::start(url)).collect::<Result<_>>()?;
        children.iter_mut().try_for_each(Drainer::wait_until_ready)?;
        let started = Instant::now();
        children.iter_mut().try_for_each(Drainer::go)?;
        queue.until_empty().await?;
        let rate = extent.messages as f64 / started.elapsed().as_secs_f64();
        drop(children);
        tell("processes", processes as u64, json!({ "drain_per_second": rate }));
    }
    Ok(())
}

/// Another process of this program; killed when dropped.
struct Drainer(Child);

impl Drainer {
    fn start(url: &str) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([CHILD, "--database", url]).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self(command.spawn()?))
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let stdout = self.0.stdout.as_mut().context("it has no output")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.trim() == "ready" { Ok(()) } else { bail!("another process did not get ready") }
    }

    fn go(&mut self) -> Result<()> {
        let stdin = self.0.stdin.as_mut().context("it has no input")?;
        writeln!(stdin, "go")?;
        Ok(stdin.flush()?)
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        // Both fail only when it has ended, which is wanted.
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// The other end of [`Drainer`].
async fn drain_with_others(url: &str) -> Result<()> {
    let queue = Queue::open(url, 6).await?;
    queue.outbox.backlog().await?;
    println!("ready");
    let gone = || tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    if gone().await?? == 0 {
        return Ok(());
    }
    let _running = queue.start().await?;
    // Until the one that started this process kills it, or is gone itself.
    while gone().await?? > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
