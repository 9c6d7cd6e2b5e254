//! No more deliveries than the limit; attempts are claims without uncounted releases.
//!
//! Each claim counts one delivery more than the claim before it. A release takes its delivery back, a
//! requeue starts again at none. The item of a claim tells which delivery it is, so each claim is
//! compared with the one before it, and the row at the end with the last.
//!
//! A worker may claim a message beyond the limit and fail it, but its handler never gets it.

use std::ops::RangeInclusive;

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::NEVER;
use crate::checker::story::{Claimed, Story, ordinal};
use crate::history::{Call, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((queue, id), story) in &evidence.stories {
        for claim in &story.claims {
            violations.extend(judge_limit(*queue, *id, claim));
        }
        violations.extend(judge_handled(evidence, *queue, *id, story));
        let mut claims: Vec<&Claimed<'_>> =
            story.claims.iter().filter(|claim| claim.operation.surely()).collect();
        claims.sort_by_key(|claim| claim.item.generation);
        if let Some(first) = claims.first() {
            violations.extend(judge_first(evidence, *queue, *id, story, first));
        }
        for pair in claims.windows(2) {
            violations.extend(judge_next(evidence, *queue, *id, story, pair[0], pair[1]));
        }
        if let Some(last) = claims.last() {
            violations.extend(judge_row(evidence, *queue, *id, story, last));
        }
    }
    violations
}

fn judge_limit(queue: QueueName, id: Uuid, claim: &Claimed<'_>) -> Option<Violation> {
    let Call::Claim { limit, .. } = claim.operation.call else { return None };
    let attempt = claim.item.attempt;
    let text = format!("{queue:?}: delivery {attempt}, the limit is {limit}");
    let is_wrong = attempt == 0 || attempt > *limit;
    is_wrong.then(|| violation(Rule::Deliveries, text, [id], claim.operation.lines.iter().copied()))
}

/// Finds a call of a handler whose delivery is beyond the limit of the run.
fn judge_handled(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    story: &Story<'_>,
) -> Option<Violation> {
    let limit = evidence.run?.what.delivery_limit;
    let (handled, claim) = story.handled.iter().find_map(|(operation, generation)| {
        let claim = story.claims.iter().find(|claim| {
            claim.item.generation == *generation && claim.operation.process == operation.process
        })?;
        (claim.item.attempt > limit).then_some((operation, claim))
    })?;
    let text = format!("{queue:?}: a handler got delivery {}, the limit is {limit}", claim.item.attempt);
    let lines = claim.operation.lines.iter().chain(&handled.lines).copied();
    Some(violation(Rule::Deliveries, text, [id], lines))
}

/// Compares the first claim with none before it: its generation tells which claim of the item it is.
fn judge_first(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    story: &Story<'_>,
    first: &Claimed<'_>,
) -> Option<Violation> {
    let claims = ordinal(first.item.generation)?;
    let is_lost = story.claims.iter().any(|claim| !claim.operation.surely());
    let attempt = first.item.attempt;
    // Claims before it were never answered, so no release can have taken their deliveries back.
    if story.is_added_again() || is_lost || attempt == claims {
        return None;
    }
    if attempt < claims && evidence.may_be_requeued(story, 0, first.operation.returned) {
        return None;
    }
    let text = format!("{queue:?}: the claim that is number {claims} of the item is delivery {attempt}");
    Some(violation(Rule::Deliveries, text, [id], first.operation.lines.iter().copied()))
}

/// What a claim left of the count of deliveries, once it had ended.
struct Left {
    counts: RangeInclusive<u32>,
    may_be_requeued: bool,
}

fn left(evidence: &Evidence<'_>, story: &Story<'_>, claim: &Claimed<'_>, until: u64) -> Left {
    let attempt = claim.item.attempt;
    let ends = story.ends.iter().filter(|end| end.generation == claim.item.generation);
    let uncounted: Vec<bool> = ends.filter(|end| end.is_uncounted()).map(|end| end.sure).collect();
    let least = attempt.saturating_sub(u32::from(!uncounted.is_empty()));
    let most = attempt.saturating_sub(u32::from(uncounted.contains(&true)));
    Left {
        counts: least..=most,
        may_be_requeued: evidence.may_be_requeued(story, claim.operation.invoked, until),
    }
}

