//! Whether the processes of a run did enough for a verdict: a run in which a kind of process always fails proves nothing.

use std::collections::BTreeMap;

use super::operations::Operation;
use crate::history::{Kind, Run};

/// Answered calls for each minute of faults that a kind of process makes at least, even on a slow machine.
const EACH_MINUTE: f64 = 3.0;

/// What each kind of process is there for.
const NEEDED: [(Kind, &[&str]); 9] = [
    (Kind::Producer, &["enqueue", "schedule", "join"]),
    (Kind::Worker, &["claim", "handle", "settle", "complete"]),
    (Kind::SqlWorker, &["claim", "handle", "settle", "complete"]),
    (Kind::HttpWorker, &["claim", "handle", "settle"]),
    (Kind::Scheduler, &["forward", "materialise"]),
    (Kind::LeaseHolder, &["acquire", "guarded_write", "give_up"]),
    (Kind::Receiver, &["receive", "begin", "finish"]),
    (Kind::Operator, &["requeue"]),
    (Kind::FleetNode, &["own"]),
];

/// Finds the kinds of processes that did too little, as texts.
pub(super) fn missing(run: &Run, operations: &[Operation<'_>]) -> Vec<String> {
    let mut answered: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.answer().is_some()) {
        *answered.entry((place(operation.process), operation.call.kind())).or_default() += 1;
    }
    let least = (run.minutes * EACH_MINUTE) as u64;
    let mut missing = Vec::new();
    for (kind, calls) in NEEDED {
        // SQLite has no functions to call.
        if kind == Kind::SqlWorker && run.provider == "sqlite" {
            continue;
        }
        for call in calls {
            let count = answered.get(&(kind.as_str(), *call)).copied().unwrap_or(0);
            if count < least {
                missing.push(format!(
                    "{}: {count} answered calls of {call}, at least {least} are needed",
                    kind.as_str()
                ));
            }
        }
    }
    missing
}

/// The kind of a process by its name: `sql-worker` of `sql-worker-1.17`.
fn place(process: &str) -> &str {
    process.rsplit_once('-').map_or(process, |(kind, _)| kind)
}
