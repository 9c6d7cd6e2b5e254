//! Counts of timers.

use std::time::Duration;

use serde::Serialize;

use crate::outbox::{OutboxStats, TopicStats};

/// How many timers stand where.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TimerStats {
    /// Not fired yet, overdue or not.
    pub pending: u64,
    /// Of these, those whose due time has passed.
    pub overdue: u64,
    /// Claimed by somebody, instead of being left to fire.
    pub claimed: u64,
    /// Fired (as far as retention has kept them).
    pub fired: u64,
    /// Cancelled, expired, or failed by whoever claimed them.
    pub failed: u64,
    /// For how long the oldest of the overdue ones has been.
    pub oldest_overdue: Option<Duration>,
    /// By topic, sorted by name: `ready` are overdue, `scheduled` are due later.
    pub topics: Vec<TopicStats>,
}

impl From<OutboxStats> for TimerStats {
    fn from(stats: OutboxStats) -> Self {
        Self {
            pending: stats.ready + stats.scheduled,
            overdue: stats.ready,
            claimed: stats.in_progress,
            fired: stats.done,
            failed: stats.failed,
            oldest_overdue: stats.oldest_ready,
            topics: stats.topics,
        }
    }
}
