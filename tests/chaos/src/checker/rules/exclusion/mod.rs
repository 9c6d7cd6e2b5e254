//! One in-progress message of an ordering key; one holder of a lease, an inbox guard, a bucket.
//!
//! Something is held for certain from the answer that granted it to the first instant at which it may
//! have been given up, or its lease may have lapsed. Two such stretches of one resource never overlap.

mod buckets;
mod items;
mod leases;
mod reservations;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = items::judge(evidence);
    violations.extend(leases::judge(evidence));
    violations.extend(reservations::judge(evidence));
    violations.extend(buckets::judge(evidence));
    violations
}

const NANOSECONDS: u64 = 1_000_000;

/// A stretch of time in which something was held for certain.
#[derive(Debug, Clone)]
struct Hold<'a> {
    from: u64,
    /// Not included.
    to: u64,
    /// The call that was granted it.
    operation: &'a Operation<'a>,
    /// What was granted, for the report.
    what: String,
}

/// Finds holds of one resource that overlap.
fn overlaps(resource: &str, mut holds: Vec<Hold<'_>>) -> Vec<Violation> {
    holds.retain(|hold| hold.from < hold.to);
    holds.sort_by_key(|hold| hold.from);
    let mut violations = Vec::new();
    let mut longest: Option<Hold<'_>> = None;
    for hold in holds {
        if let Some(held) = longest.as_ref().filter(|held| held.to > hold.from) {
            let text = format!(
                "{resource} was held twice for {} µs: {} and {}",
                (held.to.min(hold.to) - hold.from).div_ceil(1_000),
                held.what,
                hold.what
            );
            let lines = held.operation.lines.iter().chain(&hold.operation.lines).copied();
            violations.push(violation(Rule::Exclusion, text, [&held.what, &hold.what], lines));
        }
        if longest.as_ref().is_none_or(|held| held.to < hold.to) {
            longest = Some(hold);
        }
    }
    violations
}
