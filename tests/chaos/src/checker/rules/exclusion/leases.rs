//! Leases: one holder at a time, epochs and fencing tokens that only grow, and guarded writes that
//! never follow those of the next holder.

use std::collections::{BTreeMap, HashMap};

use super::{Hold, overlaps, violation};
use crate::checker::evidence::Evidence;
use crate::checker::linear::{self, Lease};
use crate::checker::operations::Operation;
use crate::checker::versions::{Conflict, Numbered, always, backwards, repeated, unless_lost};
use crate::checker::windows::Windows;
use crate::history::{Answer, Call, Condition};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut leases: BTreeMap<&str, Vec<&Operation<'_>>> = BTreeMap::new();
    for operation in evidence.operations {
        if let Some(name) = lease(operation.call) {
            leases.entry(name).or_default().push(operation);
        }
    }
    let mut violations = Vec::new();
    for (name, calls) in &leases {
        violations.extend(overlaps(&format!("lease {name}"), holds(evidence, calls)));
        violations.extend(numbers(name, calls));
        let is_effective = |call: &&&Operation<'_>| {
            let is_unseen = evidence.audit.as_ref().is_none_or(|audit| audit.is_released_unseen(name));
            is_unseen || call.answer().is_some() || !matches!(call.call, Call::ForceRelease { .. })
        };
        let calls: Vec<_> = calls.iter().filter(is_effective).copied().collect();
        violations.extend(linear::judge::<Lease>(evidence, &format!("lease {name}"), &calls));
    }
    violations.extend(commits(evidence));
    violations
}

/// Returns the lease that a call is about.
fn lease(call: &Call) -> Option<&str> {
    match call {
        Call::Acquire { name, .. }
        | Call::Prolong { name, .. }
        | Call::GiveUp { name, .. }
        | Call::ForceRelease { name }
        | Call::GuardedWrite { name, .. } => Some(name),
        _ => None,
    }
}

/// Returns when each epoch of a lease was held for certain.
fn holds<'a>(evidence: &Evidence<'_>, calls: &[&'a Operation<'a>]) -> Vec<Hold<'a>> {
    // By epoch: until when its holder reckons, and when it may have been given up.
    let mut until: HashMap<i64, u64> = HashMap::new();
    let mut given_up: HashMap<i64, u64> = HashMap::new();
    // Calls that may have taken it from any holder.
    let mut forced: Vec<(u64, u64)> = Vec::new();
    for operation in calls.iter().filter(|operation| operation.possibly()) {
        match (operation.call, operation.answer()) {
            (Call::GiveUp { epoch, .. }, _) => {
                let first = given_up.entry(*epoch).or_insert(operation.invoked);
                *first = operation.invoked.min(*first);
            }
            (Call::ForceRelease { .. }, Some(Answer::Flag(false))) => {}
            (Call::ForceRelease { .. }, _) => forced.push((operation.invoked, operation.returned)),
            (_, Some(Answer::Granted { epoch, until: deadline, .. })) if operation.surely() => {
                let last = until.entry(*epoch).or_insert(*deadline);
                *last = (*deadline).max(*last);
            }
            _ => {}
        }
    }
    let forced = Windows::new(forced);
    let mut holds = Vec::new();
    for operation in calls.iter().filter(|operation| operation.surely()) {
        let Call::Acquire { name, owner, .. } = operation.call else { continue };
        let Some(Answer::Granted { epoch, .. }) = operation.answer() else { continue };
        // The trail tells which epochs operators ended.
        let is_ended = evidence.audit.as_ref().is_none_or(|audit| audit.ended(name, *epoch));
        if evidence.clock_steps.touch(operation.invoked, operation.returned) {
            continue;
        }
        let to = [
            given_up.get(epoch).copied(),
            forced.next_from(operation.invoked).filter(|_| is_ended),
            evidence.clock_steps.next_from(operation.returned),
        ]
        .into_iter()
        .flatten()
        .fold(until[epoch].saturating_sub(evidence.granularity()), u64::min);
        let what = format!("{owner} under epoch {epoch}");
        holds.push(Hold { from: operation.returned, to, operation, what });
    }
    holds
}

