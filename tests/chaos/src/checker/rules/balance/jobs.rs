//! Jobs: one run for each time at which one was due, and none of these times is left out.
//!
//! The jobs of a run make up all missed occurrences, so from the first to the last there is one for every interval. A
//! failover that loses its tail loses the place of the job with its runs, and they are made again. A clock that is
//! stepped ahead can bring more occurrences than a job makes up.

use std::collections::HashMap;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::history::{Answer, Call, Condition};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut saved: HashMap<&str, &Operation<'_>> = HashMap::new();
    let mut written = Written::default();
    for operation in evidence.operations.iter().filter(|operation| operation.possibly()) {
        match operation.call {
            Call::SaveJob { name, .. } => {
                let known = saved.entry(name).or_insert(operation);
                if operation.surely() && !known.surely() {
                    *known = operation;
                }
            }
            Call::Materialise => written.count(operation),
            _ => {}
        }
    }
    let mut violations = Vec::new();
    let mut total = 0;
    let mut lines = Vec::new();
    for noted in &evidence.conditions {
        let Condition::Job { name, runs, occurrences, span } = noted.what else { continue };
        total += runs;
        lines.push(noted.line);
        let made = saved.remove(name.as_str());
        if let Some((first, last)) = span.filter(|_| evidence.clock_steps.is_empty())
            && let Some(every_us) = made.and_then(every_us)
        {
            let expected = last.saturating_sub(first) / every_us + 1;
            if u64::try_from(expected).ok() != Some(*occurrences) {
                let text = format!("a job has runs for {occurrences} of {expected} occurrences in a row");
                violations.push(violation(Rule::Balance, text, [name], [noted.line]));
            }
        }
        if made.is_none() {
            violations.push(violation(
                Rule::Balance,
                "a job is there that no call saved",
                [name],
                [noted.line],
            ));
        }
        if runs != occurrences {
            let text = format!("a job has {runs} runs for {occurrences} occurrences");
            violations.push(violation(Rule::Balance, text, [name], [noted.line]));
        }
    }
    for (name, operation) in saved {
        if operation.surely() {
            let lines = operation.lines.iter().copied();
            violations.push(violation(Rule::Balance, "a saved job is gone", [name], lines));
        }
    }
    if let Some(text) = written.wrong(total) {
        violations.push(violation(Rule::Balance, text, [""; 0], lines));
    }
    violations.sort_by(|a, b| a.ids.cmp(&b.ids));
    violations
}

/// Returns the time between two occurrences.
fn every_us(saved: &Operation<'_>) -> Option<i64> {
    let Call::SaveJob { every_ms, .. } = saved.call else { return None };
    i64::try_from(*every_ms).ok().filter(|every| *every > 0)?.checked_mul(1_000)
}

/// The runs that calls wrote.
#[derive(Default)]
struct Written {
    is_recorded: bool,
    least: u64,
    /// None: there is no telling.
    most: Option<u64>,
}

impl Written {
    fn count(&mut self, operation: &Operation<'_>) {
        let so_far = if self.is_recorded { self.most } else { Some(0) };
        self.is_recorded = true;
        match operation.answer() {
            Some(Answer::Runs(runs)) => {
                self.least += if operation.surely() { *runs } else { 0 };
                self.most = so_far.map(|most| most + runs);
            }
            _ => self.most = None,
        }
    }

    fn wrong(&self, total: u64) -> Option<String> {
        if !self.is_recorded {
            return None;
        }
        if total < self.least {
            return Some(format!("there are {total} runs, and calls wrote {}", self.least));
        }
        let most = self.most?;
        (total > most).then(|| format!("there are {total} runs, and calls wrote {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken, legal};
    use crate::history::{CLOCK_STEP, LOST_TAIL};

    fn save() -> Call {
        Call::SaveJob { name: "j".to_owned(), every_ms: 1_000 }
    }

    fn job(runs: u64, occurrences: u64) -> Condition {
        Condition::Job { name: "j".to_owned(), runs, occurrences, span: None }
    }

    /// A job of which calls wrote two runs.
    fn written() -> Book {
        let mut book = Book::new();
        book.ok("scheduler", (10, 11), save(), Answer::Done);
        for at in [20, 30] {
            book.ok("scheduler", (at, at + 1), Call::Materialise, Answer::Runs(1));
        }
        book
    }

    fn with(mut book: Book, condition: Condition) -> crate::history::History {
        book.end(condition);
        book.history()
    }

    #[test]
    fn each_occurrence_has_one_run() {
        legal(&with(written(), job(2, 2)));
        for wrong in [job(2, 1), job(1, 1), job(3, 3)] {
            assert_eq!(broken(Rule::Balance, &with(written(), wrong)).len(), 1);
        }
    }

    #[test]
    fn no_occurrence_is_left_out() {
        let spans = |last: i64| {
            let span = Some((7_000_000, last));
            with(written(), Condition::Job { name: "j".to_owned(), runs: 2, occurrences: 2, span })
        };
        legal(&spans(8_000_000));
        let violations = broken(Rule::Balance, &spans(9_000_000));
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].text, "a job has runs for 2 of 3 occurrences in a row");
        let mut stepped = written();
        stepped.fault(CLOCK_STEP, (22, 23));
        let span = Some((7_000_000, 3_607_000_000));
        legal(&with(stepped, Condition::Job { name: "j".to_owned(), runs: 2, occurrences: 2, span }));
    }

    #[test]
    fn a_call_without_an_answer_may_have_written_runs() {
        let mut book = written();
        book.silent("scheduler", 40, Call::Materialise);
        legal(&with(book.clone(), job(2, 2)));
        legal(&with(book.clone(), job(5, 5)));
        assert_eq!(broken(Rule::Balance, &with(book, job(1, 1))).len(), 1);
        let mut book = written();
        book.fault(LOST_TAIL, (25, 26));
        legal(&with(book.clone(), job(2, 2)));
        book.fault(LOST_TAIL, (30, 31));
        legal(&with(book, job(1, 1)));
    }

    #[test]
    fn a_saved_job_is_there_and_no_other() {
        let mut book = Book::new();
        book.ok("scheduler", (10, 11), save(), Answer::Done);
        assert_eq!(broken(Rule::Balance, &book.history()).len(), 1);
        assert_eq!(broken(Rule::Balance, &with(Book::new(), job(0, 0))).len(), 1);
        let mut book = Book::new();
        book.silent("scheduler", 10, save());
        legal(&book.history());
        legal(&with(book, job(0, 0)));
    }
}
