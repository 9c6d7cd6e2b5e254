//! Reservations of received messages: one at a time, by calls that some order explains.

use std::collections::BTreeMap;

use super::{Hold, NANOSECONDS, overlaps};
use crate::checker::evidence::Evidence;
use crate::checker::linear::{self, Reservation};
use crate::checker::operations::Operation;
use crate::history::{Answer, Call};
use crate::verdict::Violation;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut calls: BTreeMap<(&str, &str), Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Call::Begin { source, id, .. }
        | Call::Finish { source, id, .. }
        | Call::Receive { source, id, .. } = operation.call
        {
            calls.entry((source, id)).or_default().push(operation);
        }
    }
    let mut violations = Vec::new();
    for ((source, id), calls) in calls {
        let resource = format!("the reservation of {source}/{id}");
        violations.extend(overlaps(&resource, holds(evidence, &calls)));
        // The queue's workers hold it too, where it was received into the queue.
        if !calls.iter().any(|operation| matches!(operation.call, Call::Receive { .. })) {
            violations.extend(linear::judge::<Reservation>(evidence, &resource, &calls));
        }
    }
    violations
}

fn holds<'a>(evidence: &Evidence<'_>, calls: &[&'a Operation<'a>]) -> Vec<Hold<'a>> {
    let mut finished: BTreeMap<i64, u64> = BTreeMap::new();
    // Also by a call that failed: its guard is dropped, which releases the message.
    for operation in calls {
        if let Call::Finish { generation, .. } = operation.call {
            let first = finished.entry(*generation).or_insert(operation.invoked);
            *first = operation.invoked.min(*first);
        }
    }
    let mut holds = Vec::new();
    for operation in calls.iter().filter(|operation| operation.surely()) {
        let Call::Begin { lease_ms, .. } = operation.call else { continue };
        let Some(Answer::Begun { generation: Some(generation) }) = operation.answer() else { continue };
        if evidence.clock_steps.touch(operation.invoked, operation.returned) {
            continue;
        }
        let to = [finished.get(generation).copied(), evidence.clock_steps.next_from(operation.returned)]
            .into_iter()
            .flatten()
            .fold(
                (operation.invoked + lease_ms * NANOSECONDS).saturating_sub(evidence.granularity()),
                u64::min,
            );
        let what = format!("generation {generation}");
        holds.push(Hold { from: operation.returned, to, operation, what });
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, found};
    use crate::verdict::Rule;

    fn begin() -> Call {
        Call::Begin { source: "shop".to_owned(), id: "r1".to_owned(), lease_ms: 1_000 }
    }

    fn finish(generation: i64) -> Call {
        Call::Finish { source: "shop".to_owned(), id: "r1".to_owned(), generation }
    }

    /// `a` reserves a message, and `b` does at `at`.
    fn reserved_again(at: u64, between: impl Fn(&mut Book)) -> Vec<Violation> {
        let mut book = Book::new();
        book.ok("a", (10, 11), begin(), Answer::Begun { generation: Some(1) });
        between(&mut book);
        book.ok("b", (at, at + 1), begin(), Answer::Begun { generation: Some(2) });
        found(Rule::Exclusion, &book.history())
    }

    #[test]
    fn a_message_is_reserved_once_at_a_time() {
        assert_eq!(reserved_again(1_011, |_| {}), []);
        let violations = reserved_again(500, |_| {});
        let lines = ["a:1", "a:2", "b:1", "b:2"];
        assert!(violations.iter().all(|it| it.lines == lines), "{violations:#?}");
        assert_eq!(violations.len(), 2, "by the overlap, and by the search for an order");
    }

    #[test]
    fn a_reservation_on_sqlite_can_be_a_millisecond_short() {
        let found = |provider: &str| {
            let mut book = Book::on(provider);
            book.ok("a", (10, 11), begin(), Answer::Begun { generation: Some(1) });
            book.ok("b", (1_008, 1_009), begin(), Answer::Begun { generation: Some(2) });
            found(Rule::Exclusion, &book.history()).len()
        };
        assert_eq!(found("postgres"), 2, "by the overlap, and by the search for an order");
        assert_eq!(found("sqlite"), 0);
    }

    #[test]
    fn a_reservation_whose_completion_failed_is_released() {
        assert_eq!(reserved_again(500, |book| book.fail("a", (20, 21), finish(1))), []);
        assert_eq!(reserved_again(500, |book| book.silent("a", 20, finish(1))), []);
    }

    #[test]
    fn a_message_that_a_worker_may_have_is_not_searched() {
        let receive =
            || Call::Receive { source: "shop".to_owned(), id: "r1".to_owned(), marker: String::new() };
        let busy = |book: &mut Book| book.ok("b", (5, 6), begin(), Answer::Begun { generation: None });
        assert_eq!(reserved_again(1_500, busy).len(), 1);
        let with_worker = reserved_again(1_500, |book| {
            busy(book);
            book.silent("receiver", 4, receive());
        });
        assert_eq!(with_worker, []);
    }
}