/// Judges epochs and tokens as the calls were answered.
fn numbers(name: &str, calls: &[&Operation<'_>]) -> Vec<Violation> {
    let mut acquired = Vec::new();
    let mut tokens = Vec::new();
    // Every call that proves that an epoch was held.
    let mut held = Vec::new();
    for operation in calls {
        match (operation.call, operation.answer()) {
            (call, Some(Answer::Granted { epoch, token, .. })) => {
                if matches!(call, Call::Acquire { .. }) {
                    acquired.push(Numbered { operation, number: *epoch });
                }
                held.push(Numbered { operation, number: *epoch });
                tokens.push(Numbered { operation, number: *token });
            }
            (Call::GuardedWrite { epoch, .. }, Some(Answer::Done)) => {
                held.push(Numbered { operation, number: *epoch });
            }
            _ => {}
        }
    }
    let report = |conflicts: Vec<Conflict<'_>>, what: &str| -> Vec<Violation> {
        let told = conflicts.into_iter().map(|conflict| {
            let (first, second) = (conflict.first.number, conflict.second.number);
            let text = format!("lease {name}: {what} {second} after {what} {first}");
            violation(Rule::Exclusion, text, [name], conflict.lines())
        });
        told.collect()
    };
    // Other systems compare these numbers, and no failover undoes what they have seen.
    let mut violations = report(repeated(&acquired, always), "epoch");
    violations.extend(report(repeated(&tokens, always), "fencing token"));
    violations.extend(report(backwards(&tokens, always), "fencing token"));
    // A failover can give a lease back to the holder before the last one. Its tokens still grow.
    violations.extend(report(backwards(&held, unless_lost), "epoch"));
    violations
}

/// A guarded write: its epoch, the rows of lower epochs that it saw, and its line.
type Row<'a> = (i64, Option<u64>, &'a str);

