//! Every message whose enqueue was answered ends, or an operator's call accounts for it.
//!
//! A row that is gone was purged: the audit trail tells how many rows were. A row that is Done was
//! acked, and one that is Failed was failed by a call that can have given the reason in the row; a row that
//! ended without any such call was never handled, so its message is lost as well. A timer or a run that is
//! Done became a message of the outbox under its id, which is there or was purged. Items that are still open are a matter of
//! [`liveness`](super::liveness).

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::NEVER;
use crate::checker::story::Story;
use crate::history::{Answer, Call, Outcome, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut purged: Vec<(Uuid, &Story<'_>)> = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        match story.status() {
            "" => {
                let Some(proof) = story.proof() else { continue };
                if *queue == QueueName::Outbox && evidence.may_be_purged(story, proof.invoked, NEVER) {
                    purged.push((*id, story));
                } else {
                    let text = format!("{queue:?}: an item was there and is gone at the end");
                    let lines = proof.lines.iter().copied();
                    violations.push(violation(Rule::NothingLost, text, [id], lines));
                }
            }
            "done" if matches!(queue, QueueName::Timers | QueueName::Runs) && !is_promoted(evidence, *id) => {
                violations.push(unexplained(*queue, *id, story, "Done, and its message is not there"));
            }
            "done" if !may_be_done(evidence, *queue, story) => {
                violations.push(unexplained(*queue, *id, story, "Done, and nothing acked it"));
            }
            "failed" if !may_be_failed(evidence, *queue, story) => {
                violations.push(unexplained(*queue, *id, story, "Failed, and nothing failed it"));
            }
            _ => {}
        }
    }
    purged.extend(promoted_and_purged(evidence));
    if let Some(most) = most_purged(evidence)
        && purged.len() as u64 > most
    {
        let text = format!("{} settled messages are gone, and purges deleted {most}", purged.len());
        let lines = purged.iter().filter_map(|(_, story)| story.proof()).flat_map(|proof| &proof.lines);
        let ids = purged.iter().map(|(id, _)| id);
        violations.push(violation(Rule::NothingLost, text, ids, lines.copied()));
    }
    violations
}

/// Returns whether the message that a timer or a run became is there, or was purged.
fn is_promoted(evidence: &Evidence<'_>, id: Uuid) -> bool {
    let story = evidence.stories.get(&(QueueName::Outbox, id));
    story.is_some_and(|story| story.finally.is_some() || evidence.may_be_purged(story, 0, NEVER))
}

/// Returns the messages without a row that only the row of their timer or run proves.
fn promoted_and_purged<'e, 'a>(
    evidence: &'e Evidence<'a>,
) -> impl Iterator<Item = (Uuid, &'e Story<'a>)> + use<'e, 'a> {
    let promoted = evidence.stories.iter().filter(|((queue, _), story)| {
        matches!(queue, QueueName::Timers | QueueName::Runs) && story.status() == "done"
    });
    let messages =
        promoted.filter_map(|((_, id), _)| Some((*id, evidence.stories.get(&(QueueName::Outbox, *id))?)));
    messages.filter(|(_, story)| {
        story.finally.is_none() && story.proof().is_none() && evidence.may_be_purged(story, 0, NEVER)
    })
}

fn unexplained(queue: QueueName, id: Uuid, story: &Story<'_>, how: &str) -> Violation {
    let adds = story.adds.iter().flat_map(|add| &add.operation.lines);
    let claims = story.claims.iter().flat_map(|claim| &claim.operation.lines);
    let lines = adds.chain(claims).copied().chain(story.finally.map(|state| state.line));
    violation(Rule::NothingLost, format!("{queue:?}: an item is {how}"), [id], lines)
}

/// Returns how many rows purges deleted at most. None: there is no telling.
fn most_purged(evidence: &Evidence<'_>) -> Option<u64> {
    if let Some(audit) = &evidence.audit {
        return Some(audit.purged());
    }
    let purges = evidence.operations.iter().filter(|operation| operation.possibly());
    let counts = purges.filter(|operation| matches!(operation.call, Call::Purge { .. })).map(|purge| {
        match purge.answer() {
            Some(Answer::Count(count)) => Some(*count),
            _ => None,
        }
    });
    counts.sum()
}

