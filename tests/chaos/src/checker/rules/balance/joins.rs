//! Joins: every member counts once, and the last one brings one continuation.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::checker::operations::Operation;
use crate::checker::story::Story;
use crate::history::{Call, Condition, QueueName, Sent, Within};
use crate::verdict::{Rule, Violation};

/// A join as the calls made it.
#[derive(Default)]
struct Made<'a> {
    call: Option<&'a Operation<'a>>,
    continuation: Option<Uuid>,
    /// Members, with whether they are there for certain.
    members: BTreeMap<Uuid, bool>,
}

/// A join as it stands at the end.
struct Stands {
    total: u64,
    ended: u64,
    is_closed: bool,
    continuations: u64,
}

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let made = made(evidence);
    let mut violations = Vec::new();
    let mut found = HashSet::new();
    for noted in &evidence.conditions {
        let Condition::Join { id, total, ended, closed, continuations } = noted.what else { continue };
        found.insert(*id);
        let stands =
            Stands { total: *total, ended: *ended, is_closed: *closed, continuations: *continuations };
        let Some(join) = made.get(id).filter(|join| join.call.is_some()) else {
            violations.push(violation(
                Rule::Balance,
                "a join is there that no call made",
                [id],
                [noted.line],
            ));
            continue;
        };
        for text in wrong(evidence, join, &stands) {
            violations.push(violation(Rule::Balance, text, [id], lines(join, Some(noted))));
        }
    }
    for (id, join) in &made {
        let is_made = join.call.is_some_and(Operation::surely);
        if is_made && !found.contains(id) {
            violations.push(violation(Rule::Balance, "a join is gone", [id], lines(join, None)));
        }
        if let Some(early) = early_continuation(evidence, join) {
            let text = "the continuation was claimed before all members can have ended";
            let lines = lines(join, None).into_iter().chain(early.lines.iter().copied());
            violations.push(violation(Rule::Balance, text, [id], lines));
        }
    }
    violations
}

fn made<'a>(evidence: &Evidence<'a>) -> BTreeMap<Uuid, Made<'a>> {
    let mut joins: HashMap<Uuid, Made<'a>> = HashMap::new();
    for operation in evidence.operations.iter().filter(|operation| operation.possibly()) {
        match operation.call {
            Call::Join { id, members, continuation } => {
                let join = joins.entry(*id).or_default();
                join.call = Some(operation);
                join.continuation = Some(continuation.id);
                join.add(members.iter(), operation.surely());
            }
            Call::Enqueue { messages, within: Within::Alone | Within::Commit } => {
                for sent in messages {
                    let Some(id) = sent.join else { continue };
                    // A duplicate adds no member.
                    let story = evidence.stories.get(&(QueueName::Outbox, sent.id));
                    let is_added = story.is_some_and(|story| is_added_by(story, operation));
                    if is_added {
                        joins.entry(id).or_default().add([sent], operation.surely());
                    }
                }
            }
            _ => {}
        }
    }
    joins.into_iter().collect()
}

fn is_added_by(story: &Story<'_>, operation: &Operation<'_>) -> bool {
    story.adds.iter().any(|add| std::ptr::eq(add.operation, operation))
}

impl<'a> Made<'a> {
    fn add(&mut self, members: impl IntoIterator<Item = &'a Sent>, sure: bool) {
        for sent in members {
            *self.members.entry(sent.id).or_default() |= sure;
        }
    }
}

fn wrong(evidence: &Evidence<'_>, join: &Made<'_>, stands: &Stands) -> Vec<String> {
    let mut texts = Vec::new();
    // The members came in with the join, if it is there.
    let call = join.call.map(|operation| operation.call);
    let own: HashSet<Uuid> = match call {
        Some(Call::Join { members, .. }) => members.iter().map(|sent| sent.id).collect(),
        _ => HashSet::new(),
    };
    let least = join.members.iter().filter(|(id, sure)| **sure || own.contains(id)).count() as u64;
    let most = join.members.len() as u64;
    let Stands { total, ended, is_closed, continuations } = *stands;
    if !(least..=most).contains(&total) {
        texts.push(format!("a join has {total} members, and calls added {least} to {most}"));
    }
    if ended > total {
        texts.push(format!("{ended} members of a join ended, and it has {total}"));
    }
    let have_ended = |id: &Uuid| {
        let story = evidence.stories.get(&(QueueName::Outbox, *id));
        story.is_none_or(|story| !matches!(story.status(), "ready" | "in_progress"))
    };
    let is_over = join.members.keys().all(have_ended);
    if is_over && (ended < total || !is_closed) {
        texts.push(format!(
            "all members of a join ended, and it counts {ended} of {total} and is {}",
            if is_closed { "closed" } else { "open" }
        ));
    }
    if is_closed && ended < total {
        texts.push(format!("a join is closed, and {ended} of {total} members ended"));
    }
    // A purge deletes continuations as it deletes other messages.
    let can_be_purged = evidence.has_possible("purge", None);
    let expected = u64::from(is_closed);
    if continuations > expected || continuations < expected && !can_be_purged {
        texts.push(format!("a join has {continuations} continuations instead of {expected}"));
    }
    texts
}

fn lines<'a>(join: &Made<'a>, noted: Option<&Noted<'a, &Condition>>) -> Vec<&'a str> {
    let call = join.call.into_iter().flat_map(|operation| operation.lines.iter().copied());
    call.chain(noted.map(|noted| noted.line)).collect()
}

/// Finds a claim of the continuation that was answered before the last member can have ended.
fn early_continuation<'a>(evidence: &Evidence<'a>, join: &Made<'a>) -> Option<&'a Operation<'a>> {
    let Some(Call::Join { members, .. }) = join.call.map(|operation| operation.call) else { return None };
    let first_end = |sent: &Sent| {
        let story = evidence.stories.get(&(QueueName::Outbox, sent.id))?;
        let is_certain = !evidence.may_be_rejected_unseen(QueueName::Outbox, story);
        let ends = story.terminals();
        ends.iter().map(|end| end.operation.invoked).min().filter(|_| is_certain)
    };
    let last = members.iter().filter_map(first_end).max()?;
    let continuation = evidence.stories.get(&(QueueName::Outbox, join.continuation?))?;
    let claims = continuation.claims.iter().map(|claim| claim.operation);
    claims.min_by_key(|claim| claim.returned).filter(|claim| claim.returned < last)
}
