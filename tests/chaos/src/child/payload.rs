//! What a message tells its handler to do.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::history::MARKER;
use crate::random::Random;

/// What a handler does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Returns.
    Ack,
    /// Writes an effect and completes in one transaction.
    Complete,
    /// Fails so many deliveries, then completes.
    Retry(u32),
    /// Snoozes every other time, then completes.
    Snooze,
    /// Fails for good.
    Fail,
}

/// A payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Payload {
    marker: String,
    /// What the handler does.
    pub(crate) act: Act,
    /// How long it takes for it.
    pub(crate) ms: u64,
}

impl Payload {
    /// A payload as drawn.
    pub(crate) fn draw(random: &mut Random, lease_ms: u64) -> Self {
        let act = match random.between(0, 99) {
            0..45 => Act::Complete,
            45..83 => Act::Ack,
            83..91 => Act::Retry(random.between(1, 2) as u32),
            91..96 => Act::Snooze,
            _ => Act::Fail,
        };
        // A few go on for longer than a lease, which is renewed meanwhile.
        let ms = if random.percent(2) { lease_ms * 3 / 2 } else { random.between(0, 8) };
        Self { marker: format!("{MARKER}{}", Uuid::new_v4().simple()), act, ms }
    }

    /// Completes at once.
    pub(crate) fn plain() -> Self {
        Self { marker: format!("{MARKER}{}", Uuid::new_v4().simple()), act: Act::Complete, ms: 0 }
    }

    /// Its text.
    pub(crate) fn text(&self) -> String {
        // Made of texts and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a payload; what is no payload of ours completes.
    pub(crate) fn read(text: &str) -> Self {
        let other = Self { marker: String::new(), act: Act::Complete, ms: 0 };
        serde_json::from_str(text).unwrap_or(other)
    }

    /// The marker in a payload.
    pub(crate) fn marker_of(text: &str) -> String {
        Self::read(text).marker
    }

    /// Its marker.
    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }
}
