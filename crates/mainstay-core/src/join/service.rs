//! What runs in the background for joins: it ends those whose deadline has passed, deletes old ones, publishes gauges.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::{ErrorKind, Result};
use crate::renewing::{TURN_LIMIT, attempt};
use crate::runtime::{LastDone, Lifecycle, Pause, Service, SweepClock, TROUBLE, every, to_the_end};
use crate::telemetry;

use super::{JoinOptions, JoinRetention, Joins};

/// No look at the deadlines comes sooner after another, however near the next of them is.
const SHORTEST: Duration = Duration::from_millis(1);

/// Ends joins at their deadlines. Any number of them may run, in any number of processes.
///
/// There is no tick: it sleeps until the nearest deadline, or until this process starts a join with a nearer one. A pause is
/// bounded only because other processes may start joins too. A step that is counted after the deadline never counts, whether
/// this has come round or not.
#[derive(Debug)]
pub struct JoinService {
    joins: Joins,
    options: JoinOptions,
    call_limit: Duration,
}

impl JoinService {
    pub(crate) const NAME: &'static str = "joins";

    /// Looks after the deadlines of `joins`.
    pub fn new(joins: Joins, options: JoinOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { joins, options, call_limit: TURN_LIMIT })
    }

    /// Gives each call up after so long. Defaults to 60 s.
    #[must_use]
    pub(crate) fn with_call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Ends what is due. How long to sleep then.
    async fn turn(&self) -> Result<Duration> {
        loop {
            let expired =
                attempt("join.expire", self.call_limit, self.joins.expire(self.options.batch)).await?;
            if expired.len() < self.options.batch as usize {
                break;
            }
        }
        let next = attempt("join.expire", self.call_limit, self.joins.store().next_deadline()).await?;
        Ok(next.map_or(self.options.poll_max, |next| next.clamp(SHORTEST, self.options.poll_max)))
    }

    async fn turns(&self) {
        let mut trouble = Pause::new(TROUBLE);
        loop {
            match self.turn().await {
                Ok(pause) => {
                    trouble.reset();
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = self.joins.nearer_deadline() => {}
                    }
                }
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(error) => {
                    let delay = trouble.step();
                    telemetry::retrying(self.joins.store().identifier(), "expire", &error, delay);
                    tokio::time::sleep(delay).await;
                }
            }
        }
    }
}

#[async_trait]
impl Service for JoinService {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        lifecycle.started();
        // Each turn is made of short transactions, so dropping one midway is harmless.
        lifecycle.stopping().run_until_cancelled(self.turns()).await;
        Ok(())
    }
}

/// Deletes joins that ended longer ago than they are kept (R29).
#[derive(Debug)]
pub struct JoinSweep {
    joins: Joins,
    retention: JoinRetention,
    clock: SweepClock,
    last: LastDone,
}

impl JoinSweep {
    /// Sweeps `joins` as `retention` says.
    pub fn new(joins: Joins, retention: JoinRetention, clock: SweepClock) -> Self {
        Self { joins, retention, clock, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for JoinSweep {
    fn name(&self) -> &'static str {
        "join retention"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.joins.store().identifier();
        let chore = || async { self.joins.sweep(self.retention, &self.clock).await.map(drop) };
        every((self.retention.interval, &self.last), store, "purge", lifecycle, chore).await
    }
}

/// Publishes the gauges of joins (R26).
#[derive(Debug)]
pub struct JoinGauges {
    joins: Joins,
    interval: Duration,
    last: LastDone,
}

impl JoinGauges {
    /// Publishes the gauges of `joins` every `interval`.
    pub fn new(joins: Joins, interval: Duration) -> Self {
        Self { joins, interval, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for JoinGauges {
    fn name(&self) -> &'static str {
        "join gauges"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.joins.store().identifier();
        let chore = || async {
            telemetry::join_gauges(store, &attempt("join.stats", TURN_LIMIT, self.joins.stats()).await?);
            Ok(())
        };
        to_the_end((self.interval, &self.last), store, "stats", lifecycle, chore).await
    }

    fn retire(&self) {
        telemetry::join_gauges(self.joins.store().identifier(), &Default::default());
    }
}
