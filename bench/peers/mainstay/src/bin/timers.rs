//! How late timers are, with few and with many others waiting.
//!
//! `timers --database URL [--quick]`, where the URL is `sqlite:path` or `postgres://…` of an empty database: schedules timers
//! that fall due evenly over some seconds, and tells how long after its due time each became a message, and how long after it
//! the handler began. Both beside the database's own round trips in the same run.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use load::{Percentiles, Result, percentiles};
use mainstay::outbox::{MessageFilter, Page, Retention};
use mainstay::postgres::Postgres;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Context, Mainstay, NewTimer};
use tokio::sync::mpsc;

const TOPIC: &str = "tick";
/// What only waits.
const WAITING: &str = "waiting";
/// Timers per call when many are scheduled.
const CHUNK: u64 = 10_000;
/// From scheduling to the first due time: nobody is to be late because scheduling took long.
const LEAD: Duration = Duration::from_secs(2);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How much of it.
struct Plan {
    waiting: [u64; 2],
    timers: u64,
    over: Duration,
    trips: u32,
}

fn main() -> ExitCode {
    let run = || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(measure(std::env::args().skip(1)))
    };
    match run() {
        Ok(()) => std::process::exit(0),
        Err(error) => {
            eprintln!("timers: {error:?}");
            ExitCode::FAILURE
        }
    }
}

async fn measure(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (mut url, mut quick) = (None, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--database" => url = arguments.next(),
            "--quick" => quick = true,
            _ => bail!("there is no option {argument:?}"),
        }
    }
    let plan = if quick {
        Plan { waiting: [0, 20_000], timers: 1_000, over: Duration::from_secs(2), trips: 50 }
    } else {
        Plan { waiting: [0, 1_000_000], timers: 10_000, over: Duration::from_secs(10), trips: 500 }
    };
    let url = url.context("--database is missing")?;
    let (provider, postgres): (Arc<dyn Provider>, _) = match url.strip_prefix("sqlite:") {
        Some(path) => (Arc::new(Sqlite::open(path).await?), None),
        None => {
            let postgres = Postgres::connect(&url).await?;
            (Arc::new(postgres.clone()), Some(postgres))
        }
    };
    println!("{} timers over {:?}, on {}", plan.timers, plan.over, provider.kind());
    let (handled, mut arrivals) = mpsc::unbounded_channel();
    let mainstay = Mainstay::builder_over(provider)
        .deploy_schema(true)
        .outbox(|outbox| {
            let handler = move |context: Context| {
                let late = lateness(context.payload());
                // Nobody counts any more once it is over.
                let _counted = handled.send(late);
                std::future::ready(())
            };
            outbox.raw_handler(TOPIC, handler).retention(Some(Retention::default())).concurrency(64)
        })
        .timers(|timers| timers)
        .build()?;
    let running = mainstay.start().await?;
    let mut there = 0;
    for waiting in plan.waiting {
        fill(&mainstay, waiting - there).await?;
        there = waiting;
        settle_down(postgres.as_ref()).await?;
        tell_trips(&mainstay, waiting, plan.trips).await?;
        tell_lateness(&mainstay, waiting, &plan, &mut arrivals).await?;
    }
    running.stop().await?;
    Ok(())
}

/// How long ago the moment in a payload was, in milliseconds. This machine's clock is the database's.
fn lateness(payload: &str) -> f64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as f64;
    (now - payload.parse().unwrap_or(f64::NAN)) / 1e3
}

/// Schedules timers that are not due for long.
async fn fill(mainstay: &Mainstay, timers: u64) -> Result<()> {
    for start in (0..timers).step_by(CHUNK as usize) {
        let far = |n| NewTimer::new(WAITING, "", 30 * DAY + Duration::from_millis(start + n));
        let chunk = (0..CHUNK.min(timers - start)).map(far).collect();
        mainstay.timers().schedule_many(chunk).await?;
    }
    Ok(())
}

/// Lets a server write out what it was filled with: that is the cost of a million inserts, not of a million timers that wait.
async fn settle_down(postgres: Option<&Postgres>) -> Result<()> {
    let Some(postgres) = postgres else { return Ok(()) };
    let client = postgres.pool().get().await.context("no connection")?;
    for statement in ["vacuum analyze", "checkpoint"] {
        client.batch_execute(statement).await?;
    }
    Ok(())
}

/// What the database takes by itself: to answer, and to keep one timer.
async fn tell_trips(mainstay: &Mainstay, waiting: u64, trips: u32) -> Result<()> {
    let (mut asked, mut kept) = (Vec::new(), Vec::new());
    for _ in 0..trips {
        let started = Instant::now();
        mainstay.provider().now().await?;
        asked.push(started.elapsed().as_secs_f64() * 1e3);
        let started = Instant::now();
        mainstay.timers().schedule(NewTimer::new(WAITING, "", 30 * DAY)).await?;
        kept.push(started.elapsed().as_secs_f64() * 1e3);
    }
    tell(waiting, "round trip", percentiles(asked));
    tell(waiting, "durable write", percentiles(kept));
    Ok(())
}

async fn tell_lateness(
    mainstay: &Mainstay,
    waiting: u64,
    plan: &Plan,
    arrivals: &mut mpsc::UnboundedReceiver<f64>,
) -> Result<()> {
    let first = mainstay.provider().now().await? + LEAD;
    let timer = |n: u64| {
        let due = first + plan.over.mul_f64(n as f64 / plan.timers as f64);
        NewTimer::new(TOPIC, due.as_microsecond().to_string(), due)
    };
    let scheduled = mainstay.timers().schedule_many((0..plan.timers).map(timer).collect()).await?;
    if mainstay.provider().now().await? > first {
        eprintln!("timers: scheduling took longer than {LEAD:?}; the first ones are late for that");
    }
    let mut handler = Vec::new();
    while (handler.len() as u64) < plan.timers {
        let deadline = LEAD + plan.over + Duration::from_secs(60);
        let arrival = tokio::time::timeout(deadline, arrivals.recv()).await.context("timers did not fire")?;
        handler.push(arrival.context("nobody handles any more")?);
    }
    let oldest = scheduled.iter().map(|one| one.work_item).min().context("no timer was scheduled")?;
    tell(waiting, "became a message", percentiles(written(mainstay, oldest, plan.timers).await?));
    tell(waiting, "handler began", percentiles(handler));
    Ok(())
}

/// How long after its due time each message was written, in milliseconds: the last `count` of them, down to `oldest`.
async fn written(mainstay: &Mainstay, oldest: mainstay::WorkItemId, count: u64) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    let mut page = Page { limit: 1_000, before: None };
    loop {
        let rows = mainstay.outbox().list(&MessageFilter::all().topic(TOPIC), page).await?;
        for row in rows.iter().filter(|row| row.id >= oldest) {
            let due: Timestamp = row.due_at.context("a message without a due time")?;
            times.push(row.created_at.duration_since(due).as_secs_f64() * 1e3);
        }
        match rows.last() {
            Some(last) if last.id > oldest => page.before = Some(last.id),
            _ => break,
        }
    }
    if times.len() as u64 != count {
        bail!("{count} timers were scheduled, and {} messages are there", times.len());
    }
    Ok(times)
}

fn tell(waiting: u64, what: &str, times: Option<Percentiles>) {
    let Some(Percentiles { p50, p99, max }) = times else { return };
    println!("{waiting:>9} waiting  {what:<17} p50 {p50:>8.2} ms  p99 {p99:>8.2} ms  max {max:>8.2} ms");
}
