//! One claim for an id and a generation; generations grow over the id's whole life.
//!
//! A worker's only proof of a claim is (id, owner, generation). Were a generation given twice, a late
//! settle of the first claim would end the second one's work.

use std::collections::{BTreeMap, HashMap};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::checker::story::{Story, place};
use crate::checker::versions::{Numbered, backwards, repeated, unless_lost};
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
        violations.extend(judge_place(*queue, &id.to_string(), story));
    }
    violations.extend(judge_places(evidence));
    for ((source, id), numbers) in reservations(evidence) {
        violations.extend(judge_generations("reservation", &format!("{source}/{id}"), &numbers));
    }
    violations
}

fn judge_generations(what: &str, id: &str, numbers: &[Numbered<'_>]) -> Vec<Violation> {
    let twice = repeated(numbers, unless_lost).into_iter().map(|conflict| {
        let text = format!("{what}: generation {} was handed out twice", conflict.first.number);
        violation(Rule::OneClaim, text, [id], conflict.lines())
    });
    let back = backwards(numbers, unless_lost).into_iter().map(|conflict| {
        let (first, second) = (conflict.first.number, conflict.second.number);
        let text = format!("{what}: generation {second} was handed out after {first}");
        violation(Rule::OneClaim, text, [id], conflict.lines())
    });
    twice.chain(back).collect()
}

/// The row at the end knows of every claim.
fn judge_row(queue: QueueName, id: &str, story: &Story<'_>, numbers: &[Numbered<'_>]) -> Option<Violation> {
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

/// Generations count from the place of the item, so all of them tell the same place, and the row has it.
fn judge_place(queue: QueueName, id: &str, story: &Story<'_>) -> Option<Violation> {
    // An id that was used again has another place.
    if story.is_added_again() || queue == QueueName::Inbox {
        return None;
    }
    let mut places = story.claims.iter().filter(|claim| claim.operation.surely()).filter_map(|claim| {
        let seq = place(claim.item.generation)?;
        Some((seq, claim.operation.lines.clone()))
    });
    let (seq, lines) = places.next()?;
    let row = story.finally.and_then(|state| Some((state.what.seq?, vec![state.line])));
    let (other, other_lines) = places.chain(row).find(|(other, _)| *other != seq)?;
    let text = format!("{queue:?}: a generation tells place {seq}, and another one or the row {other}");
    Some(violation(Rule::OneClaim, text, [id], lines.into_iter().chain(other_lines)))
}

/// Two items of a queue never have the same place.
fn judge_places(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut known: HashMap<(QueueName, i64), (Uuid, &Operation<'_>)> = HashMap::new();
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        for claim in story.claims.iter().filter(|claim| claim.operation.surely()) {
            let Some(seq) = place(claim.item.generation) else { continue };
            let (first, operation) = *known.entry((*queue, seq)).or_insert((*id, claim.operation));
            if first != *id {
                let text = format!("{queue:?}: two items have place {seq}");
                let lines = operation.lines.iter().chain(&claim.operation.lines).copied();
                violations.push(violation(Rule::OneClaim, text, [first, *id], lines));
            }
        }
    }
    violations
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, claim, done, enqueue, found, id, item, legal, sent};
    use crate::history::{History, Item, LOST_TAIL, MessageState, Outcome};

    /// A message that is delivered twice: the first worker's lease lapses.
    fn redelivered(first: i64, second: i64) -> Book {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![Item { attempt: 1, ..item(1, first) }]);
        book.claim("b", (2_000, 2_001), vec![Item { attempt: 2, ..item(1, second) }]);
        book.settle("b", (2_002, 2_003), claim(1, second), Outcome::Ack);
        book
    }

    /// Expects a conflict of the two claims of a redelivered message.
    #[track_caller]
    fn conflict(history: &History) {
        let violations = found(Rule::OneClaim, history);
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].ids, [id(1).to_string()]);
        assert_eq!(violations[0].lines, ["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_redelivery_has_the_next_generation() {
        let mut book = redelivered(1, 2);
        book.row(MessageState { attempts: 2, generation: Some(2), ..done(1) });
        legal(&book.history());
    }

    #[test]
    fn no_generation_is_handed_out_twice() {
        conflict(&redelivered(1, 1).history());
    }

    #[test]
    fn generations_do_not_go_back() {
        conflict(&redelivered(2, 1).history());
    }

    #[test]
    fn generations_of_calls_at_the_same_time_have_no_order() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 3_000), vec![item(1, 2)]);
        book.claim("b", (13, 14), vec![item(1, 1)]);
        book.settle("a", (3_001, 3_002), claim(1, 2), Outcome::Ack);
        book.row(MessageState { attempts: 2, generation: Some(2), ..done(1) });
        legal(&book.history());
    }

    #[test]
    fn a_failover_gives_the_generations_of_its_lost_tail_again() {
        let mut book = redelivered(1, 1);
        book.fault(LOST_TAIL, (13, 100));
        assert_eq!(found(Rule::OneClaim, &book.history()), []);
    }

    #[test]
    fn the_row_knows_of_every_claim() {
        let mut book = redelivered(1, 2);
        book.row(MessageState { attempts: 1, generation: Some(1), ..done(1) });
        broken_by(Rule::OneClaim, &book.history(), &[&id(1).to_string()], &["b:1", "b:2", "controller:5"]);
    }

    #[test]
    fn generations_count_from_the_place_of_the_item() {
        const PLACE: i64 = 7 << 16;
        let delivered = |second: i64, seq: i64| {
            let mut book = redelivered(PLACE + 1, second);
            book.row(MessageState { attempts: 2, generation: Some(second), seq: Some(seq), ..done(1) });
            book.history()
        };
        legal(&delivered(PLACE + 2, 7));
        for wrong in [delivered(PLACE + 2, 8), delivered((8 << 16) + 2, 7)] {
            assert_eq!(found(Rule::OneClaim, &wrong).len(), 1);
        }
    }

    #[test]
    fn two_items_have_two_places() {
        let claimed = |places: [i64; 2]| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1), sent(2)]);
            for (n, seq) in (1..).zip(places) {
                book.claim("a", (12, 13), vec![Item { generation: (seq << 16) + 1, ..item(n, 1) }]);
            }
            found(Rule::OneClaim, &book.history())
        };
        assert_eq!(claimed([7, 8]), []);
        let violations = claimed([7, 7]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].ids, [1, 2].map(|n| id(n).to_string()));
    }

    #[test]
    fn an_id_is_accepted_once() {
        let mut book = Book::new();
        book.handled(10, 1);
        book.enqueue("producer", (20, 21), vec![sent(1)]);
        let lines = ["producer:1", "producer:2", "producer:3", "producer:4"];
        broken_by(Rule::OneClaim, &book.history(), &[&id(1).to_string()], &lines);
        let mut book = Book::new();
        book.handled(10, 1);
        book.fail("producer", (20, 21), enqueue(vec![sent(1)]));
        legal(&book.history());
    }

    #[test]
    fn a_reservation_has_a_generation_of_its_own() {
        let begin = Call::Begin { source: "shop".to_owned(), id: "r1".to_owned(), lease_ms: 1_000 };
        let mut book = Book::new();
        let begun = Answer::Begun { generation: Some(1) };
        book.ok("a", (10, 11), begin.clone(), begun.clone());
        book.ok("b", (2_000, 2_001), begin, begun);
        let violations = found(Rule::OneClaim, &book.history());
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].ids, ["shop/r1"]);
    }

    #[test]
    fn a_claim_does_not_bring_an_item_twice() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1), item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        let violations = found(Rule::OneClaim, &book.history());
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].lines, ["a:1", "a:2"]);
    }
}
