//! Everything ends, and due work never waits for long beside a healthy worker.
//!
//! Two leases are the longest that work may wait: a worker that lost its connection without a word
//! keeps what it has claimed for one lease, and notices within another.

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::history::{Answer, Call, QueueName, Run, Sample};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = ending(evidence);
    if let Some(run) = evidence.run {
        violations.extend(waiting(evidence, run.what));
    }
    violations
}

fn ending(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    match evidence.settled {
        None => {
            let text = "the run has no line that tells whether all work ended";
            violations.push(violation(Rule::Liveness, text, [""; 0], []));
        }
        Some(settled) if settled.what > 0 => {
            let text = format!("{} items were still open when all should have ended", settled.what);
            violations.push(violation(Rule::Liveness, text, [""; 0], [settled.line]));
        }
        Some(_) => {}
    }
    for ((queue, id), story) in &evidence.stories {
        let Some(state) = story.finally else { continue };
        if !matches!(state.what.status.as_str(), "done" | "failed") {
            let text = format!("{queue:?}: an item is {} at the end", state.what.status);
            let claims = story.claims.iter().flat_map(|claim| &claim.operation.lines);
            let lines = claims.copied().chain([state.line]);
            violations.push(violation(Rule::Liveness, text, [id], lines));
        }
    }
    violations
}

/// Finds stretches in which messages were due, workers were healthy, and nothing was claimed.
fn waiting(evidence: &Evidence<'_>, run: &Run) -> Vec<Violation> {
    let longest = 2 * run.lease_ms * 1_000_000;
    let mut claims: Vec<u64> = evidence
        .operations
        .iter()
        .filter(|operation| {
            matches!(operation.call, Call::Claim { queue: QueueName::Outbox, .. })
                && matches!(operation.answer(), Some(Answer::Claimed { items, rejected })
                    if !(items.is_empty() && rejected.is_empty()))
        })
        .map(|operation| operation.returned)
        .collect();
    claims.sort_unstable();
    let mut violations = Vec::new();
    // The first sample since the last claim at which work waited, and the last one.
    let mut stretch: Option<(Noted<'_, &Sample>, Noted<'_, &Sample>)> = None;
    let mut close = |stretch: Option<(Noted<'_, &Sample>, Noted<'_, &Sample>)>| {
        let Some((first, last)) = stretch.filter(|(first, last)| last.at - first.at > longest) else {
            return;
        };
        let text = format!(
            "nothing was claimed for {} ms although work was due and a worker was healthy; the most is {} ms",
            (last.at - first.at) / 1_000_000,
            longest / 1_000_000
        );
        violations.push(violation(Rule::Liveness, text, [""; 0], [first.line, last.line]));
    };
    for sample in &evidence.samples {
        let waits = sample.what.due.is_some_and(|due| due > 0)
            && sample.what.healthy_workers.is_some_and(|workers| workers > 0);
        let claimed_before = claims.partition_point(|at| *at <= sample.at);
        stretch = match stretch {
            _ if !waits => {
                close(stretch.take());
                None
            }
            Some((first, _)) if claims.partition_point(|at| *at <= first.at) == claimed_before => {
                Some((first, *sample))
            }
            _ => {
                close(stretch.take());
                Some((*sample, *sample))
            }
        };
    }
    close(stretch);
    violations
}
