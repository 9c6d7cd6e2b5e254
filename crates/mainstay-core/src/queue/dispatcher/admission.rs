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
use super::seen::Seen;

/// The rules of one dispatcher.
pub(super) struct Admission {
    registry: Arc<Registry>,
    options: DispatcherOptions,
    store: Arc<str>,
    seen: Seen,
}

impl Admission {
    pub(super) fn new(
        registry: Arc<Registry>,
        options: DispatcherOptions,
        store: Arc<str>,
        seen: Seen,
    ) -> Self {
        Self { registry, options, store, seen }
    }

    /// The topics that a claim is for; none stands for all.
    pub(super) fn only_topics(&self) -> Vec<String> {
        if self.options.own_topics_only && !self.registry.has_prefixes() {
            return self.registry.topics().map(str::to_owned).collect();
        }
        Vec::new()
    }

    /// The topic of a message, shared where it has a handler of its own.
    pub(super) fn topic(registered: &Registered, topic: &str) -> Arc<str> {
        if *registered.lane == *topic { Arc::clone(&registered.lane) } else { topic.into() }
    }

    /// Topics that have as many messages waiting as may run: more would only be held, not handled. And those that are left to others. Where
    /// topics are handled by how they begin, of both only those that were seen.
    pub(super) fn left_out(&self, in_flight: &InFlight) -> Set<String> {
        let saturated = self.registry.bounded().filter(|(_, registered)| is_saturated(in_flight, registered));
        let mut out: Set<String> = saturated.map(|(topic, _)| topic.to_owned()).collect();
        if self.registry.has_prefixes() {
            self.seen.collect(&mut out, |topic| match self.registry.get(topic) {
                None => self.options.own_topics_only,
                Some(registered) => is_saturated(in_flight, registered),
            });
        }
        out
    }

    /// Remembers the topic of a message that came, where a claim can't say beforehand which are wanted.
    pub(super) fn note(&self, topic: &str) {
        if self.registry.has_prefixes() && !self.registry.has_topic(topic) {
            self.seen.note(topic, self.registry.get(topic).is_some());
        }
    }

    /// Whether a bounded topic has fewer messages here than it may run.
    pub(super) fn runs_dry(&self, in_flight: &InFlight, topic: &str) -> bool {
        let dry = |registered: &Registered| {
            registered.policy.concurrency.is_some_and(|bound| in_flight.of_lane(&registered.lane) < bound)
        };
        self.registry.get(topic).is_some_and(dry)
    }

    /// The handler of a message that was just claimed, or why it is not kept.
    pub(super) fn admit(&self, in_flight: &InFlight, claimed: &Claimed) -> Result<&Arc<Registered>, Outcome> {
        let (store, topic, id) = (&self.store, &claimed.topic, claimed.id());
        let Some(registered) = self.registry.share(topic) else {
            if self.options.own_topics_only {
                // Others wait for it.
                return Err(Outcome::Release { delay: None, error: None });
            }
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
    registered.policy.concurrency.is_some_and(|bound| in_flight.of_lane(&registered.lane) >= bound * 2)
}
