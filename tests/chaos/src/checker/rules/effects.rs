//! One effect for each message whose handler writes it in its transaction.
//!
//! The effect and the ack commit together, so there is one row if the message was completed and none
//! otherwise: exactly once, however often the message was delivered. The same holds for rows that are
//! written under a lease's guard, for received messages that a reservation completes, and for rows of
//! applications that are committed together with a message.

mod business;

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::checker::operations::Operation;
use crate::checker::story::{End, Story};
use crate::history::{Call, Condition, Outcome, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = messages(evidence);
    violations.extend(guarded(evidence));
    violations.extend(received(evidence));
    violations.extend(business::judge(evidence));
    violations
}

/// Rows of effects, with the line that tells of them.
type Rows<'a> = Noted<'a, u64>;

/// Says what is wrong with the rows of something that calls may have written or wrote for certain.
fn wrong(rows: u64, may_be_written: bool, is_written: bool) -> Option<String> {
    match rows {
        0 if is_written => Some("its effect was committed and is gone".to_owned()),
        0 => None,
        _ if !may_be_written => Some("there is an effect that no call wrote".to_owned()),
        1 => None,
        _ => Some(format!("there are {rows} effects instead of one")),
    }
}

fn messages(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut effects: BTreeMap<Uuid, Rows<'_>> = BTreeMap::new();
    for noted in &evidence.conditions {
        if let Condition::Effect { id, rows } = noted.what {
            let what = effects.get(id).map_or(0, |known| known.what) + rows;
            effects.insert(*id, Noted { at: noted.at, line: noted.line, what });
        }
    }
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        let completions: Vec<&End<'_>> = story.ends.iter().filter(|end| end.has_effect).collect();
        // Another queue can have an item with this id: a timer and its message share it.
        if completions.is_empty() {
            continue;
        }
        let rows = effects.remove(id);
        let count = rows.map_or(0, |rows| rows.what);
        let is_completed = completions.iter().any(|end| end.sure);
        let text = wrong(count, true, is_completed).or_else(|| contradiction(*queue, story, count));
        if let Some(text) = text {
            let lines = completions.iter().flat_map(|end| &end.operation.lines).copied();
            let lines = lines.chain(rows.map(|rows| rows.line)).chain(story.finally.map(|state| state.line));
            violations.push(violation(Rule::Effects, format!("{queue:?}: {text}"), [id], lines));
        }
    }
    for (id, rows) in effects {
        if let Some(text) = wrong(rows.what, false, false) {
            violations.push(violation(Rule::Effects, text, [id], [rows.line]));
        }
    }
    violations
}

/// Says where the status at the end contradicts the effect, as both were written in one transaction.
fn contradiction(queue: QueueName, story: &Story<'_>, rows: u64) -> Option<String> {
    // Only Done messages are purged.
    let is_purged = queue == QueueName::Outbox && story.finally.is_none() && story.proof().is_some();
    let status = if is_purged { "done" } else { story.status() };
    if rows > 0 && !status.is_empty() && status != "done" {
        return Some(format!("its effect is there, and it is {status}"));
    }
    let mut acks = story.ends.iter().filter(|end| end.outcome == Outcome::Ack);
    let is_acked_with_effect = queue == QueueName::Outbox && acks.all(|end| end.has_effect);
    (rows == 0 && status == "done" && is_acked_with_effect)
        .then(|| "it is done, and its effect is not there".to_owned())
}

