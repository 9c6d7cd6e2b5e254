//! Every message whose enqueue was answered ends, or an operator's call accounts for it.
//!
//! A row that is gone was purged: purges tell how many rows they deleted. A row that is Done was
//! acked, and one that is Failed was failed by a call; a row that ended without any such call was
//! never handled, so its message is lost as well. Items that are still open are a matter of
//! [`liveness`](super::liveness).

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::story::Story;
use crate::history::{Answer, Call, Outcome, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut purged: Vec<(Uuid, &Story<'_>)> = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        match story.status() {
            "" => {
                let Some(add) = story.sure_add() else { continue };
                if *queue == QueueName::Outbox && !story.terminals().is_empty() {
                    purged.push((*id, story));
                } else {
                    let text = format!("{queue:?}: an item was added and is gone at the end");
                    violations.push(violation(
                        Rule::NothingLost,
                        text,
                        [id],
                        add.lines.iter().copied(),
                    ));
                }
            }
            "done" if !may_be_done(evidence, *queue, story) => {
                violations.push(unexplained(*queue, *id, story, "Done, and nothing acked it"));
            }
            "failed" if !may_be_failed(evidence, *queue, story) => {
                violations.push(unexplained(*queue, *id, story, "Failed, and nothing failed it"));
            }
            _ => {}
        }
    }
    if let Some(most) = most_purged(evidence)
        && purged.len() as u64 > most
    {
        let text = format!("{} settled messages are gone, and purges deleted {most}", purged.len());
        let lines = purged.iter().filter_map(|(_, story)| story.sure_add()).flat_map(|add| &add.lines);
        let ids = purged.iter().map(|(id, _)| id);
        violations.push(violation(Rule::NothingLost, text, ids, lines.copied()));
    }
    violations
}

fn unexplained(queue: QueueName, id: Uuid, story: &Story<'_>, how: &str) -> Violation {
    let adds = story.adds.iter().flat_map(|add| &add.operation.lines);
    let claims = story.claims.iter().flat_map(|claim| &claim.operation.lines);
    let lines = adds.chain(claims).copied().chain(story.finally.map(|state| state.line));
    violation(Rule::NothingLost, format!("{queue:?}: an item is {how}"), [id], lines)
}

/// Returns how many rows purges deleted at most. None: there is no telling.
fn most_purged(evidence: &Evidence<'_>) -> Option<u64> {
    let purges = evidence.operations.iter().filter(|operation| operation.possibly());
    let counts = purges.filter(|operation| matches!(operation.call, Call::Purge { .. })).map(|purge| {
        match purge.answer() {
            Some(Answer::Count(count)) => Some(*count),
            _ => None,
        }
    });
    counts.sum()
}

fn may_be_done(evidence: &Evidence<'_>, queue: QueueName, story: &Story<'_>) -> bool {
    let is_acked = story.ends.iter().any(|end| end.outcome == Outcome::Ack);
    is_acked
        || match queue {
            QueueName::Outbox => false,
            // A reservation of the received message can complete it as well.
            QueueName::Inbox => evidence.has_possible("finish", None),
            QueueName::Timers | QueueName::Runs => {
                !story.forwards.is_empty() || evidence.has_unknown("forward", Some(queue))
            }
        }
}

fn may_be_failed(evidence: &Evidence<'_>, queue: QueueName, story: &Story<'_>) -> bool {
    let is_failed = story.terminals().iter().any(|terminal| !terminal.is_ack);
    // A claim fails what has expired or was delivered too often. A forward fails what has another's id.
    is_failed
        || evidence.has_unknown("claim", Some(queue))
        || evidence.has_possible("forward", Some(queue))
}
