//! Reservations of received messages: one at a time, by calls that some order explains.

use std::collections::BTreeMap;

use super::{Hold, NANOSECONDS, overlaps};
use crate::checker::evidence::Evidence;
use crate::checker::linear::{self, Reservation};
use crate::checker::operations::Operation;
use crate::history::{Answer, Call};
use crate::verdict::Violation;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut calls: BTreeMap<(&str, &str), Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Call::Begin { source, id, .. }
        | Call::Finish { source, id, .. }
        | Call::Receive { source, id, .. } = operation.call
        {
            calls.entry((source, id)).or_default().push(operation);
        }
    }
    let mut violations = Vec::new();
    for ((source, id), calls) in calls {
        let resource = format!("the reservation of {source}/{id}");
        violations.extend(overlaps(&resource, holds(evidence, &calls)));
        // The queue's workers hold it too, where it was received into the queue.
        if !calls.iter().any(|operation| matches!(operation.call, Call::Receive { .. })) {
            violations.extend(linear::judge::<Reservation>(evidence, &resource, &calls));
        }
    }
    violations
}

fn holds<'a>(evidence: &Evidence<'_>, calls: &[&'a Operation<'a>]) -> Vec<Hold<'a>> {
    let mut finished: BTreeMap<i64, u64> = BTreeMap::new();
    // Also by a call that failed: its guard is dropped, which releases the message.
    for operation in calls {
        if let Call::Finish { generation, .. } = operation.call {
            let first = finished.entry(*generation).or_insert(operation.invoked);
            *first = operation.invoked.min(*first);
        }
    }
    let mut holds = Vec::new();
    for operation in calls.iter().filter(|operation| operation.surely()) {
        let Call::Begin { lease_ms, .. } = operation.call else { continue };
        let Some(Answer::Begun { generation: Some(generation) }) = operation.answer() else { continue };
        if evidence.clock_steps.touch(operation.invoked, operation.returned) {
            continue;
        }
        let to = [finished.get(generation).copied(), evidence.clock_steps.next_from(operation.returned)]
            .into_iter()
            .flatten()
            .fold(operation.invoked + lease_ms * NANOSECONDS, u64::min);
        let what = format!("generation {generation}");
        holds.push(Hold { from: operation.returned, to, operation, what });
    }
    holds
}