fn may_be_done(evidence: &Evidence<'_>, queue: QueueName, story: &Story<'_>) -> bool {
    let is_acked = story.ends.iter().any(|end| end.outcome == Outcome::Ack);
    is_acked
        || match queue {
            QueueName::Outbox => false,
            // A reservation of the received message can complete it as well.
            QueueName::Inbox => match story.received {
                Some(key) => evidence.finished.contains(&key),
                None => evidence.has_possible("finish", None),
            },
            QueueName::Timers | QueueName::Runs => {
                !story.forwards.is_empty() || evidence.has_unknown("forward", Some(queue))
            }
        }
}

fn may_be_failed(evidence: &Evidence<'_>, queue: QueueName, story: &Story<'_>) -> bool {
    let ended_as = |outcome| story.ends.iter().any(|end| end.outcome == outcome);
    // A forward fails what has another's id.
    let is_forwarded = || evidence.has_possible("forward", Some(queue));
    match story.finally.and_then(|state| state.what.reason.as_deref()) {
        Some("cancelled") => !story.cancels.is_empty(),
        Some("handler") => ended_as(Outcome::Fail) || is_forwarded(),
        // No message of a run expires, so only a claim that says so explains it.
        Some("expired") => !story.rejections.is_empty() || ended_as(Outcome::Reject),
        Some("delivery-limit") => {
            !story.rejections.is_empty()
                || ended_as(Outcome::Reject)
                || ended_as(Outcome::Fail)
                || evidence.may_be_rejected_unseen(queue, story)
        }
        _ => {
            let is_failed = story.terminals().iter().any(|terminal| !terminal.is_ack);
            is_failed || evidence.has_unknown("claim", Some(queue)) || is_forwarded()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{
        Book, broken_by, claim, done, enqueue, found, id, item, legal, sent, settle, take,
    };
    use crate::history::{
        Action, Answer, CLOCK_STEP, Condition, History, LOST_TAIL, MessageState, Sent, Within,
    };

    fn purge(book: &mut Book, at: (u64, u64), count: u64) {
        book.ok("operator", at, Call::Purge { age_ms: 0 }, Answer::Count(count));
    }

    #[test]
    fn a_message_whose_enqueue_was_answered_is_there_at_the_end() {
        let mut book = Book::new();
        book.handled(10, 1);
        book.enqueue("producer", (20, 21), vec![sent(2)]);
        broken_by(Rule::NothingLost, &book.history(), &[&id(2).to_string()], &["producer:3", "producer:4"]);
    }

    #[test]
    fn an_enqueue_that_was_not_answered_promises_nothing() {
        let mut book = Book::new();
        book.silent("producer", 10, enqueue(vec![sent(1)]));
        book.unknown("producer", (11, 12), enqueue(vec![sent(2)]));
        book.fail("producer", (13, 14), enqueue(vec![sent(3)]));
        let rolled_back = Call::Enqueue { messages: vec![sent(4)], within: Within::Rollback };
        book.ok("producer", (15, 16), rolled_back, Answer::RolledBack);
        legal(&book.history());
    }

    #[test]
    fn a_duplicate_is_not_a_message_of_its_own() {
        let mut book = Book::new();
        book.handled(10, 1);
        let messages = vec![Sent { idempotency_key: Some("k".to_owned()), ..sent(2) }];
        let answer = Answer::Enqueued { ids: vec![id(1)], duplicates: vec![id(2)] };
        book.ok("producer", (20, 21), enqueue(messages), answer);
        legal(&book.history());
    }

    #[test]
    fn a_purge_deletes_only_messages_that_were_done_for_long_enough() {
        let purged = |outcome, age_ms| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.claim("a", (12, 13), vec![item(1, 1)]);
            book.settle("a", (20, 21), claim(1, 1), outcome);
            book.ok("operator", (1_000, 1_010), Call::Purge { age_ms }, Answer::Count(1));
            book
        };
        legal(&purged(Outcome::Ack, 990).history());
        let lines = ["producer:1", "producer:2"];
        for wrong in [purged(Outcome::Ack, 1_100), purged(Outcome::Fail, 0)] {
            broken_by(Rule::NothingLost, &wrong.history(), &[&id(1).to_string()], &lines);
        }
        let mut stepped = purged(Outcome::Ack, 3_600_000);
        stepped.fault(CLOCK_STEP, (500, 501));
        legal(&stepped.history());
    }

    #[test]
    fn a_purge_accounts_for_as_many_messages_as_it_deleted() {
        for (purged, is_legal) in [(2, true), (1, false)] {
            let mut book = Book::new();
            for n in 1..=2 {
                book.enqueue("producer", (n, n + 1), vec![sent(n.into())]);
                book.claim("a", (10 * n, 10 * n + 1), vec![item(n.into(), 1)]);
                book.settle("a", (10 * n + 2, 10 * n + 3), claim(n.into(), 1), Outcome::Ack);
            }
            purge(&mut book, (30, 31), purged);
            if is_legal {
                legal(&book.history());
            } else {
                let ids = [1, 2].map(|n| id(n).to_string());
                let lines = ["producer:1", "producer:2", "producer:3", "producer:4"];
                broken_by(Rule::NothingLost, &book.history(), &[&ids[0], &ids[1]], &lines);
            }
        }
    }

    #[test]
    fn the_audit_trail_tells_what_a_purge_without_an_answer_did() {
        for (purged, is_legal) in [(2, true), (1, false)] {
            let mut book = Book::new();
            for n in 1..=2 {
                book.enqueue("producer", (n, n + 1), vec![sent(n.into())]);
                book.claim("a", (10 * n, 10 * n + 1), vec![item(n.into(), 1)]);
                book.settle("a", (10 * n + 2, 10 * n + 3), claim(n.into(), 1), Outcome::Ack);
            }
            book.silent("operator", 30, Call::Purge { age_ms: 0 });
            legal(&book.history());
            book.end(Condition::Audited { action: Action::Purge, ids: vec![], count: purged });
            assert_eq!(found(Rule::NothingLost, &book.history()).is_empty(), is_legal);
        }
    }

    #[test]
    fn a_message_that_was_claimed_is_there_at_the_end() {
        let mut book = Book::new();
        book.silent("producer", 10, enqueue(vec![sent(1)]));
        book.claim("a", (12, 13), vec![item(1, 1)]);
        broken_by(Rule::NothingLost, &book.history(), &[&id(1).to_string()], &["a:1", "a:2"]);
    }

    #[test]
    fn a_purge_does_not_account_for_a_message_that_never_ended() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        purge(&mut book, (20, 21), 5);
        broken_by(Rule::NothingLost, &book.history(), &[&id(1).to_string()], &["producer:1", "producer:2"]);
    }

    #[test]
    fn a_message_is_not_done_without_an_ack() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        let stale = Answer::Changed { changed: vec![], stale: vec![id(1)] };
        book.ok("a", (14, 15), settle("a", claim(1, 1), Outcome::Ack), stale);
        book.row(done(1));
        let lines = ["producer:1", "producer:2", "a:1", "a:2", "controller:5"];
        broken_by(Rule::NothingLost, &book.history(), &[&id(1).to_string()], &lines);
    }

    #[test]
    fn an_ack_that_was_never_answered_can_have_made_it_done() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.silent("a", 14, settle("a", claim(1, 1), Outcome::Ack));
        book.row(done(1));
        legal(&book.history());
    }

    #[test]
    fn a_message_is_not_failed_without_a_cause() {
        let failed = || {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.row(MessageState {
                status: "failed".to_owned(),
                attempts: 0,
                generation: Some(0),
                ..done(1)
            });
            book
        };
        let lines = ["producer:1", "producer:2", "controller:5"];
        broken_by(Rule::NothingLost, &failed().history(), &[&id(1).to_string()], &lines);
        let mut cancelled = failed();
        cancelled.silent("operator", 20, Call::Cancel { ids: vec![id(1)] });
        legal(&cancelled.history());
    }

    type Tell<'a> = &'a dyn Fn(&mut Book);

    #[test]
    fn a_call_fails_a_message_for_its_own_reason_only() {
        let failed = |reason: &str, tell: Tell<'_>| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.silent("b", 11, take("b"));
            book.claim("a", (12, 13), vec![item(1, 1)]);
            tell(&mut book);
            let reason = Some(reason.to_owned());
            book.row(MessageState { status: "failed".to_owned(), reason, ..done(1) });
            found(Rule::NothingLost, &book.history()).len()
        };
        let fail = |book: &mut Book| book.silent("a", 14, settle("a", claim(1, 1), Outcome::Fail));
        let reject = |book: &mut Book| book.settle("a", (14, 15), claim(1, 1), Outcome::Reject);
        let cancel = |book: &mut Book| book.silent("operator", 14, Call::Cancel { ids: vec![id(1)] });
        let claims = |book: &mut Book| (0..3).for_each(|n| book.silent("b", 2_000 * n, take("b")));
        assert_eq!(failed("handler", &fail), 0);
        assert_eq!(failed("delivery-limit", &fail), 0);
        assert_eq!(failed("delivery-limit", &reject), 0);
        assert_eq!(failed("delivery-limit", &claims), 0);
        assert_eq!(failed("cancelled", &cancel), 0);
        let wrong: [(&str, Tell<'_>); 5] = [
            ("handler", &cancel),
            ("handler", &claims),
            ("cancelled", &fail),
            ("expired", &claims),
            ("delivery-limit", &cancel),
        ];
        for (reason, call) in wrong {
            assert_eq!(failed(reason, call), 1, "{reason}");
        }
    }

    /// A timer that was promoted, and what became of its message.
    fn promoted(tell: impl Fn(&mut Book)) -> History {
        let mut book = Book::new();
        let answer = Answer::Enqueued { ids: vec![id(1)], duplicates: vec![] };
        book.ok("producer", (10, 11), Call::Schedule { messages: vec![sent(1)] }, answer);
        let call = Call::Forward { queue: QueueName::Timers, owner: Uuid::nil() };
        book.silent("scheduler", 12, call);
        book.row(MessageState { queue: QueueName::Timers, ..done(1) });
        tell(&mut book);
        book.history()
    }

    #[test]
    fn a_promoted_timer_has_its_message() {
        legal(&promoted(|book| {
            book.claim("a", (14, 15), vec![item(1, 1)]);
            book.settle("a", (16, 17), claim(1, 1), Outcome::Ack);
            book.row(done(1));
        }));
        let purged = |is_claimed: bool, count| {
            promoted(|book| {
                if is_claimed {
                    book.claim("a", (14, 15), vec![item(1, 1)]);
                    book.settle("a", (16, 17), claim(1, 1), Outcome::Ack);
                }
                purge(book, (30, 31), count);
            })
        };
        legal(&purged(true, 1));
        for wrong in [purged(false, 1), promoted(|_| {})] {
            let found = found(Rule::NothingLost, &wrong);
            assert_eq!(found.len(), 1, "{found:#?}");
            assert_eq!(found[0].text, "Timers: an item is Done, and its message is not there");
        }
    }

    #[test]
    fn a_failover_can_lose_only_what_its_tail_had() {
        let lost = |window| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.fault(LOST_TAIL, window);
            book.history()
        };
        legal(&lost((5, 20)));
        legal(&lost((11, 20)));
        let before = lost((12, 20));
        broken_by(Rule::NothingLost, &before, &[&id(1).to_string()], &["producer:1", "producer:2"]);
        let after = lost((5, 9));
        broken_by(Rule::NothingLost, &after, &[&id(1).to_string()], &["producer:1", "producer:2"]);
    }
}
