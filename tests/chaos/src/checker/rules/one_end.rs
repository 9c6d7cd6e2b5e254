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
            let mut lasting = story.claims.iter().filter(|claim| claim.operation.surely());
            let claim = lasting.find(|claim| claim.item.generation == generation);
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
        // A call without an answer is named for every message that it may have requeued. The trail counts them.
        let requeues = evidence.audit.as_ref().map(|audit| audit.requeues(self.id));
        let requeues = requeues.unwrap_or(story.requeues.len() as u64);
        if sure.len() as u64 > 1 + requeues && evidence.blind_requeues.is_empty() {
            let text = format!("it ended {} times and was requeued {requeues}", sure.len());
            let operations: Vec<_> = sure.iter().map(|terminal| terminal.operation).collect();
            self.report(&text, &operations);
        }
        for terminal in sure {
            let again = story.claims.iter().find(|claim| {
                let is_later = match terminal.generation {
                    // A failover that undid the claim gives its generation again.
                    Some(generation) if claim.operation.surely() => claim.item.generation > generation,
                    _ => terminal.operation.before(claim.operation),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{
        Book, broken_by, claim, done, found, id, item, legal, owner, sent, settle, take,
    };
    use crate::history::{
        Action, Condition, Ending, History, Item, LOST_TAIL, MessageState, Outcome, Rejection,
    };

    /// A message that is claimed by `a`, and after its lease has lapsed by `b`.
    fn redelivered() -> Book {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.claim("b", (2_000, 2_001), vec![item(1, 2)]);
        book
    }

    fn row(book: &mut Book, attempts: u32, generation: i64) {
        book.row(MessageState { attempts, generation: Some(generation), ..done(1) });
    }

    #[track_caller]
    fn one(history: &History, lines: &[&str]) {
        let violations = found(Rule::OneEnd, history);
        assert_eq!(violations.len(), 1, "{violations:#?}");
        assert_eq!(violations[0].ids, [id(1).to_string()]);
        assert_eq!(violations[0].lines, lines, "{}", violations[0].text);
    }

    #[test]
    fn a_settle_that_is_sent_again_after_a_lost_answer_ends_the_claim_once() {
        let mut book = redelivered();
        book.unknown("b", (2_002, 2_003), settle("b", claim(1, 2), Outcome::Ack));
        let stale = Answer::Changed { changed: vec![], stale: vec![id(1)] };
        book.ok("b", (2_004, 2_005), settle("b", claim(1, 2), Outcome::Ack), stale);
        row(&mut book, 2, 2);
        legal(&book.history());
    }

    #[test]
    fn a_claim_is_not_ended_twice() {
        let mut book = redelivered();
        book.settle("b", (2_002, 2_003), claim(1, 2), Outcome::Abandon);
        book.settle("b", (2_004, 2_005), claim(1, 2), Outcome::Ack);
        row(&mut book, 2, 2);
        broken_by(Rule::OneEnd, &book.history(), &[&id(1).to_string()], &["b:3", "b:4", "b:5", "b:6"]);
    }

    #[test]
    fn a_settle_of_a_lost_claim_changes_nothing() {
        let mut book = redelivered();
        book.settle("a", (2_002, 2_003), claim(1, 1), Outcome::Abandon);
        book.settle("b", (2_004, 2_005), claim(1, 2), Outcome::Ack);
        row(&mut book, 2, 2);
        broken_by(Rule::OneEnd, &book.history(), &[&id(1).to_string()], &["b:1", "b:2", "a:3", "a:4"]);
    }

    #[test]
    fn a_settle_at_the_same_time_as_the_next_claim_may_have_come_first() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (2_000, 2_010), claim(1, 1), Outcome::Abandon);
        book.claim("b", (2_001, 2_009), vec![item(1, 2)]);
        book.settle("b", (2_020, 2_021), claim(1, 2), Outcome::Ack);
        row(&mut book, 2, 2);
        legal(&book.history());
    }

    #[test]
    fn only_its_owner_ends_a_claim() {
        let mut book = redelivered();
        let answer = Answer::Changed { changed: vec![id(1)], stale: vec![] };
        book.ok("c", (2_002, 2_003), settle("c", claim(1, 2), Outcome::Ack), answer);
        row(&mut book, 2, 2);
        broken_by(Rule::OneEnd, &book.history(), &[&id(1).to_string()], &["b:1", "b:2", "c:1", "c:2"]);
    }

    #[test]
    fn of_two_claims_of_an_id_in_one_settle_only_one_is_ended() {
        let mut book = redelivered();
        let ends = [1, 2].map(|generation| Ending { claim: claim(1, generation), outcome: Outcome::Ack });
        let call = Call::Settle { queue: QueueName::Outbox, owner: owner("b"), ends: ends.to_vec() };
        let answer = Answer::Changed { changed: vec![id(1)], stale: vec![id(1)] };
        book.ok("b", (2_002, 2_003), call, answer);
        row(&mut book, 2, 2);
        legal(&book.history());
    }

    #[test]
    fn what_was_acked_is_not_claimed_again() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.claim("b", (16, 17), vec![item(1, 2)]);
        row(&mut book, 2, 2);
        one(&book.history(), &["a:3", "a:4", "b:1", "b:2"]);
        // Not even after a requeue, which takes only what failed.
        book.ok(
            "operator",
            (15, 16),
            Call::Requeue { ids: vec![] },
            Answer::Changed { changed: vec![id(1)], stale: vec![] },
        );
        one(&book.history(), &["a:3", "a:4", "b:1", "b:2"]);
        // A failover may have lost the ack.
        book.fault(LOST_TAIL, (13, 15));
        assert_eq!(found(Rule::OneEnd, &book.history()), []);
    }

    /// A message that fails, is perhaps requeued, and is claimed again.
    fn failed(requeue: impl Fn(&mut Book)) -> History {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Fail);
        requeue(&mut book);
        book.claim("b", (20, 21), vec![Item { attempt: 1, ..item(1, 2) }]);
        book.settle("b", (22, 23), claim(1, 2), Outcome::Ack);
        row(&mut book, 1, 2);
        book.history()
    }

    #[test]
    fn what_failed_is_claimed_again_only_after_a_requeue() {
        let changed = || Answer::Changed { changed: vec![id(1)], stale: vec![] };
        legal(&failed(|book| book.ok("operator", (16, 17), Call::Requeue { ids: vec![id(1)] }, changed())));
        legal(&failed(|book| book.ok("operator", (16, 17), Call::Requeue { ids: vec![] }, changed())));
        legal(&failed(|book| book.silent("operator", 16, Call::Requeue { ids: vec![] })));
        // Before it failed, and after it was claimed again.
        for at in [(12, 13), (30, 31)] {
            let history =
                failed(|book| book.ok("operator", at, Call::Requeue { ids: vec![id(1)] }, changed()));
            assert!(found(Rule::OneEnd, &history).iter().any(|it| it.lines == ["a:3", "a:4", "b:1", "b:2"]));
        }
        let never = failed(|_| {});
        let violations = found(Rule::OneEnd, &never);
        assert_eq!(violations.len(), 2, "{violations:#?}");
    }

    #[test]
    fn the_audit_trail_tells_which_messages_a_call_without_an_answer_requeued() {
        let audited = |requeued: &[u128]| {
            failed(|book| {
                book.silent("operator", 16, Call::Requeue { ids: vec![] });
                let ids = requeued.iter().map(|n| id(*n)).collect::<Vec<_>>();
                let count = ids.len() as u64;
                book.end(Condition::Trail { records: 1 });
                book.end(Condition::Audited { action: Action::Requeue, ids, count });
            })
        };
        legal(&audited(&[1]));
        assert_eq!(found(Rule::OneEnd, &audited(&[2])).len(), 2);
    }

    #[test]
    fn a_message_ends_once_more_for_each_record_of_a_requeue() {
        let ended = |requeues: usize| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            for _ in 0..4 {
                book.silent("operator", 12, Call::Requeue { ids: vec![] });
            }
            for (generation, at) in (1..=3).zip([20, 30, 40]) {
                book.claim("a", (at, at + 1), vec![Item { attempt: 1, ..item(1, generation) }]);
                book.settle("a", (at + 2, at + 3), claim(1, generation), Outcome::Fail);
            }
            for _ in 0..requeues {
                book.end(Condition::Audited { action: Action::Requeue, ids: vec![id(1)], count: 1 });
            }
            let reason = Some("handler".to_owned());
            let status = "failed".to_owned();
            book.row(MessageState { status, reason, generation: Some(3), ..done(1) });
            found(Rule::OneEnd, &book.history())
        };
        assert_eq!(ended(2), []);
        assert_eq!(ended(1).len(), 1);
    }

    #[test]
    fn what_a_claim_failed_is_not_handed_out_later() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        let rejected = vec![Rejection { id: id(1), reason: "Expired".to_owned() }];
        book.ok("a", (12, 13), take("a"), Answer::Claimed { items: vec![], rejected });
        book.claim("b", (14, 15), vec![item(1, 1)]);
        one(&book.history(), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn what_was_cancelled_is_not_handed_out_later() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        let changed = Answer::Changed { changed: vec![id(1)], stale: vec![] };
        book.ok("operator", (12, 13), Call::Cancel { ids: vec![id(1)] }, changed);
        book.claim("b", (14, 15), vec![item(1, 1)]);
        one(&book.history(), &["operator:1", "operator:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_completed_message_is_not_reserved_again() {
        let key = || ("shop".to_owned(), "r1".to_owned());
        let begin = || Call::Begin { source: key().0, id: key().1, lease_ms: 1_000 };
        let finish = Call::Finish { source: key().0, id: key().1, generation: 1 };
        let mut book = Book::new();
        book.ok("a", (10, 11), begin(), Answer::Begun { generation: Some(1) });
        book.ok("a", (12, 13), finish, Answer::Done);
        book.ok("b", (2_000, 2_001), begin(), Answer::Begun { generation: Some(2) });
        let violations = found(Rule::OneEnd, &book.history());
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].lines, ["a:3", "a:4", "b:1", "b:2"]);
    }
}
