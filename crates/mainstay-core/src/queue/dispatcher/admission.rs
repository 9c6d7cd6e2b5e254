//! Which messages this dispatcher wants, keeps and begins with: topics without a handler, limits, bounds, expiry.
//!
//! Decides only; the engine does what is decided. What is turned away goes back to the queue or fails, and is never
//! silently kept.

use std::sync::Arc;
use std::time::Duration;

use crate::hash::Set;
use crate::queue::{Claimed, DispatcherOptions, FailureReason, Outcome, Registered, Registry};
use crate::telemetry;

use super::in_flight::InFlight;

/// The rules of one dispatcher.
pub(super) struct Admission {
    registry: Arc<Registry>,
    options: DispatcherOptions,
    store: Arc<str>,
}

impl Admission {
    pub(super) fn new(registry: Arc<Registry>, options: DispatcherOptions, store: Arc<str>) -> Self {
        Self { registry, options, store }
    }

    /// The handler of a topic, and how many deliveries a message of it may have.
    pub(super) fn handler(&self, topic: &str) -> Option<(Registered, u32)> {
        let registered = self.registry.get(topic)?.clone();
        Some((registered, self.registry.attempts(topic, &self.options)))
    }

    /// The topic of a message, shared where this dispatcher has a handler for it.
    pub(super) fn topic(&self, topic: &str) -> Arc<str> {
        self.registry.get(topic).map_or_else(|| topic.into(), |registered| Arc::clone(&registered.topic))
    }

    fn bound(&self, topic: &str) -> Option<usize> {
        self.registry.get(topic)?.policy.concurrency
    }

    /// Topics that have as many messages waiting as may run: more would only be held, not handled.
    pub(super) fn saturated_topics(&self, in_flight: &InFlight) -> Set<String> {
        let topics = self.registry.bounded().map(|(topic, _)| topic);
        topics.filter(|topic| self.is_saturated(in_flight, topic)).map(str::to_owned).collect()
    }

    fn is_saturated(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.bound(topic).is_some_and(|bound| in_flight.of_topic(topic) >= bound * 2)
    }

    /// Whether a bounded topic has fewer messages here than it may run.
    pub(super) fn runs_dry(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.bound(topic).is_some_and(|bound| in_flight.of_topic(topic) < bound)
    }

    /// Whether one more handler of a topic may run.
    pub(super) fn may_run(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.bound(topic).is_none_or(|bound| in_flight.running_of_topic(topic) < bound)
    }

    /// Why a message that was just claimed is not kept; none when it is.
    pub(super) fn turned_away(&self, in_flight: &InFlight, claimed: &Claimed) -> Option<Outcome> {
        let (store, topic, id) = (&self.store, &claimed.topic, claimed.id());
        let attempts = self.registry.attempts(topic, &self.options);
        if self.registry.get(topic).is_none() {
            let delay = self.options.no_handler_delay;
            telemetry::no_handler(store, topic, id, delay);
            Some(Outcome::Release { delay: Some(delay), error: None })
        } else if claimed.attempt > attempts {
            telemetry::rejected(store, topic, id, FailureReason::DeliveryLimit);
            let last = claimed.last_error.as_deref().unwrap_or("none was recorded");
            let error = format!("delivery limit of {attempts} reached; last error: {last}");
            Some(Outcome::Reject { reason: FailureReason::DeliveryLimit, error: Some(error) })
        } else if self.is_saturated(in_flight, topic) {
            // One claim can bring more of a bounded topic than it can use. Held here, nobody else could have it.
            Some(Outcome::Release { delay: None, error: None })
        } else {
            None
        }
    }

    /// Why a message that was kept is not begun with after all; none when it is.
    pub(super) fn too_late(&self, claimed: &Claimed, since_claim: Duration) -> Option<Outcome> {
        // The database's clock is at most this far past the moment of the claim.
        let expired = claimed.expires_at.is_some_and(|expiry| claimed.claimed_at + since_claim >= expiry);
        expired.then(|| {
            telemetry::rejected(&self.store, &claimed.topic, claimed.id(), FailureReason::Expired);
            let error = Some("expired before a handler was free".to_owned());
            Outcome::Reject { reason: FailureReason::Expired, error }
        })
    }
}
