//! One end for a claim; what was acked is claimed again only after a requeue.
//!
//! Every call that ended something says so (`changed`), so ends are counted. The end of a claim counts
//! only for that claim's generation and owner: a worker that lost its claim changes nothing.

use std::collections::HashMap;

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::checker::story::{End, Story, Terminal};
use crate::checker::versions::{HighWater, Numbered};
use crate::history::{Answer, Call, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        let mut judge = Judge { queue: *queue, id: *id, violations: &mut violations };
        judge.claims(story);
        judge.terminals(evidence, story);
    }
    violations.extend(judge_completions(evidence));
    violations
}

struct Judge<'v> {
    queue: QueueName,
    id: Uuid,
    violations: &'v mut Vec<Violation>,
}

impl Judge<'_> {
    fn report(&mut self, text: &str, operations: &[&Operation<'_>]) {
        let lines = operations.iter().flat_map(|operation| &operation.lines).copied();
        let text = format!("{:?}: {text}", self.queue);
        self.violations.push(violation(Rule::OneEnd, text, [self.id], lines));
    }

    /// Each claim is ended once, by its owner, and before the item is claimed again.
    fn claims(&mut self, story: &Story<'_>) {
        let claims = story.claims.iter();
        let taken = HighWater::new(
            claims.map(|claim| Numbered { operation: claim.operation, number: claim.item.generation }),
        );
        let mut ended: HashMap<i64, &End<'_>> = HashMap::new();
        for end in story.ends.iter().filter(|end| end.sure) {
            let generation = end.generation;
            if let Some(first) = ended.insert(generation, end) {
                let text = format!("the claim of generation {generation} was ended twice");
                self.report(&text, &[first.operation, end.operation]);
            }
            if let Some(later) = taken.before(end.operation.invoked)
                && later.number > generation
            {
                let text = format!(
                    "a settle of generation {generation} was accepted after generation {} was claimed",
                    later.number
                );
                self.report(&text, &[later.operation, end.operation]);
            }
            let claim = story.claims.iter().find(|claim| claim.item.generation == generation);
            if let Some(claim) = claim
                && owner(claim.operation.call) != owner(end.operation.call)
            {
                let text = format!("generation {generation} was ended by another owner than its own");
                self.report(&text, &[claim.operation, end.operation]);
            }
        }
    }

    /// An item ends once for each of its lives, and only a requeue begins another one.
    fn terminals(&mut self, evidence: &Evidence<'_>, story: &Story<'_>) {
        // Added once more after a purge: which life a call belongs to can't be told.
        if story.is_added_again() {
            return;
        }
        let terminals = story.terminals();
        let sure: Vec<&Terminal<'_>> = terminals.iter().filter(|terminal| terminal.sure).collect();
        if sure.len() > 1 + story.requeues.len() && evidence.blind_requeues.is_empty() {
            let text = format!("it ended {} times and was requeued {}", sure.len(), story.requeues.len());
            let operations: Vec<_> = sure.iter().map(|terminal| terminal.operation).collect();
            self.report(&text, &operations);
        }
        for terminal in sure {
            let again = story.claims.iter().find(|claim| {
                let is_later = match terminal.generation {
                    Some(generation) => claim.item.generation > generation,
                    None => terminal.operation.before(claim.operation),
                };
                let from = terminal.operation.invoked;
                is_later
                    && (terminal.is_ack || !evidence.may_be_requeued(story, from, claim.operation.returned))
            });
            if let Some(again) = again {
                let text = format!("generation {} was claimed after the item ended", again.item.generation);
                self.report(&text, &[terminal.operation, again.operation]);
            }
        }
    }
}

fn owner(call: &Call) -> Option<Uuid> {
    match call {
        Call::Claim { owner, .. } | Call::Settle { owner, .. } | Call::Complete { owner, .. } => Some(*owner),
        _ => None,
    }
}

/// A received message that was completed is never reserved again.
fn judge_completions(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut completed: HashMap<(&str, &str), &Operation<'_>> = HashMap::new();
    for operation in evidence.operations.iter().filter(|operation| operation.surely()) {
        if let Call::Finish { source, id, .. } = operation.call {
            let first = completed.entry((source, id)).or_insert(operation);
            if operation.returned < first.returned {
                *first = operation;
            }
        }
    }
    let mut violations = Vec::new();
    for operation in evidence.operations {
        if let Call::Begin { source, id, .. } = operation.call
            && let Some(Answer::Begun { generation: Some(_) }) = operation.answer()
            && let Some(finish) = completed.get(&(source.as_str(), id.as_str()))
            && finish.before(operation)
        {
            let lines = finish.lines.iter().chain(&operation.lines).copied();
            let text = "a received message was reserved after it was completed";
            violations.push(violation(Rule::OneEnd, text, [format!("{source}/{id}")], lines));
        }
    }
    violations
}