fn judge_next(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    story: &Story<'_>,
    one: &Claimed<'_>,
    next: &Claimed<'_>,
) -> Option<Violation> {
    let claims = u32::try_from(next.item.generation.checked_sub(one.item.generation)?).ok()?;
    // A generation that comes twice is another rule's matter.
    if claims == 0 || story.is_added_again() {
        return None;
    }
    let left = left(evidence, story, one, next.operation.returned);
    // The claims between them were never answered, so no release can have taken their deliveries back,
    // unless they are claims that a failover may have undone.
    let is_lost_between = story.claims.iter().any(|claim| !claim.operation.surely());
    let least = if is_lost_between { 1 } else { claims };
    let counts = left.counts.start().saturating_add(least)..=left.counts.end().saturating_add(claims);
    let attempt = next.item.attempt;
    if counts.contains(&attempt) || left.may_be_requeued && (1..=*counts.end()).contains(&attempt) {
        return None;
    }
    let text = format!(
        "{queue:?}: generation {} is delivery {attempt}, and generation {} was delivery {}",
        next.item.generation, one.item.generation, one.item.attempt
    );
    Some(violation(Rule::Deliveries, text, [id], lines(story, one, next.operation.lines.iter().copied())))
}

fn judge_row(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    story: &Story<'_>,
    last: &Claimed<'_>,
) -> Option<Violation> {
    let state = story.finally?;
    if story.is_added_again() || state.what.generation != Some(last.item.generation) {
        return None;
    }
    let left = left(evidence, story, last, NEVER);
    let attempts = state.what.attempts;
    if left.counts.contains(&attempts) || left.may_be_requeued && attempts == 0 {
        return None;
    }
    let text = format!(
        "{queue:?}: the last claim was delivery {}, and the row has {attempts} attempts",
        last.item.attempt
    );
    Some(violation(Rule::Deliveries, text, [id], lines(story, last, [state.line])))
}

