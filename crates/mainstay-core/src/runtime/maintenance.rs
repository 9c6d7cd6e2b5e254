//! Chores on a timer: freeing lapsed leases, deleting old rows, publishing gauges.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::audit::{Audit, AuditRetention};
use crate::error::Result;
use crate::inbox::{Inbox, InboxRetention};
use crate::job::Jobs;
use crate::operation::{OperationRetention, Operations};
use crate::outbox::{Outbox, OutboxStats, Retention};
use crate::renewing::{TURN_LIMIT, attempt};
use crate::telemetry;
use crate::timer::Timers;

use super::{Lifecycle, Service, SweepClock};

/// When a chore was last done, from one start to the next: a database that is started for every burst of work must not see to all its chores
/// each time.
#[derive(Debug, Default)]
pub(crate) struct LastDone(Mutex<Option<Instant>>);

impl LastDone {
    /// When the first chore after a start is due. Half of the interval is enough: who starts now and then must not miss it by a moment.
    fn first_due(&self, interval: Duration, now: Instant) -> Instant {
        // One value is whole whatever panicked beside it.
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|last| now.saturating_duration_since(*last) < interval / 2)
            .map_or(now, |last| last + interval)
    }

    fn done(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

/// Runs `chore` now, unless it was just done, and then every `interval`, until stopped. A chore that fails is logged and tried again next time.
/// One that is due or under way is still done when there is time for that: a database of a fleet may be worked on for just long enough to begin it.
pub(crate) async fn every<F, Fut>(
    (interval, last): (Duration, &LastDone),
    store: &str,
    name: &'static str,
    lifecycle: Lifecycle,
    chore: F,
) -> Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    lifecycle.started();
    let stop = lifecycle.stopping();
    let mut due = last.first_due(interval, Instant::now());
    loop {
        if due > Instant::now() && stop.run_until_cancelled(tokio::time::sleep_until(due)).await.is_none() {
            return Ok(());
        }
        // Each chore is made of short transactions, so dropping it midway is harmless.
        let done = lifecycle.hurrying().run_until_cancelled(chore()).await;
        match done {
            None => return Ok(()),
            Some(Err(error)) => telemetry::retrying(store, name, &error, interval),
            Some(Ok(())) => last.done(Instant::now()),
        }
        due = Instant::now() + interval;
    }
}

/// As [`every`], and once more at the end when there is time for that: what was told last stays told while a database of a fleet rests.
pub(crate) async fn to_the_end<F, Fut>(
    timing: (Duration, &LastDone),
    store: &str,
    name: &'static str,
    lifecycle: Lifecycle,
    chore: F,
) -> Result<()>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<()>>,
{
    let hurry = lifecycle.hurrying().clone();
    every(timing, store, name, lifecycle, &chore).await?;
    // It is told again with the next turn at the latest.
    let _untold = hurry.run_until_cancelled(chore()).await;
    Ok(())
}

/// Frees messages whose lease has lapsed (OBX-053). Claims take them anyway; this makes them visible as ready.
#[derive(Debug)]
pub struct Reaper {
    outbox: Outbox,
    interval: Duration,
    last: LastDone,
}

