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

    /// Topics that have as many messages waiting as may run: more would only be held, not handled.
    pub(super) fn saturated_topics(&self, in_flight: &InFlight) -> Set<String> {
        let saturated = self.registry.bounded().filter(|registered| is_saturated(in_flight, registered));
        saturated.map(|registered| registered.topic.to_string()).collect()
    }

    /// Whether a bounded topic has fewer messages here than it may run.
    pub(super) fn runs_dry(&self, in_flight: &InFlight, topic: &str) -> bool {
        let bound = self.registry.get(topic).and_then(|registered| registered.policy.concurrency);
        bound.is_some_and(|bound| in_flight.of_topic(topic) < bound)
    }

    /// The handler of a message that was just claimed, or why it is not kept.
    pub(super) fn admit(&self, in_flight: &InFlight, claimed: &Claimed) -> Result<&Arc<Registered>, Outcome> {
        let (store, topic, id) = (&self.store, &claimed.topic, claimed.id());
        let Some(registered) = self.registry.share(topic) else {
            let delay = self.options.no_handler_delay;
            telemetry::no_handler(store, topic, id, delay);
            return Err(Outcome::Release { delay: Some(delay), error: None });
        };
        let attempts = registered.attempts(&self.options);
        if claimed.attempt > attempts {
            telemetry::rejected(store, topic, id, FailureReason::DeliveryLimit);
            let last = claimed.last_error.as_deref().unwrap_or("none was recorded");
            let error = format!("delivery limit of {attempts} reached; last error: {last}");
            Err(Outcome::Reject { reason: FailureReason::DeliveryLimit, error: Some(error) })
        } else if is_saturated(in_flight, registered) {
            // One claim can bring more of a bounded topic than it can use. Held here, nobody else could have it.
            Err(Outcome::Release { delay: None, error: None })
        } else {
            Ok(registered)
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

fn is_saturated(in_flight: &InFlight, registered: &Registered) -> bool {
    registered.policy.concurrency.is_some_and(|bound| in_flight.of_topic(&registered.topic) >= bound * 2)
}