fn guarded(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut rows: HashMap<Uuid, Vec<(&str, i64, &str)>> = HashMap::new();
    for noted in &evidence.conditions {
        if let Condition::Guarded { name, epoch, value, .. } = noted.what {
            rows.entry(*value).or_default().push((name, *epoch, noted.line));
        }
    }
    let mut violations = Vec::new();
    let mut judge =
        |value: &Uuid, text: Option<String>, write: Option<&Operation<'_>>, found: &[(_, _, &str)]| {
            let Some(text) = text else { return };
            let lines = write.into_iter().flat_map(|write| &write.lines).copied();
            let lines = lines.chain(found.iter().map(|(_, _, line)| *line));
            violations.push(violation(Rule::Effects, format!("guarded write: {text}"), [value], lines));
        };
    for operation in evidence.operations {
        if let Call::GuardedWrite { name, epoch, value } = operation.call {
            let found = rows.remove(value).unwrap_or_default();
            let text = wrong(found.len() as u64, operation.possibly(), operation.surely());
            let is_other = found.iter().any(|row| (row.0, row.1) != (name.as_str(), *epoch));
            let text = text.or_else(|| is_other.then(|| "the row has another lease or epoch".to_owned()));
            judge(value, text, Some(operation), &found);
        }
    }
    let invented: BTreeMap<Uuid, _> = rows.into_iter().collect();
    for (value, found) in &invented {
        judge(value, wrong(found.len() as u64, false, false), None, found);
    }
    violations
}

