//! Work items: one claim of an item, and one item of an ordering key, at a time.

use std::collections::BTreeMap;

use super::{Hold, NANOSECONDS, overlaps};
use crate::checker::evidence::Evidence;
use crate::checker::story::{Claimed, Story};
use crate::history::{Call, QueueName};
use crate::verdict::Violation;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut by_key: BTreeMap<(QueueName, &str), Vec<Hold<'_>>> = BTreeMap::new();
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        let mut holds = Vec::new();
        for claim in &story.claims {
            let Some((from, to)) = held(evidence, story, claim) else { continue };
            let what = format!("{id} generation {}", claim.item.generation);
            let hold = Hold { from, to, operation: claim.operation, what };
            match &claim.item.key {
                Some(key) => by_key.entry((*queue, key)).or_default().push(hold),
                None => holds.push(hold),
            }
        }
        violations.extend(overlaps(&format!("{queue:?}: an item"), holds));
    }
    for ((queue, key), holds) in by_key {
        violations.extend(overlaps(&format!("{queue:?}: ordering key {key}"), holds));
    }
    violations
}

/// Returns when a claim was held for certain.
fn held(evidence: &Evidence<'_>, story: &Story<'_>, claim: &Claimed<'_>) -> Option<(u64, u64)> {
    let operation = claim.operation;
    let Call::Claim { lease_ms, .. } = operation.call else { return None };
    if !operation.surely() || evidence.clock_steps.touch(operation.invoked, operation.returned) {
        return None;
    }
    let generation = claim.item.generation;
    // A renewal only extends a claim that still holds, so there is no gap before it.
    let renewals = story.renewals.iter().filter(|renewal| renewal.generation == generation);
    let lapses = renewals
        .map(|renewal| renewal.operation.invoked + renewal.lease_ms * NANOSECONDS)
        .chain([operation.invoked + lease_ms * NANOSECONDS])
        .max()?
        .saturating_sub(evidence.granularity());
    let ends = story.ends.iter().filter(|end| end.generation == generation);
    let to = ends
        .map(|end| end.operation.invoked)
        .chain(evidence.clock_steps.next_from(operation.returned))
        .fold(lapses, u64::min);
    Some((operation.returned, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{
        Book, broken, claim, done, found, id, item, legal, owner, sent, settle, take,
    };
    use crate::history::{Answer, CLOCK_STEP, History, Item, LOST_TAIL, MessageState, Outcome, Sent};
    use crate::verdict::Rule;

    /// Two messages of one ordering key. `b` claims the second one at `at`, and `a` has the first one
    /// from 12 on; `between` is what happens meanwhile.
    fn two_of_a_key(at: u64, between: impl Fn(&mut Book)) -> History {
        two_of_a_key_on("postgres", at, between)
    }

    fn two_of_a_key_on(provider: &str, at: u64, between: impl Fn(&mut Book)) -> History {
        let keyed = |n| Item { key: Some("k".to_owned()), ..item(n, 1) };
        let messages = [1, 2].map(|n| Sent { key: Some("k".to_owned()), ..sent(n) });
        let mut book = Book::on(provider);
        book.enqueue("producer", (10, 11), messages.to_vec());
        book.claim("a", (12, 13), vec![keyed(1)]);
        between(&mut book);
        book.claim("b", (at, at + 1), vec![keyed(2)]);
        book.history()
    }

    fn renew(book: &mut Book, at: (u64, u64), changed: bool) {
        let call = Call::Renew {
            queue: QueueName::Outbox,
            owner: owner("a"),
            claims: vec![claim(1, 1)],
            lease_ms: 1_000,
        };
        let (changed, stale) = if changed { (vec![id(1)], vec![]) } else { (vec![], vec![id(1)]) };
        book.ok("a", at, call, Answer::Changed { changed, stale });
    }

    #[track_caller]
    fn overlap(history: &History, lines: &[&str]) {
        let violations = found(Rule::Exclusion, history);
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].lines, lines);
        assert_eq!(violations[0].ids, [1, 2].map(|n| format!("{} generation 1", id(n))));
    }

    #[track_caller]
    fn no_overlap(history: &History) {
        assert_eq!(found(Rule::Exclusion, history), []);
    }

    #[test]
    fn a_lease_on_sqlite_can_be_a_millisecond_short() {
        let lines = ["a:1", "a:2", "b:1", "b:2"];
        overlap(&two_of_a_key(1_010, |_| {}), &lines);
        no_overlap(&two_of_a_key_on("sqlite", 1_010, |_| {}));
        overlap(&two_of_a_key_on("sqlite", 1_009, |_| {}), &lines);
    }

    #[test]
    fn two_messages_of_a_key_are_not_in_progress_at_once() {
        overlap(&two_of_a_key(500, |_| {}), &["a:1", "a:2", "b:1", "b:2"]);
        no_overlap(&two_of_a_key(1_012, |_| {}));
        overlap(&two_of_a_key(1_010, |_| {}), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_claim_that_is_settled_or_may_be_is_over() {
        let settle = || settle("a", claim(1, 1), Outcome::Abandon);
        no_overlap(&two_of_a_key(500, |book| book.settle("a", (400, 600), claim(1, 1), Outcome::Ack)));
        no_overlap(&two_of_a_key(500, |book| book.silent("a", 20, settle())));
        overlap(&two_of_a_key(500, |book| book.fail("a", (20, 21), settle())), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_renewal_extends_a_claim() {
        // It starts before the lease lapses, and is carried out after the other message was claimed.
        let late = two_of_a_key(1_100, |book| renew(book, (900, 1_300), true));
        overlap(&late, &["a:1", "a:2", "b:1", "b:2"]);
        no_overlap(&two_of_a_key(1_100, |book| renew(book, (900, 1_300), false)));
        no_overlap(&two_of_a_key(1_950, |book| renew(book, (900, 901), true)));
    }

    #[test]
    fn a_clock_that_is_stepped_ends_what_is_certain() {
        no_overlap(&two_of_a_key(500, |book| book.fault(CLOCK_STEP, (100, 101))));
        no_overlap(&two_of_a_key(500, |book| book.fault(CLOCK_STEP, (5, 12))));
        overlap(&two_of_a_key(500, |book| book.fault(CLOCK_STEP, (5, 11))), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_failover_can_have_lost_a_claim() {
        no_overlap(&two_of_a_key(500, |book| book.fault(LOST_TAIL, (13, 100))));
        overlap(&two_of_a_key(500, |book| book.fault(LOST_TAIL, (14, 100))), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn an_item_has_one_claim_at_a_time() {
        let again = |at| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.claim("a", (12, 13), vec![item(1, 1)]);
            book.claim("b", (at, at + 1), vec![item(1, 2)]);
            book.settle("b", (at + 2, at + 3), claim(1, 2), Outcome::Ack);
            book.row(MessageState { attempts: 2, generation: Some(2), ..done(1) });
            book.history()
        };
        legal(&again(1_013));
        assert_eq!(broken(Rule::Exclusion, &again(900)).len(), 1);
    }

    #[test]
    fn a_claim_without_an_answer_is_held_by_no_process() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.silent("a", 12, take("a"));
        book.claim("b", (20, 21), vec![Item { attempt: 1, ..item(1, 1) }]);
        book.settle("b", (22, 23), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        legal(&book.history());
    }
}
