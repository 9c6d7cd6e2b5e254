//! Messages delivered to HTTP handlers. No URL gets here: its path may be what lets one in.

use std::time::Duration;

use metrics::{counter, gauge, histogram};

use crate::breaker::BreakerState;

use super::names;

/// Stands for all databases: a route has one receiver, whichever its messages come from.
const WEBHOOKS: &str = "webhooks";

/// What came of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// The receiver has it.
    Delivered,
    /// The receiver does not want it, and never will.
    Gone,
    /// The receiver answered otherwise.
    Rejected,
    /// There was no answer in time.
    Timeout,
    /// There was no answer at all.
    Unreachable,
    /// The receiver's address is none that may be delivered to.
    Forbidden,
}

impl Delivered {
    /// Its name as a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Gone => "gone",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Forbidden => "forbidden",
        }
    }
}

/// A delivery has ended. What becomes of the message is told by the queue.
pub fn webhook_delivered(store: &str, route: &str, outcome: Delivered, took: Duration) {
    let labels = || {
        let outcome = outcome.as_str();
        [("store", store.to_owned()), ("route", route.to_owned()), ("outcome", outcome.to_owned())]
    };
    counter!(names::WEBHOOK_DELIVERIES, &labels()).increment(1);
    histogram!(names::WEBHOOK_SECONDS, &labels()).record(took);
    tracing::debug!(store, route, outcome = outcome.as_str(), ?took, "a delivery has ended");
}

/// A message was put off, because its receiver is left alone, or has no room.
pub fn webhook_put_off(store: &str, route: &str) {
    counter!(names::WEBHOOK_PUT_OFF, "store" => store.to_owned(), "route" => route.to_owned()).increment(1);
}

/// A receiver has failed so often that it is left alone for a while.
pub fn webhook_left_alone(route: &str, failures: u32, pause: Duration, why: &str) {
    tracing::warn!(
        store = WEBHOOKS,
        route,
        failures,
        ?pause,
        why,
        "a receiver fails; it is left alone for a while, and its messages wait"
    );
}

/// A receiver that was left alone works again.
pub fn webhook_recovered(route: &str) {
    tracing::info!(store = WEBHOOKS, route, "a receiver works again");
}

/// Whether a receiver is left alone.
pub fn webhook_breaker(route: &str, state: BreakerState) {
    let level = match state {
        BreakerState::Closed => 0.0,
        BreakerState::HalfOpen => 1.0,
        BreakerState::Open => 2.0,
    };
    gauge!(names::WEBHOOK_BREAKER, "store" => WEBHOOKS, "route" => route.to_owned()).set(level);
}
