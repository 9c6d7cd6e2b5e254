//! No message is claimed whose transaction was rolled back.
//!
//! Every claimed item was added by a call that may have committed, not after it was claimed, and
//! comes with the topic, the key and the payload that its sender gave it.

use std::collections::HashSet;

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::checker::story::{Claimed, Story};
use crate::history::{Call, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let received = Received::of(evidence);
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        if let Some(text) = invented(evidence, &received, *queue, story) {
            let refused = story.refused.iter().flat_map(|operation| &operation.lines);
            let claims = story.claims.iter().flat_map(|claim| &claim.operation.lines);
            let lines = refused.chain(claims).copied().chain(story.finally.map(|state| state.line));
            violations.push(violation(Rule::NothingInvented, format!("{queue:?}: {text}"), [id], lines));
        }
        violations.extend(too_early(*queue, *id, story));
        for claim in &story.claims {
            if !is_as_sent(*queue, story, claim, &received) {
                let text = format!("{queue:?}: a claim brought an item that differs from what was sent");
                let adds = story.adds.iter().flat_map(|add| &add.operation.lines);
                let lines = adds.chain(&claim.operation.lines).copied();
                violations.push(violation(Rule::NothingInvented, text, [id], lines));
            }
        }
    }
    violations
}

/// The calls that received messages.
struct Received<'a> {
    markers: HashSet<&'a str>,
    /// Whether one of them does not tell which item it made.
    has_unknown: bool,
}

impl<'a> Received<'a> {
    fn of(evidence: &Evidence<'a>) -> Self {
        let mut received = Self { markers: HashSet::new(), has_unknown: false };
        for operation in evidence.operations.iter().filter(|operation| operation.possibly()) {
            if let Call::Receive { marker, .. } = operation.call {
                received.markers.insert(marker);
                received.has_unknown |= operation.answer().is_none();
            }
        }
        received
    }
}

/// Tells what is wrong with an item that is there although no call can have added it.
fn invented(
    evidence: &Evidence<'_>,
    received: &Received<'_>,
    queue: QueueName,
    story: &Story<'_>,
) -> Option<&'static str> {
    let is_there = !story.claims.is_empty() || story.finally.is_some();
    if !is_there || !story.adds.is_empty() {
        return None;
    }
    if !story.refused.is_empty() {
        return Some("an item is there although its transaction was rolled back or its call failed");
    }
    // The ids of runs are not known beforehand, and with them the ids of their messages.
    let is_explained = match queue {
        QueueName::Runs => true,
        QueueName::Outbox => {
            !story.claims.iter().any(|claim| evidence.topics.contains(claim.item.topic.as_str()))
        }
        QueueName::Inbox => received.has_unknown,
        QueueName::Timers => false,
    };
    (!is_explained).then_some("an item is there that no call added")
}

