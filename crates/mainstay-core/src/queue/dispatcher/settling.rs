//! What became of claims, on its way to the database: collected, sent in batches, tried again.
//!
//! Outcomes go in the order in which handlers ended, one call at a time, and beside it one call for what has failed before. An
//! outcome is never thrown away while trying again can help; one that the store refuses, or that keeps failing, harms none of
//! the others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle};

use crate::error::{Error, ErrorKind, Result};
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::queue::{ClaimHandle, Outcome, Settled, Settlement};
use crate::renewing::attempt;
use crate::runtime::pause::{Pause, TROUBLE};
use crate::telemetry;

use super::in_flight::InFlight;

/// Settlements per call. More gain nothing and hold the rows' locks longer.
const SETTLE_BATCH: usize = 1_000;

/// A call is not given up sooner, however short the leases are: it may have to wait for a handler's own transaction, and the next one would too.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// Failures after which a batch is split: one may be the database's, a second one is likely to be an item's.
const FAILURES_TO_SPLIT: u32 = 2;

/// Settlements that go to the store in one call.
struct Batch {
    settlements: Arc<Vec<Settlement>>,
    /// How often they have failed, in this batch or a larger one.
    failures: u32,
}

/// A settle under way. The settlements stay here, so that they are known even if the provider panics.
struct UnderWay {
    batch: Batch,
    task: JoinHandle<Result<Settled>>,
}

/// Calls one after the other, with a pause after each that fails.
struct Lane {
    under_way: Option<UnderWay>,
    trouble: Pause,
    not_before: Option<Instant>,
}

impl Lane {
    fn new() -> Self {
        Self { under_way: None, trouble: Pause::new(TROUBLE), not_before: None }
    }

    fn is_free(&self) -> bool {
        self.under_way.is_none() && self.not_before.is_none_or(|when| when <= Instant::now())
    }

    async fn next(&mut self) -> Result<Settled> {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let answer = (&mut under_way.task).await;
        answer.unwrap_or_else(|panic| Err(provider_panicked("dispatcher.settle", panic)))
    }
}

/// The answer of a call.
pub(super) struct Answer {
    is_retry: bool,
    result: Result<Settled>,
}

/// The settlements of one dispatcher.
pub(super) struct Settling {
    /// What no call has been made for.
    waiting: Vec<Settlement>,
    /// What has failed. Sent beside the rest and never together with it, so that an item that keeps failing holds up no other.
    failed: VecDeque<Batch>,
    first_try: Lane,
    retry: Lane,
    /// How long one call may take.
    patience: Duration,
}

impl Settling {
    pub(super) fn new(lease: Duration) -> Self {
        let patience = (lease / 2).max(PATIENCE_MIN);
        Self {
            waiting: Vec::new(),
            failed: VecDeque::new(),
            first_try: Lane::new(),
            retry: Lane::new(),
            patience,
        }
    }

    /// Settles `claim` with the next call.
    pub(super) fn push(&mut self, claim: ClaimHandle, outcome: Outcome) {
        self.waiting.push(Settlement { claim, outcome });
    }

    /// Gives `claim` back with the next call, without counting the delivery (R12).
    pub(super) fn release(&mut self, claim: ClaimHandle) {
        self.push(claim, Outcome::Release { delay: None, error: None });
    }

    /// Whether all is settled.
    pub(super) fn is_quiet(&self) -> bool {
        let idle = self.first_try.under_way.is_none() && self.retry.under_way.is_none();
        idle && self.waiting.is_empty() && self.failed.is_empty()
    }

    /// When [`Self::start`] will do something, if not now.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let tick =
            |lane: &Lane, is_empty: bool| lane.not_before.filter(|_| lane.under_way.is_none() && !is_empty);
        let ticks =
            [tick(&self.first_try, self.waiting.is_empty()), tick(&self.retry, self.failed.is_empty())];
        ticks.into_iter().flatten().min()
    }

    /// Sends what waits and what is to be tried again, unless a call is under way for it or it is too early after trouble.
    pub(super) fn start(&mut self, in_flight: &InFlight, outbox: &Outbox, owner: OwnerToken) {
        if self.first_try.is_free() && !self.waiting.is_empty() {
            let rest = self.waiting.split_off(self.waiting.len().min(SETTLE_BATCH));
            let settlements = Arc::new(std::mem::replace(&mut self.waiting, rest));
            let batch = Batch { settlements, failures: 0 };
            self.first_try.under_way = Some(self.send(batch, in_flight, outbox, owner));
        }
        if self.retry.is_free()
            && let Some(batch) = self.failed.pop_front()
        {
            self.retry.under_way = Some(self.send(batch, in_flight, outbox, owner));
        }
    }

    fn send(&self, batch: Batch, in_flight: &InFlight, outbox: &Outbox, owner: OwnerToken) -> UnderWay {
        let (outbox, settlements) = (outbox.clone(), Arc::clone(&batch.settlements));
        let handled = in_flight.handled(&settlements);
        let patience = self.patience;
        let task = tokio::spawn(async move {
            attempt("dispatcher.settle", patience, outbox.settle_handled(owner, &settlements, &handled)).await
        });
        UnderWay { batch, task }
    }

    /// Waits for the answer of a call under way; for ever when there is none. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Answer {
        tokio::select! {
            result = self.first_try.next() => Answer { is_retry: false, result },
            result = self.retry.next() => Answer { is_retry: true, result },
        }
    }

    /// Takes an answer in. Returns the settlements that are over with.
    pub(super) fn on_answer(&mut self, store: &str, answer: Answer) -> Option<Arc<Vec<Settlement>>> {
        let lane = if answer.is_retry { &mut self.retry } else { &mut self.first_try };
        let UnderWay { batch, .. } = lane.under_way.take()?;
        let count = batch.settlements.len();
        match answer.result {
            Ok(_) => {
                lane.trouble.reset();
                lane.not_before = None;
                return Some(batch.settlements);
            }
            Err(error) if error.is_retryable() => {
                let delay = lane.trouble.step();
                telemetry::retrying(store, "settle", &error, delay);
                lane.not_before = Some(Instant::now() + delay);
                self.try_again(Batch { failures: batch.failures + 1, ..batch });
            }
            Err(error) if count > 1 => {
                tracing::warn!(store, %error, count, "could not settle a batch; retrying its halves");
                self.try_again(Batch { failures: FAILURES_TO_SPLIT, ..batch });
            }
            Err(error) => {
                // Trying again can't help. The leases lapse and the messages are delivered again.
                tracing::error!(store, %error, count, "could not settle; given up");
                return Some(batch.settlements);
            }
        }
        None
    }

    /// Tries a batch again, in halves if it has failed too often. So an item that keeps failing ends up alone.
    fn try_again(&mut self, batch: Batch) {
        let Batch { settlements, failures } = batch;
        if failures < FAILURES_TO_SPLIT || settlements.len() == 1 {
            self.failed.push_back(Batch { settlements, failures });
            return;
        }
        for half in settlements.chunks(settlements.len().div_ceil(2)) {
            self.failed.push_back(Batch { settlements: Arc::new(half.to_vec()), failures });
        }
    }
}

/// The error of a call whose task ended without an answer.
pub(super) fn provider_panicked(operation: &'static str, panic: JoinError) -> Error {
    Error::new(ErrorKind::Internal, operation, "the provider panicked").with_source(panic)
}
