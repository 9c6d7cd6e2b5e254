//! Rows that applications write in the transactions that enqueue messages.
//!
//! A row and its message commit together. So a row comes with its message, a message with its row, and a
//! transaction that was rolled back leaves neither.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::checker::operations::{NEVER, Operation};
use crate::checker::story::Story;
use crate::history::{Answer, Call, Condition, QueueName, Sent, Within};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let recorded = evidence.conditions.iter().find_map(|noted| match noted.what {
        Condition::Business { ids } => Some(Noted { at: noted.at, line: noted.line, what: ids }),
        _ => None,
    });
    let Some(recorded) = recorded else { return Vec::new() };
    let mut rows: HashMap<Uuid, u64> = HashMap::new();
    for id in recorded.what {
        *rows.entry(*id).or_default() += 1;
    }
    let mut writes: BTreeMap<Uuid, Vec<Write<'_>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Call::Enqueue { messages, within: within @ (Within::Commit | Within::Rollback) } =
            operation.call
        {
            for sent in messages {
                let is_committed = *within == Within::Commit;
                writes.entry(sent.id).or_default().push(Write { operation, sent, is_committed });
            }
        }
    }
    let mut violations = Vec::new();
    let invented: BTreeSet<&Uuid> = recorded.what.iter().filter(|id| !writes.contains_key(*id)).collect();
    for id in invented {
        let text = "business row: no transaction wrote it";
        violations.push(violation(Rule::Effects, text, [id], [recorded.line]));
    }
    for (id, writes) in &writes {
        let count = rows.get(id).copied().unwrap_or(0);
        if let Some(text) = wrong(evidence, *id, writes, count) {
            let lines = writes.iter().flat_map(|write| &write.operation.lines).copied();
            let text = format!("business row: {text}");
            violations.push(violation(Rule::Effects, text, [id], lines.chain([recorded.line])));
        }
    }
    violations
}

/// A transaction with a row and its message.
struct Write<'a> {
    operation: &'a Operation<'a>,
    sent: &'a Sent,
    is_committed: bool,
}

impl Write<'_> {
    fn may_be_there(&self) -> bool {
        self.is_committed && self.operation.possibly()
    }

    /// Returns whether the row may be there without a message of its own: the idempotency key has another one.
    fn may_be_duplicate(&self) -> bool {
        match self.operation.answer() {
            Some(Answer::Enqueued { duplicates, .. }) => duplicates.contains(&self.sent.id),
            _ => self.sent.idempotency_key.is_some(),
        }
    }
}

fn wrong(evidence: &Evidence<'_>, id: Uuid, writes: &[Write<'_>], rows: u64) -> Option<&'static str> {
    let story = evidence.stories.get(&(QueueName::Outbox, id));
    let possible: Vec<&Write<'_>> = writes.iter().filter(|write| write.may_be_there()).collect();
    let is_sure = possible.iter().any(|write| write.operation.surely());
    match rows {
        0 if is_sure => return Some("its transaction was committed, and it is gone"),
        0 => {
            // Calls without a row of their own may have added the message.
            let is_only = story.is_some_and(|story| story.adds.len() == possible.len());
            return (is_only && story.is_some_and(was_there)).then_some("its message is there without it");
        }
        _ if possible.is_empty() => {
            return Some("its transaction was rolled back or failed, and it is there");
        }
        _ if rows > possible.len() as u64 => return Some("it is there more than once"),
        _ => {}
    }
    let from = possible.iter().map(|write| write.operation.invoked).min().unwrap_or(0);
    let is_explained = possible.iter().any(|write| write.may_be_duplicate())
        || story.is_some_and(|story| story.finally.is_some() || evidence.may_be_purged(story, from, NEVER));
    (!is_explained).then_some("it is there without its message")
}