/// Finds a claim that was answered before any call that can have added its item was made.
fn too_early(queue: QueueName, id: Uuid, story: &Story<'_>) -> Option<Violation> {
    let first = story.adds.iter().map(|add| add.operation).min_by_key(|operation| operation.invoked)?;
    // A lost tail can take the promotion of an item along, and the claims of its message: the item is then promoted again.
    // The first promotion tells no ids if it was not answered.
    let is_promoted = matches!(first.call, Call::Forward { .. });
    let early = story
        .claims
        .iter()
        .find(|claim| claim.operation.before(first) && !(is_promoted && claim.operation.may_be_lost))?;
    let lines = [first, early.operation].into_iter().flat_map(|operation: &Operation<'_>| &operation.lines);
    let text = format!("{queue:?}: an item was claimed before it was added");
    Some(violation(Rule::NothingInvented, text, [id], lines.copied()))
}

fn is_as_sent(queue: QueueName, story: &Story<'_>, claim: &Claimed<'_>, received: &Received<'_>) -> bool {
    let item = claim.item;
    if queue == QueueName::Inbox {
        return item.marker.is_empty() || received.markers.contains(item.marker.as_str());
    }
    let mut sent = story.adds.iter().filter_map(|add| add.sent).peekable();
    sent.peek().is_none()
        || sent.any(|sent| {
            sent.topic == item.topic
                && sent.key == item.key
                && (item.marker.is_empty() || sent.marker == item.marker)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{
        Book, broken, broken_by, claim, done, enqueue, found, id, item, legal, sent, settle, take,
    };
    use crate::history::{Answer, Item, LOST_TAIL, Outcome, Within};

    #[test]
    fn a_rolled_back_message_is_never_claimed() {
        let mut book = Book::new();
        let call = Call::Enqueue { messages: vec![sent(1)], within: Within::Rollback };
        book.ok("producer", (10, 11), call, Answer::RolledBack);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        let lines = ["producer:1", "producer:2", "a:1", "a:2", "controller:5"];
        broken_by(Rule::NothingInvented, &book.history(), &[&id(1).to_string()], &lines);
    }

    #[test]
    fn a_rolled_back_message_is_in_no_table() {
        let mut book = Book::new();
        book.fail("producer", (10, 11), enqueue(vec![sent(1)]));
        book.silent("a", 12, settle("a", claim(1, 1), Outcome::Ack));
        book.row(done(1));
        let lines = ["producer:1", "producer:2", "controller:5"];
        broken_by(Rule::NothingInvented, &book.history(), &[&id(1).to_string()], &lines);
    }

    #[test]
    fn a_lost_tail_may_take_a_promotion_along_and_the_claim_of_its_message() {
        let owner = uuid::Uuid::nil();
        let mut book = Book::new();
        book.silent("scheduler", 10, Call::Forward { queue: QueueName::Runs, owner });
        book.claim("a", (20, 21), vec![item(1, 1)]);
        let promoted = Answer::Changed { changed: vec![id(1)], stale: Vec::new() };
        book.ok("scheduler", (50, 51), Call::Forward { queue: QueueName::Runs, owner }, promoted);
        let early = found(Rule::NothingInvented, &book.history());
        assert_eq!(early.len(), 1, "{early:#?}");
        book.fault(LOST_TAIL, (15, 40));
        assert_eq!(found(Rule::NothingInvented, &book.history()), []);
    }

    #[test]
    fn an_enqueue_that_fails_after_one_that_was_lost_means_the_first_one_was_there() {
        let mut book = Book::new();
        book.silent("producer", 10, enqueue(vec![sent(1)]));
        book.fail("producer", (11, 12), enqueue(vec![sent(1)]));
        book.claim("a", (13, 14), vec![item(1, 1)]);
        book.settle("a", (15, 16), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        legal(&book.history());
    }

    #[test]
    fn a_message_with_a_known_topic_comes_from_a_call() {
        let unknown = |topic: &str| {
            let mut book = Book::new();
            book.handled(10, 1);
            book.claim("a", (22, 23), vec![Item { topic: topic.to_owned(), ..item(2, 1) }]);
            book.settle("a", (24, 25), claim(2, 1), Outcome::Ack);
            book.row(done(2));
            book.history()
        };
        let lines = ["a:5", "a:6", "controller:6"];
        broken_by(Rule::NothingInvented, &unknown("orders"), &[&id(2).to_string()], &lines);
        // A run of a job has an id that no process made.
        legal(&unknown("jobs"));
    }

    #[test]
    fn a_message_is_not_claimed_before_it_was_added() {
        let mut book = Book::new();
        book.claim("a", (10, 11), vec![item(1, 1)]);
        book.enqueue("producer", (12, 13), vec![sent(1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        let lines = ["producer:1", "producer:2", "a:1", "a:2"];
        broken_by(Rule::NothingInvented, &book.history(), &[&id(1).to_string()], &lines);
    }

    #[test]
    fn a_message_may_be_claimed_before_its_enqueue_was_answered() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 20), vec![sent(1)]);
        book.claim("a", (11, 12), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        legal(&book.history());
    }

    #[test]
    fn a_claim_brings_what_was_sent() {
        for changed in [
            Item { topic: "invoices".to_owned(), ..item(1, 1) },
            Item { key: Some("k".to_owned()), ..item(1, 1) },
            Item { marker: "another".to_owned(), ..item(1, 1) },
        ] {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.claim("a", (12, 13), vec![changed]);
            book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
            book.row(done(1));
            assert_eq!(broken(Rule::NothingInvented, &book.history()).len(), 1);
        }
    }

    #[test]
    fn an_item_of_the_inbox_comes_from_a_received_message() {
        let receive =
            |id: &str| Call::Receive { source: "shop".to_owned(), id: id.to_owned(), marker: sent(1).marker };
        let claimed = |book: &mut Book| {
            let answer = Answer::Claimed { items: vec![item(1, 1)], rejected: vec![] };
            let Call::Claim { owner, lease_ms, limit, .. } = take("a") else { unreachable!() };
            book.ok("a", (20, 21), Call::Claim { queue: QueueName::Inbox, owner, lease_ms, limit }, answer);
        };
        let mut book = Book::new();
        book.silent("receiver", 10, receive("r1"));
        claimed(&mut book);
        assert_eq!(found(Rule::NothingInvented, &book.history()), []);
        let mut book = Book::new();
        book.fail("receiver", (10, 11), receive("r1"));
        claimed(&mut book);
        assert!(!found(Rule::NothingInvented, &book.history()).is_empty());
    }
}
