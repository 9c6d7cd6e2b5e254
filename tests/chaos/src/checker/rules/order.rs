//! Messages of an ordering key are handled in order.
//!
//! The order is that of the sequence numbers. A claim tells the number in its generation, so that messages
//! whose rows were purged are judged as well. A message is open for certain from the answer to its
//! enqueue to the first call that may have ended it; while it is, nothing behind it is claimed.
//! Messages of concurrent transactions have no order between them: the later one may be claimed before
//! the earlier one commits, and the rule says nothing then. Neither does it judge what follows a
//! requeue, which gives a message its old place back.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::{NEVER, Operation};
use crate::checker::story::Story;
use crate::history::QueueName;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut lanes: BTreeMap<(QueueName, &str), Lane<'_>> = BTreeMap::new();
    for ((queue, id), story) in &evidence.stories {
        let known = story.lane();
        // Of what went on within a lost tail the rows tell nothing.
        for claim in story.claims.iter().filter(|claim| claim.operation.surely()) {
            if let Some((key, seq)) = claim.lane().or(known) {
                lanes.entry((*queue, key)).or_default().claims.push((claim.operation, seq, *id));
            }
        }
        if let Some((key, seq)) = known {
            lanes.entry((*queue, key)).or_default().open.extend(open(evidence, *queue, *id, seq, story));
        }
    }
    lanes.into_iter().flat_map(|((queue, key), lane)| lane.judge(queue, key)).collect()
}

/// A message while it was open for certain.
struct Open<'a> {
    seq: i64,
    id: Uuid,
    from: u64,
    to: u64,
    add: &'a Operation<'a>,
}

/// The messages of an ordering key.
#[derive(Default)]
struct Lane<'a> {
    open: Vec<Open<'a>>,
    claims: Vec<(&'a Operation<'a>, i64, Uuid)>,
}

fn open<'a>(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    seq: i64,
    story: &Story<'a>,
) -> Option<Open<'a>> {
    let add = story.sure_add()?;
    if story.is_added_again() || evidence.may_be_rejected_unseen(queue, story) {
        return None;
    }
    let terminals = story.terminals();
    let to = terminals.iter().map(|terminal| terminal.operation.invoked).min().unwrap_or(NEVER);
    Some(Open { seq, id, from: add.returned, to, add })
}

