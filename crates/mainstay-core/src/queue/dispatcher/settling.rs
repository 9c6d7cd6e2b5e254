//! What became of claims, on its way to the database: collected, sent in batches, tried again.
//!
//! One call is under way at a time, so outcomes arrive in the order in which handlers ended. An outcome is never thrown
//! away while trying again can help; one that the store refuses harms none of the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{JoinError, JoinHandle};

use crate::error::{Error, ErrorKind, Result};
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::queue::{ClaimHandle, Outcome, Settled, Settlement};
use crate::renewing::attempt;
use crate::runtime::pause::Pause;
use crate::telemetry;

use super::in_flight::InFlight;

/// Settlements per call. More gain nothing and hold the rows' locks longer.
const SETTLE_BATCH: usize = 1_000;

/// A call is not given up sooner, however short the leases are: it may have to wait for a handler's own transaction, and the next one would too.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// A settle under way. The settlements stay here, so that they are known even if the provider panics.
struct UnderWay {
    batch: Arc<Vec<Settlement>>,
    task: JoinHandle<Result<Settled>>,
}

/// The settlements of one dispatcher.
pub(super) struct Settling {
    waiting: Vec<Settlement>,
    under_way: Option<UnderWay>,
    /// So many of the next settlements go one by one, to find the one that the store refuses.
    singly: usize,
    trouble: Pause,
    not_before: Option<Instant>,
    /// How long one call may take.
    patience: Duration,
}

impl Settling {
    pub(super) fn new(trouble: Pause, lease: Duration) -> Self {
        let patience = (lease / 2).max(PATIENCE_MIN);
        Self { waiting: Vec::new(), under_way: None, singly: 0, trouble, not_before: None, patience }
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
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// When [`Self::start`] will do something, if not now.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        self.not_before.filter(|_| self.under_way.is_none() && !self.waiting.is_empty())
    }

    /// Sends the next batch, unless one is under way or it is too early after trouble.
    pub(super) fn start(&mut self, in_flight: &InFlight, outbox: &Outbox, owner: OwnerToken) {
        let too_early = self.not_before.is_some_and(|when| when > Instant::now());
        if self.under_way.is_some() || self.waiting.is_empty() || too_early {
            return;
        }
        let size = if self.singly > 0 { 1 } else { SETTLE_BATCH };
        self.singly = self.singly.saturating_sub(1);
        let rest = self.waiting.split_off(self.waiting.len().min(size));
        let batch = Arc::new(std::mem::replace(&mut self.waiting, rest));
        let (outbox, settlements) = (outbox.clone(), Arc::clone(&batch));
        let handled = in_flight.handled(&batch);
        let patience = self.patience;
        let task = tokio::spawn(async move {
            attempt("dispatcher.settle", patience, outbox.settle_handled(owner, &settlements, &handled)).await
        });
        self.under_way = Some(UnderWay { batch, task });
    }

    /// Waits for the answer of the call under way; for ever when there is none. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Result<Settled> {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let answer = (&mut under_way.task).await;
        answer.unwrap_or_else(|panic| Err(provider_panicked("dispatcher.settle", panic)))
    }

    /// Takes an answer in. Returns the settlements that are over with.
    pub(super) fn on_answer(&mut self, store: &str, answer: Result<Settled>) -> Option<Arc<Vec<Settlement>>> {
        let UnderWay { batch, .. } = self.under_way.take()?;
        match answer {
            Ok(_) => {
                self.trouble.reset();
                self.not_before = None;
                Some(batch)
            }
            Err(error) if error.is_retryable() => {
                let delay = self.trouble.step();
                telemetry::retrying(store, "settle", &error, delay);
                self.not_before = Some(Instant::now() + delay);
                // First in, first out: what ended first is settled first.
                self.waiting.splice(0..0, batch.iter().cloned());
                None
            }
            Err(error) if batch.len() > 1 => {
                tracing::warn!(store, %error, count = batch.len(), "could not settle; now one by one");
                self.singly = batch.len();
                self.waiting.splice(0..0, batch.iter().cloned());
                None
            }
            Err(error) => {
                // Trying again can't help. The leases lapse and the messages are delivered again.
                tracing::error!(store, %error, count = batch.len(), "could not settle; given up");
                Some(batch)
            }
        }
    }
}

/// The error of a call whose task ended without an answer.
pub(super) fn provider_panicked(operation: &'static str, panic: JoinError) -> Error {
    Error::new(ErrorKind::Internal, operation, "the provider panicked").with_source(panic)
}
