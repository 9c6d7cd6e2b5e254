//! The renewal of claims, one call at a time.
//!
//! A call that is late or fails extends nothing: the deadlines of the claims stand, and a claim that can't be renewed in
//! time is given up then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::task::AbortOnDropHandle;

use crate::clock;
use crate::error::Result;
use crate::hash::Set;
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::queue::{ClaimHandle, Settled};
use crate::renewing::attempt;
use crate::telemetry;

use super::in_flight::InFlight;
use super::settling::provider_panicked;

/// A renewal under way, with what it was asked for and when.
struct UnderWay {
    claims: Arc<Vec<ClaimHandle>>,
    asked_at: Instant,
    task: AbortOnDropHandle<Result<Settled>>,
}

/// The renewals of one dispatcher.
pub(super) struct Renewing {
    lease: Duration,
    under_way: Option<UnderWay>,
}

impl Renewing {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, under_way: None }
    }

    /// When [`Self::start`] will do something, if not now.
    pub(super) fn next_tick(&self, in_flight: &InFlight) -> Option<Instant> {
        // A renewal that is due waits for the one under way; it must not keep the loop turning meanwhile.
        in_flight.next_renewal().filter(|_| self.under_way.is_none())
    }

    /// Renews what is due, unless a call is under way.
    pub(super) fn start(&mut self, in_flight: &mut InFlight, outbox: &Outbox, owner: OwnerToken) {
        if self.under_way.is_some() {
            return;
        }
        let claims = in_flight.due_renewals(clock::now().into_std());
        if claims.is_empty() {
            return;
        }
        let claims = Arc::new(claims);
        let (outbox, asked, lease) = (outbox.clone(), Arc::clone(&claims), self.lease);
        let asked_at = clock::now().into_std();
        // Renewals begin with two fifths of the lease left or so: time for a second attempt.
        let task = tokio::spawn(async move {
            attempt("dispatcher.renew", lease / 5, outbox.renew(owner, &asked, lease)).await
        });
        self.under_way = Some(UnderWay { claims, asked_at, task: AbortOnDropHandle::new(task) });
    }

    /// Waits for the answer of the call under way; for ever when there is none. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Result<Settled> {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let answer = (&mut under_way.task).await;
        answer.unwrap_or_else(|panic| Err(provider_panicked("dispatcher.renew", panic)))
    }

    /// Takes an answer in. Returns the claims that are no longer held.
    pub(super) fn on_answer(
        &mut self,
        store: &str,
        in_flight: &mut InFlight,
        answer: Result<Settled>,
    ) -> Vec<ClaimHandle> {
        let Some(UnderWay { claims, asked_at, .. }) = self.under_way.take() else { return Vec::new() };
        let delay = (self.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let again = clock::now().into_std() + delay;
        match answer {
            Ok(settled) => {
                // What was not extended keeps its deadline, too.
                in_flight.renew_again(&claims, again);
                in_flight.renewed(&settled.changed, &claims, asked_at);
                let stale: Set<_> = settled.stale.into_iter().collect();
                claims.iter().copied().filter(|claim| stale.contains(&claim.id())).collect()
            }
            Err(error) => {
                telemetry::retrying(store, "renew", &error, delay);
                in_flight.renew_again(&claims, again);
                Vec::new()
            }
        }
    }
}
