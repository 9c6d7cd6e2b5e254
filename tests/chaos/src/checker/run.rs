//! From the directory of a run to its verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::operations::{Operation, Outcome};
use super::windows::Windows;
use super::{LogLine, activity, check, logs};
use crate::history::{Event, History, Phase};
use crate::verdict::Verdict;

/// The file of the verdict in a run's directory.
pub const VERDICT: &str = "verdict.json";

/// Judges the run in a directory: its histories (`*.ndjson`) and the logs of its processes (`logs`).
pub fn run_check(directory: &Path) -> Result<Verdict> {
    let history = History::read(directory)?;
    let leaks = logs::leaks(&directory.join("logs"))?;
    verdict(&history, &leaks).with_context(|| format!("cannot judge the run in {}", directory.display()))
}

/// Writes a verdict to `verdict.json` in a run's directory.
pub fn write_verdict(directory: &Path, verdict: &Verdict) -> Result<()> {
    let path = directory.join(VERDICT);
    let text = serde_json::to_string_pretty(verdict)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the exit code that goes with a verdict: 0 without violations, 1 with any.
pub fn exit_code(verdict: &Verdict) -> ExitCode {
    ExitCode::from(u8::from(!verdict.is_clean()))
}

/// Judges a history.
pub fn verdict(history: &History, leaks: &[LogLine]) -> Result<Verdict> {
    let mut verdict = Verdict { violations: check(history, leaks), ..Verdict::default() };
    let (mut began, mut asked) = (None, None);
    for line in history.lines.iter().map(|placed| &placed.line) {
        match &line.event {
            Event::Run(run) => {
                began = Some(line.at);
                verdict.seed = run.seed;
                verdict.date.clone_from(&run.date);
                verdict.git.clone_from(&run.git);
                verdict.provider.clone_from(&run.provider);
                asked = Some(run);
                verdict.command.clone_from(&run.command);
                verdict.planned.clone_from(&run.planned);
            }
            Event::Fault(fault) => {
                let count = verdict.faults.entry(fault.kind.clone()).or_default();
                match fault.phase {
                    Phase::Begin => *count += 1,
                    Phase::Void => *count = count.saturating_sub(1),
                    Phase::End => {}
                }
            }
            _ => {}
        }
    }
    let (Some(began), Some(last)) = (began, history.lines.last()) else {
        bail!("the histories have no line of the controller that tells what was run");
    };
    verdict.faults.retain(|_, count| *count > 0);
    verdict.seconds = last.line.at.saturating_sub(began) / 1_000_000_000;
    let operations = Operation::pair(history, &Windows::default());
    let missing = asked.map(|run| activity::missing(run, &operations)).unwrap_or_default();
    if !missing.is_empty() {
        bail!("the run did too little to prove anything:\n  {}", missing.join("\n  "));
    }
    for operation in operations {
        let counts: &mut BTreeMap<String, u64> = match operation.outcome {
            Outcome::Answered(_) => &mut verdict.ops,
            Outcome::Failed => &mut verdict.failed,
            Outcome::Unknown => &mut verdict.unknown,
        };
        *counts.entry(operation.call.kind().to_owned()).or_default() += 1;
    }
    Ok(verdict)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use crate::checker::testing::{Book, enqueue, sent, take};

    use super::*;

    fn run() -> Book {
        let mut book = Book::new();
        book.handled(10, 1);
        book.fault("kill", (20, 20));
        book.fault("pause", (30, 5_000));
        book.fault_of_nothing("pause", (40, 50));
        book.fail("producer", (40, 41), enqueue(vec![sent(2)]));
        book.silent("a", 50, take("a"));
        book.unknown("b", (60, 61), take("b"));
        book
    }

    /// Writes a history as the processes of a run would have.
    fn write(directory: &Path, history: &History) {
        for placed in &history.lines {
            let path = directory.join(format!("{}.ndjson", placed.line.process));
            let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
            writeln!(file, "{}", serde_json::to_string(&placed.line).unwrap()).unwrap();
        }
        std::fs::create_dir(directory.join("logs")).unwrap();
        std::fs::write(directory.join("logs/a.log"), "started\n").unwrap();
    }

    #[test]
    fn a_verdict_counts_faults_and_calls() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), &run().history());
        let verdict = run_check(directory.path()).unwrap();
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|(kind, count)| ((*kind).to_owned(), *count)).collect()
        };
        let expected = Verdict {
            seed: 7,
            date: "2026-11-19".to_owned(),
            git: "0123abc".to_owned(),
            provider: "postgres".to_owned(),
            command: "cargo xtask chaos".to_owned(),
            seconds: 5,
            planned: counts(&[("kill", 1), ("pause", 2)]),
            faults: counts(&[("kill", 1), ("pause", 1)]),
            ops: counts(&[("claim", 1), ("enqueue", 1), ("settle", 1)]),
            failed: counts(&[("enqueue", 1)]),
            unknown: counts(&[("claim", 2)]),
            violations: Vec::new(),
        };
        assert_eq!(verdict, expected);
    }

    #[test]
    fn a_run_that_did_too_little_is_not_judged() {
        let mut history = run().history();
        let begin = history.lines.iter_mut().find_map(|placed| match &mut placed.line.event {
            Event::Run(run) => Some(run),
            _ => None,
        });
        begin.unwrap().minutes = 1.0;
        let error = verdict(&history, &[]).unwrap_err().to_string();
        assert!(
            error.contains("lease-holder: 0 answered calls of acquire, at least 3 are needed"),
            "{error}"
        );
    }

    #[test]
    fn a_run_without_its_controller_is_not_judged() {
        let mut history = run().history();
        history.lines.retain(|placed| placed.line.process != "controller");
        let error = verdict(&history, &[]).unwrap_err().to_string();
        assert!(error.contains("no line of the controller"), "{error}");
    }
}