impl Lane<'_> {
    fn judge(mut self, queue: QueueName, key: &str) -> Vec<Violation> {
        self.claims.sort_by_key(|(operation, seq, _)| (operation.invoked, *seq));
        self.open.sort_by_key(|open| open.from);
        let mut begins = 0;
        // Open at the time of the claim: by sequence number, and by when they end.
        let mut ahead: BTreeSet<(i64, usize)> = BTreeSet::new();
        let mut by_end: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut violations = Vec::new();
        for (claim, seq, id) in self.claims {
            while let Some(open) = self.open.get(begins).filter(|open| open.from <= claim.invoked) {
                ahead.insert((open.seq, begins));
                by_end.insert((open.to, begins));
                begins += 1;
            }
            while let Some(&(to, index)) = by_end.first().filter(|(to, _)| *to < claim.invoked) {
                by_end.remove(&(to, index));
                ahead.remove(&(self.open[index].seq, index));
            }
            // Those that ended while the claim was under way may have ended before it.
            let mut earlier = ahead.range(..(seq, 0)).map(|(_, index)| &self.open[*index]);
            if let Some(first) = earlier.find(|open| open.to > claim.returned) {
                let text = format!(
                    "{queue:?}: of ordering key {key}, number {seq} was claimed while {} was open",
                    first.seq
                );
                let lines = first.add.lines.iter().chain(&claim.lines).copied();
                violations.push(violation(Rule::Order, text, [first.id, id], lines));
            }
        }
        violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{
        Book, broken_by, claim, done, enqueue, found, id, item, legal, sent, settle,
    };
    use crate::history::{Answer, Call, History, Item, LOST_TAIL, MessageState, Outcome, Sent};

    fn keyed(n: u128) -> Sent {
        Sent { key: Some("k".to_owned()), ..sent(n) }
    }

    /// Two messages of one ordering key that one worker handles, each in a claim of its own.
    fn handled(times: [(u64, u64); 2], before: impl Fn(&mut Book)) -> History {
        let mut book = Book::new();
        before(&mut book);
        for (n, (from, to)) in (1..).zip(times) {
            let process = if n == 1 { "a" } else { "b" };
            book.claim(process, (from, from + 1), vec![Item { key: Some("k".to_owned()), ..item(n, 1) }]);
            book.settle(process, (to, to + 1), claim(n, 1), Outcome::Ack);
            book.row(MessageState { key: Some("k".to_owned()), ..done(n) });
        }
        book.history()
    }

    fn both(book: &mut Book) {
        book.enqueue("producer", (10, 11), vec![keyed(1), keyed(2)]);
    }

    #[test]
    fn messages_of_a_key_are_claimed_one_after_the_other() {
        legal(&handled([(20, 22), (24, 26)], both));
    }

    #[test]
    fn a_later_message_is_not_claimed_while_an_earlier_one_is_open() {
        let history = handled([(30, 32), (20, 22)], both);
        let ids = [1, 2].map(|n| id(n).to_string());
        let lines = ["producer:1", "producer:2", "b:1", "b:2"];
        broken_by(Rule::Order, &history, &[&ids[0], &ids[1]], &lines);
    }

    /// Two messages of one ordering key whose rows were purged.
    fn purged(times: [(u64, u64); 2]) -> History {
        let mut book = Book::new();
        both(&mut book);
        for ((n, process), (from, to)) in [(1_i32, "a"), (2, "b")].into_iter().zip(times) {
            let generation = (i64::from(n) << 16) + 1;
            let n = u128::from(n.unsigned_abs());
            let item = Item { generation, key: Some("k".to_owned()), ..item(n, 1) };
            book.claim(process, (from, from + 1), vec![item]);
            book.settle(process, (to, to + 1), claim(n, generation), Outcome::Ack);
        }
        book.ok("operator", (90, 91), Call::Purge { age_ms: 0 }, Answer::Count(2));
        book.history()
    }

    #[test]
    fn a_generation_tells_the_place_of_a_message_without_a_row() {
        legal(&purged([(20, 30), (32, 34)]));
        // Answered when the first one may have been acked.
        legal(&purged([(20, 30), (30, 34)]));
        let ids = [1, 2].map(|n| id(n).to_string());
        let lines = ["producer:1", "producer:2", "b:1", "b:2"];
        broken_by(Rule::Order, &purged([(30, 32), (20, 22)]), &[&ids[0], &ids[1]], &lines);
    }

    #[test]
    fn another_key_has_an_order_of_its_own() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![keyed(1), Sent { key: Some("l".to_owned()), ..sent(2) }]);
        for (n, key, at) in [(2, "l", 20), (1, "k", 30)] {
            book.claim("a", (at, at + 1), vec![Item { key: Some(key.to_owned()), ..item(n, 1) }]);
            book.settle("a", (at + 2, at + 3), claim(n, 1), Outcome::Ack);
            book.row(MessageState { key: Some(key.to_owned()), ..done(n) });
        }
        legal(&book.history());
    }

    #[test]
    fn messages_of_concurrent_transactions_have_no_order() {
        // The first one commits when the second one is claimed already.
        legal(&handled([(30, 32), (20, 22)], |book| {
            book.enqueue("producer", (10, 29), vec![keyed(1)]);
            book.enqueue("other", (10, 11), vec![keyed(2)]);
        }));
        legal(&handled([(30, 32), (20, 22)], |book| {
            book.silent("producer", 10, enqueue(vec![keyed(1)]));
            book.enqueue("other", (10, 11), vec![keyed(2)]);
        }));
    }

    #[test]
    fn an_end_that_was_never_answered_may_have_let_the_next_one_go() {
        let mut book = Book::new();
        both(&mut book);
        book.claim("a", (20, 21), vec![Item { key: Some("k".to_owned()), ..item(1, 1) }]);
        book.silent("a", 22, settle("a", claim(1, 1), Outcome::Ack));
        book.claim("b", (24, 25), vec![Item { key: Some("k".to_owned()), ..item(2, 1) }]);
        book.settle("b", (26, 27), claim(2, 1), Outcome::Ack);
        for n in 1..=2 {
            book.row(MessageState { key: Some("k".to_owned()), ..done(n) });
        }
        legal(&book.history());
    }

    #[test]
    fn a_message_that_was_requeued_does_not_hold_up_what_went_on_after_it_failed() {
        let mut book = Book::new();
        both(&mut book);
        let first = |generation, attempt| Item { key: Some("k".to_owned()), attempt, ..item(1, generation) };
        book.claim("a", (20, 21), vec![first(1, 1)]);
        book.settle("a", (22, 23), claim(1, 1), Outcome::Fail);
        book.claim("b", (24, 25), vec![Item { key: Some("k".to_owned()), ..item(2, 1) }]);
        let changed = Answer::Changed { changed: vec![id(1)], stale: vec![] };
        book.ok("operator", (25, 26), Call::Requeue { ids: vec![id(1)] }, changed);
        book.settle("b", (26, 27), claim(2, 1), Outcome::Ack);
        book.claim("a", (28, 29), vec![first(2, 1)]);
        book.settle("a", (30, 31), claim(1, 2), Outcome::Ack);
        book.row(MessageState { key: Some("k".to_owned()), generation: Some(2), ..done(1) });
        book.row(MessageState { key: Some("k".to_owned()), ..done(2) });
        legal(&book.history());
    }

    #[test]
    fn a_claim_that_a_failover_lost_may_have_followed_an_end_that_it_lost() {
        let claims = |book: &mut Book| {
            both(book);
            // Some of these fail the first message, on the server that is lost.
            (0..4).for_each(|n| book.silent("c", 12 + n, crate::checker::testing::take("c")));
        };
        legal(&handled([(50, 52), (30, 45)], |book| {
            claims(book);
            book.fault(LOST_TAIL, (20, 40));
        }));
        let broken = found(Rule::Order, &handled([(50, 52), (30, 45)], claims));
        assert_eq!(broken.len(), 1);
    }

    #[test]
    fn a_failover_may_have_lost_the_earlier_message() {
        legal(&handled([(30, 32), (20, 22)], |book| {
            both(book);
            book.fault(LOST_TAIL, (11, 15));
        }));
    }
}
