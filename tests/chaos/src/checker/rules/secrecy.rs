//! No payload in a log.
//!
//! Every payload of a run has a marker in it that begins with [`MARKER`]; no line of a log may.

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::history::{Call, MARKER};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let leaks = evidence.leaks.iter().map(|leak| {
        // The text is in the log. Here it would leak once more, into every report.
        violation(Rule::Secrecy, "a payload is in a log", [""; 0], [leak.place.as_str()])
    });
    let unmarked = evidence.operations.iter().find(|operation| !is_marked(operation)).map(|operation| {
        let text =
            format!("a payload's marker does not begin with {MARKER}, so logs can't be searched for it");
        violation(Rule::Secrecy, text, [""; 0], operation.lines.iter().copied())
    });
    leaks.chain(unmarked).collect()
}

fn is_marked(operation: &Operation<'_>) -> bool {
    let is_marked = |marker: &str| marker.starts_with(MARKER);
    match operation.call {
        Call::Enqueue { messages, .. } | Call::Schedule { messages } => {
            messages.iter().all(|sent| is_marked(&sent.marker))
        }
        Call::Join { members, continuation, .. } => {
            members.iter().chain([continuation]).all(|sent| is_marked(&sent.marker))
        }
        Call::Receive { marker, .. } => is_marked(marker),
        _ => true,
    }
}
