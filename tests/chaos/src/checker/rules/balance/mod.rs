//! Ledger and queue, runs and occurrences, joins and members agree.

mod idempotency;
mod jobs;
mod joins;
mod received;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::verdict::Violation;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = joins::judge(evidence);
    violations.extend(jobs::judge(evidence));
    violations.extend(received::judge(evidence));
    violations.extend(idempotency::judge(evidence));
    violations
}
