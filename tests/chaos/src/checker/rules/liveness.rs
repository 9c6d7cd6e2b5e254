//! Everything ends, and due work never waits for long beside a healthy worker.
//!
//! Two leases are the longest that work may wait: a worker that lost its connection without a word
//! keeps what it has claimed for one lease, and notices within another. Then it polls.

use std::collections::HashMap;

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::history::{Call, QueueName, Run, Sample};
use crate::verdict::{Rule, Violation};

/// How often a worker of a run polls.
const POLL_NS: u64 = 1_000_000_000;

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = ending(evidence);
    if let Some(run) = evidence.run {
        violations.extend(waiting(evidence, run.what));
    }
    violations
}

fn ending(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    match evidence.settled {
        None => {
            let text = "the run has no line that tells whether all work ended";
            violations.push(violation(Rule::Liveness, text, [""; 0], []));
        }
        Some(settled) if settled.what > 0 => {
            let text = format!("{} items were still open when all should have ended", settled.what);
            violations.push(violation(Rule::Liveness, text, [""; 0], [settled.line]));
        }
        Some(_) => {}
    }
    for ((queue, id), story) in &evidence.stories {
        let Some(state) = story.finally else { continue };
        if !matches!(state.what.status.as_str(), "done" | "failed") {
            let text = format!("{queue:?}: an item is {} at the end", state.what.status);
            let claims = story.claims.iter().flat_map(|claim| &claim.operation.lines);
            let lines = claims.copied().chain([state.line]);
            violations.push(violation(Rule::Liveness, text, [id], lines));
        }
    }
    violations
}

/// Finds stretches in which messages were due and a healthy worker did nothing: no claim of it was answered, and it ran no
/// handler. A worker that is stuck is found beside others that work.
fn waiting(evidence: &Evidence<'_>, run: &Run) -> Vec<Violation> {
    let longest = 2 * run.lease_ms * 1_000_000 + POLL_NS;
    let mut active: HashMap<&str, Vec<u64>> = HashMap::new();
    for operation in evidence.operations {
        let moments = active.entry(operation.process).or_default();
        match operation.call {
            Call::Claim { queue: QueueName::Outbox, .. } if operation.answer().is_some() => {
                moments.push(operation.returned);
            }
            Call::Handle { queue: QueueName::Outbox, .. } => {
                moments.push(operation.invoked);
                moments.push(operation.returned);
            }
            _ => {}
        }
    }
    for moments in active.values_mut() {
        moments.sort_unstable();
    }
    let mut violations = Vec::new();
    // For each worker, the first sample since it did something at which it could have.
    let mut idle: HashMap<&str, Noted<'_, &Sample>> = HashMap::new();
    for sample in &evidence.samples {
        // A measurement of something else, or none because a lock was in the way.
        let Some(healthy) = &sample.what.healthy else { continue };
        let waits = sample.what.due.is_some_and(|due| due > 0);
        idle.retain(|worker, _| waits && healthy.iter().any(|process| process == worker));
        for worker in healthy.iter().filter(|_| waits) {
            let moments = active.get(worker.as_str()).map_or(&[][..], Vec::as_slice);
            let done = |at: u64| moments.partition_point(|moment| *moment <= at);
            let first = *idle.entry(worker).or_insert(*sample);
            if done(first.at) < done(sample.at) {
                idle.insert(worker, *sample);
            } else if sample.at - first.at > longest {
                let text = format!(
                    "{worker} claimed nothing for {} ms although it was healthy and work was due; the most is {} ms",
                    (sample.at - first.at) / 1_000_000,
                    longest / 1_000_000
                );
                violations.push(violation(Rule::Liveness, text, [""; 0], [first.line, sample.line]));
                idle.insert(worker, *sample);
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, LEASE, broken, broken_by, claim, done, id, item, legal, sent};
    use crate::history::{History, MessageState, Outcome};

    #[test]
    fn everything_ends() {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![sent(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Abandon);
        book.row(MessageState { status: "ready".to_owned(), ..done(1) });
        broken_by(Rule::Liveness, &book.history(), &[&id(1).to_string()], &["a:1", "a:2", "controller:5"]);
        let mut book = Book::new();
        book.leave_open(2);
        broken_by(Rule::Liveness, &book.history(), &[], &["controller:3"]);
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_clean() {
        let mut history = Book::new().history();
        history.lines.retain(|placed| !matches!(placed.line.event, crate::history::Event::Settled { .. }));
        assert_eq!(broken(Rule::Liveness, &history).len(), 1);
    }

    /// Samples every 100 ms from `from` on, and a claim of a message by worker `a` at `claimed`.
    fn sampled(from: u64, samples: &[(Option<u64>, &[&str])], claimed: u64) -> History {
        let mut book = Book::new();
        book.enqueue("producer", (1, 2), vec![sent(1)]);
        for (n, (due, healthy)) in (0..).zip(samples) {
            let healthy = Some(healthy.iter().map(|worker| (*worker).to_owned()).collect());
            book.sample(from + 100 * n, Sample { due: *due, healthy, ..Sample::default() });
        }
        book.claim("a", (claimed, claimed + 1), vec![item(1, 1)]);
        book.settle("a", (claimed + 2, claimed + 3), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        book.history()
    }

    /// Samples until the bound is reached.
    fn most() -> usize {
        usize::try_from((2 * LEASE + POLL_NS / 1_000_000) / 100).unwrap()
    }

    #[test]
    fn due_work_does_not_wait_beside_a_healthy_worker() {
        let waiting = vec![(Some(1), &["a"][..]); most() + 2];
        let history = sampled(100, &waiting, 9_000);
        broken_by(Rule::Liveness, &history, &[], &["controller:2", "controller:33"]);
        legal(&sampled(100, &waiting[..=most()], 9_000));
        legal(&sampled(100, &waiting, 1_000));
    }

    #[test]
    fn a_worker_that_is_stuck_is_found_beside_one_that_works() {
        let waiting = vec![(Some(1), &["a", "b"][..]); most() + 2];
        let history = sampled(100, &waiting, 1_000);
        let violations = broken(Rule::Liveness, &history);
        assert_eq!(violations.len(), 1);
        assert!(violations[0].text.starts_with("b claimed nothing"), "{}", violations[0].text);
    }

    #[test]
    fn work_may_wait_while_no_worker_is_healthy_or_nothing_was_measured() {
        for pause in [(Some(1), &[][..]), (Some(0), &["a"]), (None, &["a"])] {
            let mut samples = vec![(Some(1), &["a"][..]); most() + 9];
            samples[15] = pause;
            legal(&sampled(100, &samples, 9_000));
        }
    }

    #[test]
    fn a_claim_that_brings_nothing_shows_that_the_worker_is_not_stuck() {
        let mut book = Book::new();
        for n in 0..40 {
            let healthy = Some(vec!["a".to_owned()]);
            book.sample(100 * n + 50, Sample { due: Some(1), healthy, ..Sample::default() });
            book.claim("a", (100 * n + 60, 100 * n + 61), vec![]);
        }
        legal(&book.history());
    }

    #[test]
    fn a_claim_without_an_answer_is_no_progress() {
        let mut book = Book::new();
        for n in 0..40 {
            let healthy = Some(vec!["a".to_owned()]);
            book.sample(100 * n + 50, Sample { due: Some(1), healthy, ..Sample::default() });
            book.unknown("a", (100 * n + 60, 100 * n + 61), crate::checker::testing::take("a"));
        }
        assert_eq!(broken(Rule::Liveness, &book.history()).len(), 1);
    }
}
