//! Joins: every member counts once, and the last one brings one continuation.

use std::collections::{BTreeMap, HashMap, HashSet};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::checker::operations::{NEVER, Operation};
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
    // A purge deletes the continuation as it deletes other messages.
    let from = join.call.map_or(0, |operation| operation.invoked);
    let story = join.continuation.and_then(|id| evidence.stories.get(&(QueueName::Outbox, id)));
    let can_be_purged =
        story.is_some_and(|story| story.finally.is_none() && evidence.may_be_purged(story, from, NEVER));
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
    // On a server whose tail was lost, members can have ended in other ways.
    let claims = continuation.claims.iter().map(|claim| claim.operation).filter(|claim| claim.surely());
    claims.min_by_key(|claim| claim.returned).filter(|claim| claim.returned < last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, claim, done, enqueue, found, id, item, legal, sent};
    use crate::history::{Answer, History, LOST_TAIL, Outcome};

    const JOIN: u128 = 9;
    const CONTINUATION: u128 = 3;

    fn call() -> Call {
        let member = |n| Sent { join: Some(id(JOIN)), ..sent(n) };
        Call::Join { id: id(JOIN), members: vec![member(1), member(2)], continuation: sent(CONTINUATION) }
    }

    /// A join of two messages, and the continuation that is handled `from` then on.
    fn joined(from: u64) -> Book {
        let mut book = Book::new();
        book.ok("producer", (10, 11), call(), Answer::Done);
        for (n, at) in [(1, 20), (2, 30), (CONTINUATION, from)] {
            book.claim("a", (at, at + 1), vec![item(n, 1)]);
            book.settle("a", (at + 2, at + 3), claim(n, 1), Outcome::Ack);
            book.row(done(n));
        }
        book
    }

    fn ended(book: &Book, total: u64, ended: u64, closed: bool, continuations: u64) -> History {
        let mut book = book.clone();
        book.end(Condition::Join { id: id(JOIN), total, ended, closed, continuations });
        book.history()
    }

    #[test]
    fn a_join_counts_its_members_and_has_one_continuation() {
        legal(&ended(&joined(40), 2, 2, true, 1));
        let wrong = [
            (3, 3, true, 1),
            (1, 1, true, 1),
            (2, 1, false, 0),
            (2, 2, true, 2),
            (2, 2, true, 0),
            (2, 3, true, 1),
        ];
        for (total, count, closed, continuations) in wrong {
            let history = ended(&joined(40), total, count, closed, continuations);
            let violations = found(Rule::Balance, &history);
            assert!(!violations.is_empty(), "{total} {count} {closed} {continuations}");
            assert_eq!(violations[0].ids, [id(JOIN).to_string()]);
            assert_eq!(violations[0].lines, ["producer:1", "producer:2", "controller:8"]);
        }
    }

    #[test]
    fn a_purge_may_have_deleted_the_continuation() {
        let mut book = joined(40);
        book.ok("operator", (90, 91), Call::Purge { age_ms: 0 }, Answer::Count(1));
        // Its row is there, so it was not purged.
        assert_eq!(found(Rule::Balance, &ended(&book, 2, 2, true, 0)).len(), 1);
        book.forget_rows_of(id(CONTINUATION));
        legal(&ended(&book, 2, 2, true, 0));
        assert_eq!(found(Rule::Balance, &ended(&book, 2, 2, true, 2)).len(), 1);
    }

    #[test]
    fn a_purge_deletes_no_continuation_that_was_never_handled() {
        let mut book = Book::new();
        book.ok("producer", (10, 11), call(), Answer::Done);
        for (n, at) in [(1, 20), (2, 30)] {
            book.claim("a", (at, at + 1), vec![item(n, 1)]);
            book.settle("a", (at + 2, at + 3), claim(n, 1), Outcome::Ack);
            book.row(done(n));
        }
        book.ok("operator", (90, 91), Call::Purge { age_ms: 0 }, Answer::Count(1));
        assert_eq!(found(Rule::Balance, &ended(&book, 2, 2, true, 0)).len(), 1);
        // Nor one that was handled after the purge.
        let mut late = joined(100);
        late.forget_rows_of(id(CONTINUATION));
        late.ok("operator", (90, 91), Call::Purge { age_ms: 0 }, Answer::Count(1));
        assert_eq!(found(Rule::Balance, &ended(&late, 2, 2, true, 0)).len(), 1);
    }

    #[test]
    fn the_continuation_comes_after_the_last_member() {
        let history = ended(&joined(25), 2, 2, true, 1);
        let violations = found(Rule::Balance, &history);
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].lines, ["producer:1", "producer:2", "a:9", "a:10"]);
        // Answered late: it may have been claimed after the ack of the last member.
        legal(&ended(&joined(32), 2, 2, true, 1));
    }

    #[test]
    fn a_member_can_be_attached_later() {
        let attached = |tell: &dyn Fn(&mut Book, Sent)| {
            let mut book = joined(40);
            tell(&mut book, Sent { join: Some(id(JOIN)), ..sent(4) });
            book
        };
        let surely = attached(&|book, sent| {
            book.enqueue("other", (12, 13), vec![sent]);
            book.claim("a", (14, 15), vec![item(4, 1)]);
            book.settle("a", (16, 17), claim(4, 1), Outcome::Ack);
            book.row(done(4));
        });
        legal(&ended(&surely, 3, 3, true, 1));
        assert_eq!(found(Rule::Balance, &ended(&surely, 2, 2, true, 1)).len(), 1);
        let perhaps = attached(&|book, sent| book.silent("other", 12, enqueue(vec![sent])));
        legal(&ended(&perhaps, 2, 2, true, 1));
    }

    #[test]
    fn a_join_is_there_if_its_call_was_answered() {
        let mut book = Book::new();
        book.silent("producer", 10, call());
        legal(&book.history());
        let gone = found(Rule::Balance, &joined(40).history());
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].lines, ["producer:1", "producer:2"]);
        let mut lost = Book::new();
        lost.ok("producer", (10, 11), call(), Answer::Done);
        lost.fault(LOST_TAIL, (11, 12));
        legal(&lost.history());
        let mut invented = Book::new();
        invented.fail("producer", (10, 11), call());
        let history = ended(&invented, 2, 2, true, 1);
        assert_eq!(found(Rule::Balance, &history).len(), 1);
    }
}
