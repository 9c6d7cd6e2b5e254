//! Leases: one holder at a time, epochs and fencing tokens that only grow, and guarded writes that
//! never follow those of the next holder.

use std::collections::{BTreeMap, HashMap};

use super::{Hold, overlaps, violation};
use crate::checker::evidence::Evidence;
use crate::checker::linear::{self, Lease};
use crate::checker::operations::Operation;
use crate::checker::versions::{Conflict, Numbered, backwards, repeated};
use crate::checker::windows::Windows;
use crate::history::{Answer, Call, Condition};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut leases: BTreeMap<&str, Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Some(name) = lease(operation.call) {
            leases.entry(name).or_default().push(operation);
        }
    }
    let mut violations = Vec::new();
    for (name, calls) in &leases {
        violations.extend(overlaps(&format!("lease {name}"), holds(evidence, calls)));
        violations.extend(numbers(name, calls));
        violations.extend(linear::judge::<Lease>(evidence, &format!("lease {name}"), calls));
    }
    violations.extend(commits(evidence));
    violations
}

/// Returns the lease that a call is about.
fn lease(call: &Call) -> Option<&str> {
    match call {
        Call::Acquire { name, .. }
        | Call::Prolong { name, .. }
        | Call::GiveUp { name, .. }
        | Call::ForceRelease { name }
        | Call::GuardedWrite { name, .. } => Some(name),
        _ => None,
    }
}

/// Returns when each epoch of a lease was held for certain.
fn holds<'a>(evidence: &Evidence<'_>, calls: &[&'a Operation<'a>]) -> Vec<Hold<'a>> {
    // By epoch: until when its holder reckons, and when it may have been given up.
    let mut until: HashMap<i64, u64> = HashMap::new();
    let mut given_up: HashMap<i64, u64> = HashMap::new();
    // Calls that may have taken it from any holder.
    let mut forced: Vec<(u64, u64)> = Vec::new();
    for operation in calls.iter().filter(|operation| operation.possibly()) {
        match (operation.call, operation.answer()) {
            (Call::GiveUp { epoch, .. }, _) => {
                let first = given_up.entry(*epoch).or_insert(operation.invoked);
                *first = operation.invoked.min(*first);
            }
            (Call::ForceRelease { .. }, _) => forced.push((operation.invoked, operation.returned)),
            (_, Some(Answer::Granted { epoch, until: deadline, .. })) if operation.surely() => {
                let last = until.entry(*epoch).or_insert(*deadline);
                *last = (*deadline).max(*last);
            }
            _ => {}
        }
    }
    let forced = Windows::new(forced);
    let mut holds = Vec::new();
    for operation in calls.iter().filter(|operation| operation.surely()) {
        let Call::Acquire { owner, .. } = operation.call else { continue };
        let Some(Answer::Granted { epoch, .. }) = operation.answer() else { continue };
        if evidence.clock_steps.touch(operation.invoked, operation.returned) {
            continue;
        }
        let to = [
            given_up.get(epoch).copied(),
            forced.next_from(operation.invoked),
            evidence.clock_steps.next_from(operation.returned),
        ]
        .into_iter()
        .flatten()
        .fold(until[epoch], u64::min);
        let what = format!("{owner} under epoch {epoch}");
        holds.push(Hold { from: operation.returned, to, operation, what });
    }
    holds
}

/// Judges epochs and tokens as the calls were answered.
fn numbers(name: &str, calls: &[&Operation<'_>]) -> Vec<Violation> {
    let mut acquired = Vec::new();
    let mut tokens = Vec::new();
    // Every call that proves that an epoch was held.
    let mut held = Vec::new();
    for operation in calls {
        match (operation.call, operation.answer()) {
            (call, Some(Answer::Granted { epoch, token, .. })) => {
                if matches!(call, Call::Acquire { .. }) {
                    acquired.push(Numbered { operation, number: *epoch });
                }
                held.push(Numbered { operation, number: *epoch });
                tokens.push(Numbered { operation, number: *token });
            }
            (Call::GuardedWrite { epoch, .. }, Some(Answer::Done)) => {
                held.push(Numbered { operation, number: *epoch });
            }
            _ => {}
        }
    }
    let report = |conflicts: Vec<Conflict<'_>>, what: &str| -> Vec<Violation> {
        let told = conflicts.into_iter().map(|conflict| {
            let (first, second) = (conflict.first.number, conflict.second.number);
            let text = format!("lease {name}: {what} {second} after {what} {first}");
            violation(Rule::Exclusion, text, [name], conflict.lines())
        });
        told.collect()
    };
    let mut violations = report(repeated(&acquired), "epoch");
    violations.extend(report(backwards(&held), "epoch"));
    violations.extend(report(repeated(&tokens), "fencing token"));
    violations.extend(report(backwards(&tokens), "fencing token"));
    violations
}

/// Judges guarded writes by the order in which they were committed.
fn commits(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut highest: HashMap<&str, (i64, &str)> = HashMap::new();
    let mut violations = Vec::new();
    for noted in &evidence.conditions {
        let Condition::Guarded { name, epoch, .. } = noted.what else { continue };
        let last = highest.entry(name).or_insert((*epoch, noted.line));
        if *epoch < last.0 {
            let text =
                format!("lease {name}: a write of epoch {epoch} was committed after one of epoch {}", last.0);
            violations.push(violation(Rule::Exclusion, text, [name], [last.1, noted.line]));
        } else {
            *last = (*epoch, noted.line);
        }
    }
    violations
}