/// Returns whether a message was there for certain, on the server of the end.
fn was_there(story: &Story<'_>) -> bool {
    story.finally.is_some() || story.claims.iter().any(|claim| claim.operation.surely())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, claim, done, enqueue, id, item, legal, sent};
    use crate::history::{LOST_TAIL, Outcome};

    /// A transaction that writes a row and a message, and what is there at the end.
    fn transaction(tell: impl Fn(&mut Book), has_message: bool, rows: usize) -> Book {
        let mut book = Book::new();
        tell(&mut book);
        if has_message {
            book.claim("a", (20, 21), vec![item(1, 1)]);
            book.settle("a", (22, 23), claim(1, 1), Outcome::Ack);
            book.row(done(1));
        }
        book.end(Condition::Business { ids: vec![id(1); rows] });
        book
    }

    #[track_caller]
    fn one(book: &Book, lines: &[&str]) {
        broken_by(Rule::Effects, &book.history(), &[&id(1).to_string()], lines);
    }

    #[test]
    fn a_committed_transaction_has_its_row_and_its_message() {
        let committed = |book: &mut Book| book.enqueue("producer", (10, 11), vec![sent(1)]);
        legal(&transaction(committed, true, 1).history());
        for rows in [0, 2] {
            one(&transaction(committed, true, rows), &["producer:1", "producer:2", "controller:6"]);
        }
        let mut purged = transaction(committed, true, 1);
        purged.forget_conditions();
        purged.ok("operator", (30, 31), Call::Purge { age_ms: 0 }, Answer::Count(1));
        purged.end(Condition::Business { ids: vec![id(1)] });
        assert_eq!(crate::checker::testing::found(Rule::Effects, &purged.history()), []);
    }

    #[test]
    fn a_transaction_that_was_rolled_back_or_failed_has_no_row() {
        let failed = |book: &mut Book| book.fail("producer", (10, 11), enqueue(vec![sent(1)]));
        let rolled_back = |book: &mut Book| {
            let call = Call::Enqueue { messages: vec![sent(1)], within: Within::Rollback };
            book.ok("producer", (10, 11), call, Answer::RolledBack);
        };
        for call in [&failed as &dyn Fn(&mut Book), &rolled_back] {
            legal(&transaction(call, false, 0).history());
            one(&transaction(call, false, 1), &["producer:1", "producer:2", "controller:5"]);
        }
        one(&transaction(|_| {}, false, 1), &["controller:5"]);
    }

    #[test]
    fn of_a_commit_without_an_answer_both_or_neither_are_there() {
        let silent = |book: &mut Book| book.silent("producer", 10, enqueue(vec![sent(1)]));
        legal(&transaction(silent, true, 1).history());
        legal(&transaction(silent, false, 0).history());
        one(&transaction(silent, false, 1), &["producer:1", "controller:5"]);
        one(&transaction(silent, true, 0), &["producer:1", "controller:6"]);
    }

    #[test]
    fn a_failover_loses_both_or_neither() {
        let lost = |book: &mut Book| {
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.fault(LOST_TAIL, (5, 15));
        };
        legal(&transaction(lost, true, 1).history());
        legal(&transaction(lost, false, 0).history());
        one(&transaction(lost, false, 1), &["producer:1", "producer:2", "controller:7"]);
        one(&transaction(lost, true, 0), &["producer:1", "producer:2", "controller:8"]);
    }

    #[test]
    fn a_duplicate_leaves_a_row_without_a_message_of_its_own() {
        let keyed = || Sent { idempotency_key: Some("k".to_owned()), ..sent(2) };
        let duplicate = |answer: Option<Answer>| {
            let mut book = Book::new();
            book.handled(10, 1);
            match answer {
                Some(answer) => book.ok("producer", (20, 21), enqueue(vec![keyed()]), answer),
                None => book.silent("producer", 20, enqueue(vec![keyed()])),
            }
            book.end(Condition::Business { ids: vec![id(1), id(2)] });
            book
        };
        let answer = Answer::Enqueued { ids: vec![id(1)], duplicates: vec![id(2)] };
        legal(&duplicate(Some(answer)).history());
        legal(&duplicate(None).history());
    }
}