fn received(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut completions: HashMap<(&str, &str), Vec<&Operation<'_>>> = HashMap::new();
    // A worker of the inbox's queue can have completed it.
    let mut is_queued: HashMap<(&str, &str), bool> = HashMap::new();
    for operation in evidence.operations.iter().filter(|operation| operation.possibly()) {
        match operation.call {
            Call::Finish { source, id, .. } => completions.entry((source, id)).or_default().push(operation),
            Call::Receive { source, id, .. } => _ = is_queued.insert((source, id), true),
            _ => {}
        }
    }
    let mut violations = Vec::new();
    for noted in &evidence.conditions {
        let Condition::Received { source, id, status, effects } = noted.what else { continue };
        let key = (source.as_str(), id.as_str());
        let finishes = completions.remove(&key).unwrap_or_default();
        let may_be_written = !finishes.is_empty() || is_queued.contains_key(&key);
        let is_written = finishes.iter().any(|finish| finish.surely());
        let text = wrong(*effects, may_be_written, is_written).or_else(|| {
            (*effects > 0 && status != "done").then(|| format!("its effect is there, and it is {status}"))
        });
        if let Some(text) = text {
            let lines = finishes.iter().flat_map(|finish| &finish.lines).copied().chain([noted.line]);
            let text = format!("received message: {text}");
            violations.push(violation(Rule::Effects, text, [format!("{source}/{id}")], lines));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken, claim, done, found, id, item, legal, owner, sent};
    use crate::history::{Answer, History, LOST_TAIL, MessageState};

    fn complete() -> Call {
        Call::Complete { queue: QueueName::Outbox, owner: owner("a"), claim: claim(1, 1) }
    }

    /// A message that `a` has claimed.
    fn claimed() -> Book {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book
    }

    fn completed(rows: u64) -> Book {
        let mut book = claimed();
        book.ok("a", (14, 15), complete(), Answer::Done);
        book.row(done(1));
        effect(&mut book, rows);
        book
    }

    fn effect(book: &mut Book, rows: u64) {
        if rows > 0 {
            book.end(Condition::Effect { id: id(1), rows });
        }
    }

    #[track_caller]
    fn one(history: &History) {
        let violations = broken(Rule::Effects, history);
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].ids, [id(1).to_string()]);
    }

    #[test]
    fn a_completed_message_has_one_effect() {
        legal(&completed(1).history());
        one(&completed(0).history());
        one(&completed(2).history());
    }

    #[test]
    fn a_completion_that_was_never_answered_has_both_its_effect_and_its_ack_or_neither() {
        let unknown = |status: &str, rows| {
            let mut book = claimed();
            book.silent("a", 14, complete());
            book.row(MessageState { status: status.to_owned(), ..done(1) });
            effect(&mut book, rows);
            book.history()
        };
        legal(&unknown("done", 1));
        one(&unknown("done", 0));
        assert_eq!(found(Rule::Effects, &unknown("ready", 0)), []);
        assert_eq!(found(Rule::Effects, &unknown("ready", 1)).len(), 1);
    }

    #[test]
    fn a_purged_message_has_its_effect() {
        let purged = |rows| {
            let mut book = claimed();
            book.silent("a", 14, complete());
            book.ok("operator", (90, 91), Call::Purge { age_ms: 0 }, Answer::Count(1));
            effect(&mut book, rows);
            book.history()
        };
        legal(&purged(1));
        one(&purged(0));
    }

    #[test]
    fn a_completion_that_failed_has_no_effect() {
        let mut book = claimed();
        book.fail("a", (14, 15), complete());
        book.settle("a", (16, 17), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        legal(&book.history());
        effect(&mut book, 1);
        one(&book.history());
    }

    #[test]
    fn a_failover_can_lose_a_completion_with_its_effect() {
        let mut book = completed(0);
        book.fault(LOST_TAIL, (14, 20));
        // Done without an effect is wrong on either server.
        one(&book.history());
        let mut book = claimed();
        book.ok("a", (14, 15), complete(), Answer::Done);
        book.fault(LOST_TAIL, (14, 20));
        book.claim("b", (30, 31), vec![crate::history::Item { attempt: 2, ..item(1, 2) }]);
        book.settle("b", (32, 33), claim(1, 2), Outcome::Ack);
        book.row(MessageState { attempts: 2, generation: Some(2), ..done(1) });
        legal(&book.history());
    }

    /// Writes under a lease's guard, and what is there in the end.
    fn guarded(writes: &[(i64, Uuid)], rows: &[(i64, Uuid)]) -> History {
        let mut book = Book::new();
        for (n, (epoch, value)) in (10..).zip(writes) {
            let call = Call::GuardedWrite { name: "l".to_owned(), epoch: *epoch, value: *value };
            book.ok("a", (10 * n, 10 * n + 1), call, Answer::Done);
        }
        for (epoch, value) in rows {
            book.end(Condition::Guarded { name: "l".to_owned(), epoch: *epoch, value: *value, seen: None });
        }
        book.history()
    }

    #[test]
    fn a_guarded_write_is_there_once() {
        assert_eq!(found(Rule::Effects, &guarded(&[(1, id(1))], &[(1, id(1))])), []);
        for rows in [&[][..], &[(1, id(1)), (1, id(1))], &[(2, id(1))]] {
            assert_eq!(found(Rule::Effects, &guarded(&[(1, id(1))], rows)).len(), 1, "{rows:?}");
        }
        assert_eq!(found(Rule::Effects, &guarded(&[], &[(1, id(1))])).len(), 1);
    }

    /// A received message that is reserved and completed.
    fn received(answer: Option<Answer>, status: &str, effects: u64) -> History {
        let mut book = Book::new();
        let (source, id) = ("shop".to_owned(), "r1".to_owned());
        let begin = Call::Begin { source: source.clone(), id: id.clone(), lease_ms: 1_000 };
        book.ok("a", (10, 11), begin, Answer::Begun { generation: Some(1) });
        let finish = Call::Finish { source: source.clone(), id: id.clone(), generation: 1 };
        match answer {
            Some(answer) => book.ok("a", (12, 13), finish, answer),
            None => book.silent("a", 12, finish),
        }
        book.end(Condition::Received { source, id, status: status.to_owned(), effects });
        book.history()
    }

    #[test]
    fn a_received_message_has_one_effect() {
        legal(&received(Some(Answer::Done), "done", 1));
        legal(&received(None, "done", 1));
        legal(&received(None, "seen", 0));
        assert_eq!(broken(Rule::Effects, &received(Some(Answer::Done), "done", 0)).len(), 1);
        assert_eq!(broken(Rule::Effects, &received(Some(Answer::Done), "done", 2)).len(), 1);
        assert_eq!(broken(Rule::Effects, &received(None, "processing", 1)).len(), 1);
    }
}
