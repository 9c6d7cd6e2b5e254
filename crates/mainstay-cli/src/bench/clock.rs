//! How long and how often: what callers do until the time is over, and the rate that comes of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::progress::{Goal, Progress};
use crate::text::count;

/// Tells callers when to end, and counts what they did.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    started: Instant,
    time: Duration,
    counter: Arc<AtomicU64>,
}

impl Clock {
    /// Starts now.
    pub(super) fn start(time: Duration) -> Self {
        Self { started: Instant::now(), time, counter: Arc::default() }
    }

    pub(super) fn is_running(&self) -> bool {
        self.started.elapsed() < self.time
    }

    pub(super) fn count(&self, messages: u64) {
        self.counter.fetch_add(messages, Ordering::Relaxed);
    }

    pub(super) fn counter(&self) -> &AtomicU64 {
        &self.counter
    }

    /// A second since the start.
    pub(super) fn rate(&self) -> f64 {
        self.counter.load(Ordering::Relaxed) as f64 / self.started.elapsed().as_secs_f64().max(1e-9)
    }
}

/// Runs callers beside each other, each until the clock it was given has run out. Gives what they did per second.
pub(super) async fn rate_of<Caller>(
    progress: &mut Progress,
    title: &str,
    time: Duration,
    caller: impl FnMut(Clock) -> Caller,
    callers: usize,
) -> anyhow::Result<f64>
where
    Caller: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let clock = Clock::start(time);
    // Dropped with this future, and all callers end with it.
    let mut tasks: JoinSet<anyhow::Result<()>> =
        std::iter::repeat_n(clock.clone(), callers).map(caller).collect();
    let ended = async {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    };
    progress.watch(title, Goal::Time(time), clock.counter(), ended).await?;
    let rate = clock.rate();
    progress.finish(title, &format!("{}/s", count(rate as u64)));
    Ok(rate)
}