/// Judges guarded writes by the order of their inserts, and by what each of them saw.
///
/// A write counts the rows of lower epochs. The guard keeps the next epoch from being given until its transaction
/// has ended, so no row of a lower epoch is committed after that. A failover that loses a row loses all later ones.
fn commits(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut highest: HashMap<&str, (i64, &str)> = HashMap::new();
    let mut rows: BTreeMap<&str, Vec<Row<'_>>> = BTreeMap::new();
    let mut violations = Vec::new();
    for noted in &evidence.conditions {
        let Condition::Guarded { name, epoch, seen, .. } = noted.what else { continue };
        rows.entry(name).or_default().push((*epoch, *seen, noted.line));
        let last = highest.entry(name).or_insert((*epoch, noted.line));
        if *epoch < last.0 {
            let text =
                format!("lease {name}: a write of epoch {epoch} was inserted after one of epoch {}", last.0);
            violations.push(violation(Rule::Exclusion, text, [name], [last.1, noted.line]));
        } else {
            *last = (*epoch, noted.line);
        }
    }
    for (name, mut rows) in rows {
        rows.sort_by_key(|(epoch, ..)| *epoch);
        let mut late = None;
        for (epoch, seen, line) in &rows {
            let lower = rows.partition_point(|(other, ..)| other < epoch);
            if let Some(seen) = seen.filter(|seen| *seen < lower as u64) {
                late = late.or(Some((*epoch, seen, lower, *line)));
            }
        }
        if let Some((epoch, seen, lower, line)) = late {
            let text = format!(
                "lease {name}: a write of epoch {epoch} saw {seen} of lower epochs, and there are {lower} at the end"
            );
            let earlier = rows[..lower].iter().map(|(_, _, line)| *line);
            violations.push(violation(Rule::Exclusion, text, [name], earlier.chain([line])));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, found};
    use crate::history::{CLOCK_STEP, History, LOST_TAIL};

    const LEASE_MS: u64 = 1_000;

    fn granted(at: u64, epoch: i64, token: i64) -> Answer {
        Answer::Granted { epoch, token, until: (at + LEASE_MS) * 1_000_000 }
    }

    fn acquire(book: &mut Book, process: &str, at: u64, epoch: i64, token: i64) {
        let call = Call::Acquire { name: "l".to_owned(), owner: process.to_owned(), lease_ms: LEASE_MS };
        book.ok(process, (at, at + 2), call, granted(at, epoch, token));
    }

    fn prolong(book: &mut Book, process: &str, at: u64, epoch: i64, token: i64) {
        let call = Call::Prolong { name: "l".to_owned(), epoch, lease_ms: LEASE_MS };
        book.ok(process, (at, at + 2), call, granted(at, epoch, token));
    }

    fn give_up(epoch: i64) -> Call {
        Call::GiveUp { name: "l".to_owned(), epoch }
    }

    fn write(book: &mut Book, process: &str, at: u64, epoch: i64) {
        let value = uuid::Uuid::from_u128(at.into());
        let call = Call::GuardedWrite { name: "l".to_owned(), epoch, value };
        book.ok(process, (at, at + 2), call, Answer::Done);
        book.end(Condition::Guarded { name: "l".to_owned(), epoch, value, seen: None });
    }

    /// Checks a history of the lease `l`, and returns what was found, with its lines.
    fn told(tell: impl Fn(&mut Book)) -> Vec<(String, Vec<String>)> {
        let mut book = Book::new();
        tell(&mut book);
        let history: History = book.history();
        let mut told: Vec<_> =
            found(Rule::Exclusion, &history).into_iter().map(|it| (it.text, it.lines)).collect();
        // The search for an order finds most of them as well.
        told.retain(|(text, _)| !text.contains("no order"));
        told
    }

    #[test]
    fn a_lease_goes_from_holder_to_holder() {
        let told = told(|book| {
            acquire(book, "a", 10, 1, 1);
            prolong(book, "a", 500, 1, 2);
            write(book, "a", 1_400, 1);
            acquire(book, "b", 1_500, 2, 3);
            book.ok("b", (1_600, 1_602), give_up(2), Answer::Flag(true));
            acquire(book, "a", 1_604, 3, 4);
        });
        assert_eq!(told, []);
    }

    #[test]
    fn two_holders_at_once_are_found() {
        let told = told(|book| {
            acquire(book, "a", 10, 1, 1);
            prolong(book, "a", 500, 1, 2);
            acquire(book, "b", 1_490, 2, 3);
        });
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].1, ["a:1", "a:2", "b:1", "b:2"]);
    }

    #[test]
    fn a_lease_that_may_have_been_given_up_or_taken_away_is_not_held_for_certain() {
        let calls: [fn(&mut Book); 3] = [
            |book| book.silent("a", 100, give_up(1)),
            |book| book.silent("operator", 5, Call::ForceRelease { name: "l".to_owned() }),
            |book| book.fault(CLOCK_STEP, (50, 51)),
        ];
        for call in calls {
            let told = told(|book| {
                acquire(book, "a", 10, 1, 1);
                call(book);
                acquire(book, "b", 200, 2, 2);
            });
            assert_eq!(told, []);
        }
    }

    #[test]
    fn the_audit_trail_tells_which_epoch_an_operator_ended() {
        let told = |released: &[i64]| {
            told(|book| {
                book.silent("operator", 5, Call::ForceRelease { name: "l".to_owned() });
                acquire(book, "a", 10, 1, 1);
                acquire(book, "b", 200, 2, 2);
                for epoch in released {
                    book.end(Condition::Released { name: "l".to_owned(), epoch: *epoch });
                }
                book.end(Condition::Trail { records: released.len() as u64 });
            })
        };
        assert_eq!(told(&[1]), []);
        assert_eq!(told(&[]).len(), 1);
        assert_eq!(told(&[7]).len(), 1);
    }

    #[test]
    fn a_lease_on_sqlite_can_be_a_millisecond_short() {
        let overlaps = |provider: &str, at: u64| {
            let mut book = Book::on(provider);
            acquire(&mut book, "a", 10, 1, 1);
            acquire(&mut book, "b", at, 2, 2);
            found(Rule::Exclusion, &book.history()).len()
        };
        // By the overlap, and by the search for an order.
        assert_eq!(overlaps("postgres", 1_007), 2);
        assert_eq!(overlaps("sqlite", 1_006), 2);
        assert_eq!(overlaps("sqlite", 1_007), 0);
    }

    #[test]
    fn epochs_and_tokens_only_grow() {
        let epoch = told(|book| {
            acquire(book, "a", 10, 1, 1);
            acquire(book, "b", 2_000, 1, 2);
        });
        // Whose renewals extend which hold can't be told either, so that is reported as well.
        assert!(epoch.iter().any(|(text, _)| text == "lease l: epoch 1 after epoch 1"), "{epoch:?}");
        let token = told(|book| {
            acquire(book, "a", 10, 1, 5);
            acquire(book, "b", 2_000, 2, 4);
        });
        assert_eq!(token.len(), 1, "{token:?}");
        let repeated = told(|book| {
            acquire(book, "a", 10, 1, 5);
            prolong(book, "a", 20, 1, 5);
        });
        assert_eq!(repeated.len(), 1, "{repeated:?}");
    }

    #[test]
    fn a_failover_that_lost_its_tail_gives_no_number_again() {
        let numbers = |epoch, token| {
            told(|book| {
                acquire(book, "a", 10, 1, 5);
                book.fault(LOST_TAIL, (9, 20));
                acquire(book, "b", 30, epoch, token);
            })
        };
        // Two holders at once are the price of a lost tail; the higher token keeps them apart.
        assert_eq!(numbers(2, 6), []);
        assert_eq!(numbers(2, 5).len(), 1);
        assert_eq!(numbers(2, 4).len(), 1);
        assert_eq!(numbers(1, 6).len(), 1);
    }

    #[test]
    fn a_holder_that_lost_its_lease_does_nothing_under_it() {
        let prolonged = told(|book| {
            acquire(book, "a", 10, 1, 1);
            acquire(book, "b", 2_000, 2, 2);
            prolong(book, "a", 3_100, 1, 3);
        });
        let lines = ["b:1", "b:2", "a:3", "a:4"];
        assert!(prolonged.iter().any(|(_, shown)| *shown == lines), "{prolonged:?}");
        let written = told(|book| {
            acquire(book, "a", 10, 1, 1);
            acquire(book, "b", 2_000, 2, 2);
            write(book, "a", 2_100, 1);
        });
        assert_eq!(written.len(), 1, "{written:?}");
        assert_eq!(written[0].1, lines);
    }

    #[test]
    fn a_write_that_is_under_way_when_the_lease_changes_hands_is_committed_first() {
        let told = told(|book| {
            acquire(book, "a", 10, 1, 1);
            for (process, epoch, value) in [("b", 2, 2_u128), ("a", 1, 1)] {
                let value = uuid::Uuid::from_u128(value);
                book.end(Condition::Guarded { name: "l".to_owned(), epoch, value, seen: None });
                let call = Call::GuardedWrite { name: "l".to_owned(), epoch, value };
                book.ok(process, (900, 2_500), call, Answer::Done);
            }
            acquire(book, "b", 2_000, 2, 2);
        });
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0.contains("a write of epoch 1 was inserted after one of epoch 2"), "{told:?}");
    }

    #[test]
    fn no_write_of_a_lower_epoch_is_committed_after_a_higher_one_looked() {
        // Inserted in time, and committed when the next holder has written.
        let late = |seen: [u64; 3]| {
            told(|book| {
                acquire(book, "a", 10, 1, 1);
                acquire(book, "b", 2_000, 2, 2);
                for (n, (process, epoch, at)) in
                    [("a", 1, (20, 21)), ("a", 1, (30, 2_500)), ("b", 2, (2_100, 2_101))]
                        .into_iter()
                        .enumerate()
                {
                    let value = uuid::Uuid::from_u128(n as u128);
                    let call = Call::GuardedWrite { name: "l".to_owned(), epoch, value };
                    book.ok(process, at, call, Answer::Done);
                    let name = "l".to_owned();
                    book.end(Condition::Guarded { name, epoch, value, seen: Some(seen[n]) });
                }
            })
        };
        assert_eq!(late([0, 0, 2]), []);
        let told = late([0, 0, 1]);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].0.contains("epoch 2 saw 1 of lower epochs, and there are 2"), "{told:?}");
    }

    #[test]
    fn a_row_that_a_failover_lost_was_seen_all_the_same() {
        let told = told(|book| {
            acquire(book, "a", 10, 1, 1);
            book.fault(LOST_TAIL, (5, 20));
            acquire(book, "b", 2_000, 3, 3);
            let (name, epoch, value) = ("l".to_owned(), 3, uuid::Uuid::from_u128(1));
            let call = Call::GuardedWrite { name: name.clone(), epoch, value };
            book.ok("b", (2_100, 2_101), call, Answer::Done);
            book.end(Condition::Guarded { name, epoch, value, seen: Some(4) });
        });
        assert_eq!(told, []);
    }
}
