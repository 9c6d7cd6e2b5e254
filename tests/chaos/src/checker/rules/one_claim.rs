//! One claim for an id and a generation; generations grow over the id's whole life.
//!
//! A worker's only proof of a claim is (id, owner, generation). Were a generation given twice, a late
//! settle of the first claim would end the second one's work.

use std::collections::BTreeMap;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::story::Story;
use crate::checker::versions::{Numbered, backwards, repeated};
use crate::history::{Answer, Call, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        let claims = story.claims.iter();
        let numbers: Vec<Numbered<'_>> = claims
            .map(|claim| Numbered { operation: claim.operation, number: claim.item.generation })
            .collect();
        violations.extend(judge_generations(&format!("{queue:?}"), &id.to_string(), &numbers));
        violations.extend(judge_row(*queue, &id.to_string(), story, &numbers));
        violations.extend(judge_adds(evidence, *queue, &id.to_string(), story));
    }
    for ((source, id), numbers) in reservations(evidence) {
        violations.extend(judge_generations("reservation", &format!("{source}/{id}"), &numbers));
    }
    violations
}

fn judge_generations(what: &str, id: &str, numbers: &[Numbered<'_>]) -> Vec<Violation> {
    let twice = repeated(numbers).into_iter().map(|conflict| {
        let text = format!("{what}: generation {} was handed out twice", conflict.first.number);
        violation(Rule::OneClaim, text, [id], conflict.lines())
    });
    let back = backwards(numbers).into_iter().map(|conflict| {
        let (first, second) = (conflict.first.number, conflict.second.number);
        let text = format!("{what}: generation {second} was handed out after {first}");
        violation(Rule::OneClaim, text, [id], conflict.lines())
    });
    twice.chain(back).collect()
}

/// The row at the end knows of every claim.
fn judge_row(
    queue: QueueName,
    id: &str,
    story: &Story<'_>,
    numbers: &[Numbered<'_>],
) -> Option<Violation> {
    let state = story.finally?;
    let generation = state.what.generation?;
    let lasting = numbers.iter().filter(|it| it.operation.surely());
    let highest = lasting.max_by_key(|it| it.number).filter(|it| it.number > generation)?;
    let text = format!(
        "{queue:?}: generation {} was handed out, and the row has {generation} at the end",
        highest.number
    );
    let lines = highest.operation.lines.iter().copied().chain([state.line]);
    Some(violation(Rule::OneClaim, text, [id], lines))
}

/// An id is used once, until a purge forgets it: the second of two calls that add it fails.
fn judge_adds(evidence: &Evidence<'_>, queue: QueueName, id: &str, story: &Story<'_>) -> Option<Violation> {
    let mut sent = story.adds.iter().filter(|add| add.sure && add.sent.is_some());
    let (first, second) = (sent.next()?, sent.next()?);
    let (from, to) = (first.operation.invoked, second.operation.returned);
    if queue == QueueName::Outbox && evidence.may_be_purged(story, from, to) {
        return None;
    }
    let lines = first.operation.lines.iter().chain(&second.operation.lines).copied();
    Some(violation(Rule::OneClaim, format!("{queue:?}: an id was added twice"), [id], lines))
}

/// The reservations of each received message, by source and id.
fn reservations<'a>(evidence: &Evidence<'a>) -> BTreeMap<(&'a str, &'a str), Vec<Numbered<'a>>> {
    let mut reservations: BTreeMap<_, Vec<Numbered<'a>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Call::Begin { source, id, .. } = operation.call
            && let Some(Answer::Begun { generation: Some(number) }) = operation.answer()
        {
            let numbered = Numbered { operation, number: *number };
            reservations.entry((source.as_str(), id.as_str())).or_default().push(numbered);
        }
    }
    reservations
}