impl Reaper {
    /// Reaps `outbox` every `interval`.
    pub fn new(outbox: Outbox, interval: Duration) -> Self {
        Self { outbox, interval, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for Reaper {
    fn name(&self) -> &'static str {
        "reaper"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.outbox.store().identifier();
        every((self.interval, &self.last), store, "reap", lifecycle, || async {
            attempt("outbox.reap", TURN_LIMIT, self.outbox.reap_expired()).await.map(drop)
        })
        .await
    }
}

/// Deletes settled messages past their age (R29).
#[derive(Debug)]
pub struct RetentionSweep {
    outbox: Outbox,
    retention: Retention,
    clock: SweepClock,
    last: LastDone,
}

impl RetentionSweep {
    /// Sweeps `outbox` as `retention` says.
    pub fn new(outbox: Outbox, retention: Retention, clock: SweepClock) -> Self {
        Self { outbox, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for RetentionSweep {
    fn name(&self) -> &'static str {
        "retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.outbox.store().identifier();
        let chore = || async { self.outbox.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "purge", lifecycle, chore).await
    }
}

/// Forgets settled messages of an inbox past their age (R29).
#[derive(Debug)]
pub struct InboxSweep {
    inbox: Inbox,
    retention: InboxRetention,
    clock: SweepClock,
    last: LastDone,
}

impl InboxSweep {
    /// Sweeps `inbox` as `retention` says.
    pub fn new(inbox: Inbox, retention: InboxRetention, clock: SweepClock) -> Self {
        Self { inbox, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for InboxSweep {
    fn name(&self) -> &'static str {
        "inbox retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.inbox.store().identifier();
        let chore = || async { self.inbox.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "forget", lifecycle, chore).await
    }
}

/// Forgets runs of jobs that ended longer ago than they are kept (R29).
#[derive(Debug)]
pub struct RunRetention {
    jobs: Jobs,
    retention: Retention,
    clock: SweepClock,
    last: LastDone,
}

impl RunRetention {
    /// Sweeps the runs of `jobs` as `retention` says.
    pub fn new(jobs: Jobs, retention: Retention, clock: SweepClock) -> Self {
        Self { jobs, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for RunRetention {
    fn name(&self) -> &'static str {
        "run retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.jobs.store().identifier();
        let chore = || async { self.jobs.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "purge", lifecycle, chore).await
    }
}

/// Deletes records of the audit trail past their age.
#[derive(Debug)]
pub struct AuditSweep {
    audit: Audit,
    retention: AuditRetention,
    clock: SweepClock,
    last: LastDone,
}

impl AuditSweep {
    /// Sweeps the trail as `retention` says.
    pub fn new(audit: Audit, retention: AuditRetention, clock: SweepClock) -> Self {
        Self { audit, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for AuditSweep {
    fn name(&self) -> &'static str {
        "audit retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.audit.store().identifier();
        let chore = || async { self.audit.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "purge", lifecycle, chore).await
    }
}

/// Deletes operations that ended longer ago than they are kept (R29).
#[derive(Debug)]
pub struct OperationSweep {
    operations: Operations,
    retention: OperationRetention,
    clock: SweepClock,
    last: LastDone,
}

impl OperationSweep {
    /// Sweeps the operations as `retention` says.
    pub fn new(operations: Operations, retention: OperationRetention, clock: SweepClock) -> Self {
        Self { operations, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for OperationSweep {
    fn name(&self) -> &'static str {
        "operation retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.operations.store().identifier();
        let chore = || async { self.operations.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "purge", lifecycle, chore).await
    }
}

/// Ends operations without a sign of life, as stalled.
#[derive(Debug)]
pub struct StalledOperations {
    operations: Operations,
    silence: Duration,
    last: LastDone,
}

impl StalledOperations {
    /// Gives up what has been silent for this long.
    pub fn new(operations: Operations, silence: Duration) -> Self {
        Self { operations, silence, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for StalledOperations {
    fn name(&self) -> &'static str {
        "stalled operations"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.operations.store().identifier();
        let chore = || async { self.operations.give_up(self.silence).await.map(drop) };
        // Often enough that it is noticed within half as long again.
        let interval = (self.silence / 2).clamp(Duration::from_millis(100), Duration::from_secs(60));
        every((interval, &self.last), store, "mark stalled", lifecycle, chore).await
    }
}

/// Publishes the gauges of a queue (R26).
#[derive(Debug)]
pub struct Gauges {
    outbox: Outbox,
    interval: Duration,
    publish: fn(&str, OutboxStats),
    last: LastDone,
}

impl Gauges {
    /// Publishes the gauges of `outbox` every `interval`.
    pub fn new(outbox: Outbox, interval: Duration) -> Self {
        Self {
            outbox,
            interval,
            publish: |store, stats| telemetry::gauges(store, &stats),
            last: LastDone::default(),
        }
    }

    /// Publishes those of an inbox's queue instead.
    #[must_use]
    pub fn of_inbox(mut self) -> Self {
        self.publish = |store, stats| telemetry::inbox_gauges(store, &stats);
        self
    }

    /// Publishes those of runs of jobs instead: `outbox` is the queue they wait in.
    #[must_use]
    pub fn of_runs(mut self) -> Self {
        self.publish = |store, stats| telemetry::run_gauges(store, &stats.into());
        self
    }

    /// Publishes those of timers every `interval`.
    pub fn of_timers(timers: &Timers, interval: Duration) -> Self {
        let publish = |store: &str, stats: OutboxStats| telemetry::timer_gauges(store, &stats.into());
        Self { outbox: timers.queue().clone(), interval, publish, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for Gauges {
    fn name(&self) -> &'static str {
        "gauges"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.outbox.store().identifier();
        let chore = || async {
            (self.publish)(store, attempt("outbox.backlog", TURN_LIMIT, self.outbox.backlog()).await?);
            Ok(())
        };
        to_the_end((self.interval, &self.last), store, "stats", lifecycle, chore).await
    }

    fn retire(&self) {
        (self.publish)(self.outbox.store().identifier(), OutboxStats::default());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_chore_is_not_done_again_at_each_start() {
        let (hour, now) = (Duration::from_secs(3_600), Instant::now());
        let last = LastDone::default();
        assert_eq!(last.first_due(hour, now), now, "never done");
        last.done(now);
        assert_eq!(last.first_due(hour, now), now + hour);
        let later = now + hour / 2;
        assert_eq!(last.first_due(hour, later), later, "long enough ago");
    }

    /// A chore that waits to be let go, and says when it has begun and when it is done.
    struct Slow {
        last: LastDone,
        begun: tokio::sync::Semaphore,
        go: tokio::sync::Semaphore,
        done: std::sync::atomic::AtomicBool,
    }

    #[async_trait::async_trait]
    impl Service for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
            every((Duration::from_secs(3_600), &self.last), "test", "chore", lifecycle, || async {
                self.begun.add_permits(1);
                self.go.acquire().await.unwrap().forget();
                self.done.store(true, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
            .await
        }
    }

    fn slow() -> Arc<Slow> {
        let none = || tokio::sync::Semaphore::new(0);
        Arc::new(Slow { last: LastDone::default(), begun: none(), go: none(), done: false.into() })
    }

    #[tokio::test]
    async fn a_chore_that_is_due_is_done_even_if_the_end_comes_first() {
        let chore = slow();
        let mut running = crate::runtime::start(Arc::clone(&chore) as Arc<dyn Service>);
        // Before it has begun at all.
        running.request_finish();
        chore.begun.acquire().await.unwrap().forget();
        chore.go.add_permits(1);
        running.ended().await.unwrap();
        assert!(chore.done.load(std::sync::atomic::Ordering::SeqCst));
    }

    /// Counts how often it publishes.
    #[derive(Default)]
    struct Counting(LastDone, std::sync::atomic::AtomicU32);

    #[async_trait::async_trait]
    impl Service for Counting {
        fn name(&self) -> &'static str {
            "counting"
        }

        async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
            let publish = || async {
                self.1.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            };
            to_the_end((Duration::from_secs(3_600), &self.0), "test", "publish", lifecycle, publish).await
        }
    }

    #[tokio::test]
    async fn what_is_published_is_so_once_more_at_the_end() {
        let counting = Arc::new(Counting::default());
        let turn = async || {
            let mut running = crate::runtime::start(Arc::clone(&counting) as Arc<dyn Service>);
            running.request_finish();
            running.ended().await.unwrap();
            counting.1.load(std::sync::atomic::Ordering::SeqCst)
        };
        assert_eq!(turn().await, 2, "when it was due, and at the end");
        assert_eq!(turn().await, 3, "at the end, although it was not due");
    }

    #[tokio::test]
    async fn a_chore_is_broken_off_when_there_is_no_time() {
        let chore = slow();
        let running = crate::runtime::start(Arc::clone(&chore) as Arc<dyn Service>);
        chore.begun.acquire().await.unwrap().forget();
        running.stop().await.unwrap();
        assert!(!chore.done.load(std::sync::atomic::Ordering::SeqCst));
    }
}
