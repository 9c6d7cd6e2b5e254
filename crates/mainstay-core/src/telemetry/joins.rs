//! Joins.

use metrics::{counter, gauge};

use crate::id::JoinId;
use crate::join::{CancelledJoin, Counted, JoinReason, JoinState, JoinStats, PreparedJoin};

use super::names;

pub(crate) fn join_started(store: &str, join: &PreparedJoin) {
    tracing::info!(
        store,
        join = %join.id(),
        grouping_key = join.grouping_key(),
        mode = join.mode().as_str(),
        expected_steps = join.expected(),
        deadline = ?join.deadline(),
        "a join was started"
    );
    counter!(names::JOINS_STARTED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn join_attached(store: &str, join: JoinId, added: u64) {
    tracing::debug!(store, join = %join, added, "members were attached to a join");
    if added > 0 {
        counter!(names::JOINS_ATTACHED, "store" => store.to_owned()).increment(added);
    }
}

/// Steps were counted, by hand or by the end of their messages, and joins may have ended by that. Providers tell of what a settle
/// has counted.
pub fn joins_counted(store: &str, counted: &[Counted]) {
    for Counted { join, completed, failed, state, reason } in counted {
        for (count, outcome) in [(*completed, "completed"), (*failed, "failed")] {
            if count > 0 {
                tracing::debug!(store, join = %join, outcome, count, "steps of a join were counted");
                counter!(names::JOINS_COUNTED, "store" => store.to_owned(), "outcome" => outcome)
                    .increment(u64::from(count));
            }
        }
        match state {
            JoinState::Pending | JoinState::Cancelled => continue,
            JoinState::Completed => tracing::info!(store, join = %join, "a join has completed"),
            JoinState::Failed => {
                let reason = reason.map_or("steps", JoinReason::as_str);
                tracing::warn!(store, join = %join, reason, "a join has failed");
            }
        }
        counter!(names::JOINS_ENDED, "store" => store.to_owned(), "outcome" => state.as_str()).increment(1);
    }
}

pub(crate) fn join_cancelled(store: &str, join: JoinId, cancelled: &CancelledJoin) {
    let (changed, messages) = (cancelled.changed, cancelled.messages.len());
    tracing::info!(store, join = %join, changed, messages, "a join was cancelled by an operator");
    if changed {
        let outcome = JoinState::Cancelled.as_str();
        counter!(names::JOINS_ENDED, "store" => store.to_owned(), "outcome" => outcome).increment(1);
    }
}

pub(crate) fn joins_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted joins past their retention");
        counter!(names::JOINS_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// Publishes the gauges of joins.
pub fn join_gauges(store: &str, stats: &JoinStats) {
    gauge!(names::JOINS_PENDING, "store" => store.to_owned()).set(stats.pending as f64);
    gauge!(names::JOINS_OVERDUE, "store" => store.to_owned()).set(stats.overdue as f64);
}