/// Returns the lines of a claim, of its ends, and `more`.
fn lines<'a>(
    story: &Story<'a>,
    claim: &Claimed<'a>,
    more: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let ends = story.ends.iter().filter(|end| end.generation == claim.item.generation);
    let ends = ends.flat_map(|end| end.operation.lines.iter().copied());
    claim.operation.lines.iter().copied().chain(ends).chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, claim, done, id, item, legal, sent, settle, take};
    use crate::history::{Answer, History, Item, LOST_TAIL, MessageState, Outcome};

    fn delivery(generation: i64, attempt: u32) -> Item {
        Item { attempt, ..item(1, generation) }
    }

    /// A message that `a` claims and `end` ends. `b` claims it then as `next`, and acks it.
    fn delivered(end: impl Fn(&mut Book), next: Item, attempts: u32) -> Book {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![delivery(1, 1)]);
        end(&mut book);
        let generation = next.generation;
        book.claim("b", (2_000, 2_001), vec![next]);
        book.settle("b", (2_002, 2_003), claim(1, generation), Outcome::Ack);
        book.row(MessageState { attempts, generation: Some(generation), ..done(1) });
        book
    }

    #[track_caller]
    fn miscounted(history: &History, lines: &[&str]) {
        broken_by(Rule::Deliveries, history, &[&id(1).to_string()], lines);
    }

    #[test]
    fn a_lapsed_or_abandoned_claim_counts() {
        legal(&delivered(|_| {}, delivery(2, 2), 2).history());
        let abandon = |book: &mut Book| book.settle("a", (14, 15), claim(1, 1), Outcome::Abandon);
        legal(&delivered(abandon, delivery(2, 2), 2).history());
        miscounted(&delivered(|_| {}, delivery(2, 1), 1).history(), &["a:1", "a:2", "b:1", "b:2"]);
        let lines = ["a:1", "a:2", "a:3", "a:4", "b:1", "b:2"];
        miscounted(&delivered(abandon, delivery(2, 1), 1).history(), &lines);
    }

    #[test]
    fn a_release_takes_its_delivery_back() {
        let release = |book: &mut Book| book.settle("a", (14, 15), claim(1, 1), Outcome::Release);
        legal(&delivered(release, delivery(2, 1), 1).history());
        let lines = ["a:1", "a:2", "a:3", "a:4", "b:1", "b:2"];
        miscounted(&delivered(release, delivery(2, 2), 2).history(), &lines);
    }

    #[test]
    fn a_release_that_was_never_answered_may_have_taken_its_delivery_back() {
        let release = |book: &mut Book| book.silent("a", 14, settle("a", claim(1, 1), Outcome::Release));
        for attempt in [1, 2] {
            legal(&delivered(release, delivery(2, attempt), attempt).history());
        }
        miscounted(&delivered(release, delivery(2, 3), 3).history(), &["a:1", "a:2", "a:3", "b:1", "b:2"]);
    }

    #[test]
    fn claims_that_were_never_answered_count() {
        let lost = |book: &mut Book| book.silent("c", 1_500, take("c"));
        legal(&delivered(lost, delivery(3, 3), 3).history());
        miscounted(&delivered(lost, delivery(3, 2), 2).history(), &["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn the_first_known_claim_counts_those_without_an_answer() {
        let first = |attempt, requeue: bool| {
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            book.silent("a", 12, take("a"));
            if requeue {
                book.silent("operator", 1_500, Call::Requeue { ids: vec![id(1)] });
            }
            book.claim("b", (2_000, 2_001), vec![delivery((7 << 16) + 2, attempt)]);
            book.settle("b", (2_002, 2_003), claim(1, (7 << 16) + 2), Outcome::Ack);
            let generation = Some((7 << 16) + 2);
            book.row(MessageState { attempts: attempt, generation, seq: Some(7), ..done(1) });
            book.history()
        };
        legal(&first(2, false));
        legal(&first(1, true));
        miscounted(&first(1, false), &["b:1", "b:2"]);
        miscounted(&first(3, true), &["b:1", "b:2"]);
    }

    #[test]
    fn a_requeue_starts_again() {
        let requeue = |book: &mut Book| {
            book.settle("a", (14, 15), claim(1, 1), Outcome::Fail);
            let changed = Answer::Changed { changed: vec![id(1)], stale: vec![] };
            book.ok("operator", (16, 17), Call::Requeue { ids: vec![] }, changed);
        };
        legal(&delivered(requeue, delivery(2, 1), 1).history());
    }

    #[test]
    fn no_delivery_is_beyond_the_limit() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        for (generation, at) in (1..=4).zip([100, 2_000, 4_000, 6_000]) {
            book.claim("a", (at, at + 1), vec![item(1, generation)]);
        }
        book.settle("a", (6_002, 6_003), claim(1, 4), Outcome::Ack);
        book.row(MessageState { attempts: 4, generation: Some(4), ..done(1) });
        miscounted(&book.history(), &["a:7", "a:8"]);
    }

    #[test]
    fn a_handler_gets_no_delivery_beyond_the_limit() {
        let claimed = |outcome, handle: bool| {
            let Call::Claim { queue, owner, lease_ms, .. } = take("a") else { unreachable!() };
            let call = Call::Claim { queue, owner, lease_ms, limit: 1_000_000 };
            let mut book = Book::new();
            book.enqueue("producer", (10, 11), vec![sent(1)]);
            let items = vec![delivery(4, 4)];
            book.ok("a", (12, 13), call, Answer::Claimed { items, rejected: vec![] });
            if handle {
                book.silent("a", 14, Call::Handle { queue, owner, claim: claim(1, 4) });
            }
            book.settle("a", (16, 17), claim(1, 4), outcome);
            let status = if outcome == Outcome::Ack { "done" } else { "failed" };
            let attempts = if outcome == Outcome::Ack { 4 } else { 3 };
            let generation = Some(4);
            book.row(MessageState { status: status.to_owned(), attempts, generation, ..done(1) });
            book.history()
        };
        legal(&claimed(Outcome::Reject, false));
        miscounted(&claimed(Outcome::Ack, true), &["a:1", "a:2", "a:3"]);
    }

    #[test]
    fn the_row_counts_what_the_last_claim_said() {
        let lines = ["b:1", "b:2", "b:3", "b:4", "controller:5"];
        miscounted(&delivered(|_| {}, delivery(2, 2), 1).history(), &lines);
    }

    #[test]
    fn a_failover_can_lose_a_delivery() {
        let mut book = delivered(|_| {}, delivery(2, 1), 1);
        book.fault(LOST_TAIL, (13, 20));
        legal(&book.history());
    }
}
