//! Work items: one claim of an item, and one item of an ordering key, at a time.

use std::collections::BTreeMap;

use super::{Hold, NANOSECONDS, overlaps};
use crate::checker::evidence::Evidence;
use crate::checker::story::{Claimed, Story};
use crate::history::{Call, QueueName};
use crate::verdict::Violation;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut by_key: BTreeMap<(QueueName, &str), Vec<Hold<'_>>> = BTreeMap::new();
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        let mut holds = Vec::new();
        for claim in &story.claims {
            let Some((from, to)) = held(evidence, story, claim) else { continue };
            let what = format!("{id} generation {}", claim.item.generation);
            let hold = Hold { from, to, operation: claim.operation, what };
            match &claim.item.key {
                Some(key) => by_key.entry((*queue, key)).or_default().push(hold),
                None => holds.push(hold),
            }
        }
        violations.extend(overlaps(&format!("{queue:?}: an item"), holds));
    }
    for ((queue, key), holds) in by_key {
        violations.extend(overlaps(&format!("{queue:?}: ordering key {key}"), holds));
    }
    violations
}

/// Returns when a claim was held for certain.
fn held(evidence: &Evidence<'_>, story: &Story<'_>, claim: &Claimed<'_>) -> Option<(u64, u64)> {
    let operation = claim.operation;
    let Call::Claim { lease_ms, .. } = operation.call else { return None };
    if !operation.surely() || evidence.clock_steps.touch(operation.invoked, operation.returned) {
        return None;
    }
    let generation = claim.item.generation;
    // A renewal only extends a claim that still holds, so there is no gap before it.
    let renewals = story.renewals.iter().filter(|renewal| renewal.generation == generation);
    let lapses = renewals
        .map(|renewal| renewal.operation.invoked + renewal.lease_ms * NANOSECONDS)
        .chain([operation.invoked + lease_ms * NANOSECONDS])
        .max()?;
    let ends = story.ends.iter().filter(|end| end.generation == generation);
    let to = ends
        .map(|end| end.operation.invoked)
        .chain(evidence.clock_steps.next_from(operation.returned))
        .fold(lapses, u64::min);
    Some((operation.returned, to))
}
