//! Everything ends, and due work never waits for long beside a healthy worker.
//!
//! Two leases are the longest that work may wait: a worker that lost its connection without a word
//! keeps what it has claimed for one lease, and notices within another.

use super::violation;
use crate::checker::evidence::{Evidence, Noted};
use crate::history::{Answer, Call, QueueName, Run, Sample};
use crate::verdict::{Rule, Violation};

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

/// Finds stretches in which messages were due, workers were healthy, and nothing was claimed.
fn waiting(evidence: &Evidence<'_>, run: &Run) -> Vec<Violation> {
    let longest = 2 * run.lease_ms * 1_000_000;
    let mut claims: Vec<u64> = evidence
        .operations
        .iter()
        .filter(|operation| {
            matches!(operation.call, Call::Claim { queue: QueueName::Outbox, .. })
                && matches!(operation.answer(), Some(Answer::Claimed { items, rejected })
                    if !(items.is_empty() && rejected.is_empty()))
        })
        .map(|operation| operation.returned)
        .collect();
    claims.sort_unstable();
    let mut violations = Vec::new();
    // The first sample since the last claim at which work waited, and the last one.
    let mut stretch: Option<(Noted<'_, &Sample>, Noted<'_, &Sample>)> = None;
    let mut close = |stretch: Option<(Noted<'_, &Sample>, Noted<'_, &Sample>)>| {
        let Some((first, last)) = stretch.filter(|(first, last)| last.at - first.at > longest) else {
            return;
        };
        let text = format!(
            "nothing was claimed for {} ms although work was due and a worker was healthy; the most is {} ms",
            (last.at - first.at) / 1_000_000,
            longest / 1_000_000
        );
        violations.push(violation(Rule::Liveness, text, [""; 0], [first.line, last.line]));
    };
    for sample in &evidence.samples {
        let waits = sample.what.due.is_some_and(|due| due > 0)
            && sample.what.healthy_workers.is_some_and(|workers| workers > 0);
        let claimed_before = claims.partition_point(|at| *at <= sample.at);
        stretch = match stretch {
            _ if !waits => {
                close(stretch.take());
                None
            }
            Some((first, _)) if claims.partition_point(|at| *at <= first.at) == claimed_before => {
                Some((first, *sample))
            }
            _ => {
                close(stretch.take());
                Some((*sample, *sample))
            }
        };
    }
    close(stretch);
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

    /// Samples every 100 ms from `from` on, and a claim of a message at `claimed`.
    fn sampled(from: u64, samples: &[(Option<u64>, u32)], claimed: u64) -> History {
        let mut book = Book::new();
        book.enqueue("producer", (1, 2), vec![sent(1)]);
        for (n, (due, workers)) in (0..).zip(samples) {
            let sample = Sample { due: *due, healthy_workers: Some(*workers), ..Sample::default() };
            book.sample(from + 100 * n, sample);
        }
        book.claim("a", (claimed, claimed + 1), vec![item(1, 1)]);
        book.settle("a", (claimed + 2, claimed + 3), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        book.history()
    }

    #[test]
    fn due_work_does_not_wait_beside_a_healthy_worker() {
        let most = usize::try_from(2 * LEASE / 100).unwrap();
        let waiting = vec![(Some(1), 1); most + 2];
        let history = sampled(100, &waiting, 5_000);
        // Two leases after the first sample, and one sample more.
        broken_by(Rule::Liveness, &history, &[], &["controller:2", "controller:23"]);
        legal(&sampled(100, &waiting[..=most], 5_000));
        legal(&sampled(100, &waiting, 1_000));
    }

    #[test]
    fn work_may_wait_while_no_worker_is_healthy_or_nothing_was_measured() {
        for pause in [(Some(1), 0), (Some(0), 1), (None, 1)] {
            let mut samples = vec![(Some(1), 1); 30];
            samples[15] = pause;
            legal(&sampled(100, &samples, 5_000));
        }
    }

    #[test]
    fn a_claim_that_brings_nothing_is_no_progress() {
        let mut book = Book::new();
        for n in 0..30 {
            book.sample(100 * n + 50, Sample { due: Some(1), healthy_workers: Some(1), ..Sample::default() });
            book.claim("a", (100 * n + 60, 100 * n + 61), vec![]);
        }
        assert_eq!(broken(Rule::Liveness, &book.history()).len(), 1);
    }
}
