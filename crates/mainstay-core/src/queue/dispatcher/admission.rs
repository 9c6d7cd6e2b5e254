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

    /// The handler of a topic, and how many deliveries a message of it may have.
    pub(super) fn handler(&self, topic: &str) -> Option<(Registered, u32)> {
        let registered = self.registry.get(topic)?.clone();
        Some((registered, self.registry.attempts(topic, &self.options)))
    }

    /// The topic of a message, shared where it has a handler of its own, and what it shares its bound with.
    pub(super) fn lane(&self, topic: &str) -> (Arc<str>, Arc<str>) {
        let lane = self.registry.get(topic).map_or_else(|| topic.into(), |found| Arc::clone(&found.lane));
        if *lane == *topic { (Arc::clone(&lane), lane) } else { (topic.into(), lane) }
    }

    /// What is to be said of a topic's lane and its bound, if it has one.
    fn compare(&self, topic: &str, says: impl FnOnce(&str, usize) -> bool) -> Option<bool> {
        let registered = self.registry.get(topic)?;
        Some(says(&registered.lane, registered.policy.concurrency?))
    }

    /// Topics that have as many messages waiting as may run: more would only be held, not handled. And those that are left to others. Where
    /// topics are handled by how they begin, of both only those that were seen.
    pub(super) fn left_out(&self, in_flight: &InFlight) -> Set<String> {
        let saturated = |topic: &str| self.is_saturated(in_flight, topic);
        let topics = self.registry.bounded().map(|(topic, _)| topic);
        let mut out: Set<String> = topics.filter(|topic| saturated(topic)).map(str::to_owned).collect();
        if self.registry.has_prefixes() {
            let others = |topic: &str| self.options.own_topics_only && self.registry.get(topic).is_none();
            self.seen.collect(&mut out, |topic| others(topic) || saturated(topic));
        }
        out
    }

    /// Remembers the topic of a message that came, where a claim can't say beforehand which are wanted.
    pub(super) fn note(&self, topic: &str) {
        if self.registry.has_prefixes() && !self.registry.has_topic(topic) {
            self.seen.note(topic);
        }
    }

    fn is_saturated(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.compare(topic, |lane, bound| in_flight.of_lane(lane) >= bound * 2).unwrap_or(false)
    }

    /// Whether a bounded topic has fewer messages here than it may run.
    pub(super) fn runs_dry(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.compare(topic, |lane, bound| in_flight.of_lane(lane) < bound).unwrap_or(false)
    }

    /// Whether one more handler of a topic may run.
    pub(super) fn may_run(&self, in_flight: &InFlight, topic: &str) -> bool {
        self.compare(topic, |lane, bound| in_flight.running_of_lane(lane) < bound).unwrap_or(true)
    }

    /// Why a message that was just claimed is not kept; none when it is.
    pub(super) fn turned_away(&self, in_flight: &InFlight, claimed: &Claimed) -> Option<Outcome> {
        let (store, topic, id) = (&self.store, &claimed.topic, claimed.id());
        let attempts = self.registry.attempts(topic, &self.options);
        if self.registry.get(topic).is_none() {
            if self.options.own_topics_only {
                // Others wait for it.
                return Some(Outcome::Release { delay: None, error: None });
            }
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
