//! The audit trail, and operations.

use metrics::counter;

use crate::audit::PreparedAudit;
use crate::operation::{Ended, OperationEnd, OperationId, PreparedOperation};

use super::names;

/// The application has written a record into the audit trail. What it says stays there.
pub(crate) fn audited(store: &str, record: &PreparedAudit) {
    tracing::debug!(store, id = %record.id, name = record.name, outcome = record.outcome.as_str(), "recorded");
    // Not by its name: there are as many as anybody makes up.
    let outcome = record.outcome.as_str();
    counter!(names::AUDITED, "store" => store.to_owned(), "outcome" => outcome).increment(1);
}

pub(crate) fn audit_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted records of the audit trail past their retention");
        counter!(names::AUDIT_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// An operation was started. What it is about stays in the database.
pub(crate) fn operation_started(store: &str, operation: &PreparedOperation) {
    tracing::debug!(store, operation = %operation.id, name = operation.name, "started an operation");
    counter!(names::OPERATIONS_STARTED, "store" => store.to_owned()).increment(1);
}

/// An operation was ended, or had been before.
pub(crate) fn operation_ended(store: &str, id: OperationId, end: &OperationEnd, ended: Ended) {
    let state = end.state().as_str();
    match ended {
        Ended::Now => {
            tracing::debug!(store, operation = %id, state, "ended an operation");
            counter!(names::OPERATIONS_ENDED, "store" => store.to_owned(), "state" => state).increment(1);
        }
        Ended::Before(before) if before == end.state() => {}
        Ended::Before(before) => {
            let before = before.as_str();
            tracing::warn!(store, operation = %id, state, before, "the operation had another end before, which stays");
        }
    }
}

/// Whoever works on an operation has noticed that somebody else has ended it.
pub(crate) fn operation_over(store: &str, id: OperationId) {
    tracing::warn!(store, operation = %id, "the operation was ended by somebody else while it was worked on");
}

/// Operations without a sign of life were given up.
pub(crate) fn operations_stalled(store: &str, ids: &[OperationId]) {
    for id in ids {
        tracing::warn!(store, operation = %id, "the operation showed no sign of life and was marked as stalled");
    }
    if !ids.is_empty() {
        counter!(names::OPERATIONS_ENDED, "store" => store.to_owned(), "state" => "stalled")
            .increment(ids.len() as u64);
    }
}

pub(crate) fn operations_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted operations past their retention");
        counter!(names::OPERATIONS_PURGED, "store" => store.to_owned()).increment(count);
    }
}
