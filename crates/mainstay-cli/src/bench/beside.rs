//! How long a single write takes in a SQLite file, alone and beside another process that writes
//! without a pause.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use mainstay::{Message, Outbox};

use super::enqueue::{TOPIC, payload};
use super::limits::open_sqlite;
use super::progress::{Goal, Progress};
use crate::failure::Failure;
use crate::histogram::Histogram;

/// From one write to the next.
const PAUSE: Duration = Duration::from_millis(20);
/// How long the other process may take until it is busy, and how long it goes on afterwards.
const MARGIN: Duration = Duration::from_secs(3);
/// Commits of the other process after which it is busy.
const BUSY: u32 = 20;

/// The time that 95 of 100 writes take at most, in milliseconds.
pub(super) async fn p95(
    progress: &mut Progress,
    title: &str,
    outbox: &Outbox,
    time: Duration,
) -> anyhow::Result<f64> {
    let (times, payload, counter) = (Histogram::default(), payload(), AtomicU64::new(0));
    let started = Instant::now();
    let work = async {
        while started.elapsed() < time {
            let begun = Instant::now();
            outbox.enqueue(Message::new(TOPIC, &*payload)).await?;
            times.record(begun.elapsed());
            counter.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    };
    progress.watch(title, Goal::Time(time), &counter, work).await?;
    let p95 = times.percentile(0.95).context("nothing was written")?.as_secs_f64() * 1e3;
    progress.finish(title, &format!("p95 {p95:.2} ms"));
    Ok(p95)
}

/// Another process that enqueues into the same file, with 256 callers, for `time` and some more.
pub(super) struct BusyProcess(Child);

impl BusyProcess {
    /// Returns when it is busy.
    pub(super) async fn start(path: &Path, time: Duration) -> anyhow::Result<Self> {
        let seconds = (time + 2 * MARGIN).as_secs().to_string();
        let database = format!("sqlite:{}", path.display());
        let child = Command::new(std::env::current_exe()?)
            .args(["bench", "--quiet", "--only", "enqueue_256", "--seconds", &seconds])
            .args(["--database", &database])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("another process can't be started")?;
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || until_busy(&path)).await??;
        Ok(Self(child))
    }

    /// Waits until it has ended and removed what it made.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        let ended = tokio::task::spawn_blocking(move || self.0.wait()).await??;
        if ended.success() {
            return Ok(());
        }
        Err(Failure::new("the process beside which was measured failed").because(ended.to_string()).into())
    }
}

fn until_busy(path: &Path) -> anyhow::Result<()> {
    let (connection, started) = (open_sqlite(path)?, Instant::now());
    let version = || connection.query_row("pragma data_version", [], |row| row.get::<_, i64>(0));
    let (mut seen, mut commits) = (version()?, 0);
    while commits < BUSY {
        if started.elapsed() > MARGIN {
            return Err(Failure::new("another process did not begin to write").into());
        }
        std::thread::sleep(Duration::from_millis(1));
        let now = version()?;
        commits += u32::from(now != seen);
        seen = now;
    }
    Ok(())
}
