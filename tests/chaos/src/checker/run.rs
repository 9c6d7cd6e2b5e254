//! From the directory of a run to its verdict.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::operations::{Operation, Outcome};
use super::windows::Windows;
use super::{LogLine, check, logs};
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
///
/// A run that could not be judged is neither; a program exits with 2 then.
pub fn exit_code(verdict: &Verdict) -> ExitCode {
    ExitCode::from(u8::from(!verdict.is_clean()))
}

/// Judges a history.
pub fn verdict(history: &History, leaks: &[LogLine]) -> Result<Verdict> {
    let mut verdict = Verdict { violations: check(history, leaks), ..Verdict::default() };
    let mut began = None;
    for line in history.lines.iter().map(|placed| &placed.line) {
        match &line.event {
            Event::Run(run) => {
                began = Some(line.at);
                verdict.seed = run.seed;
                verdict.date.clone_from(&run.date);
                verdict.git.clone_from(&run.git);
                verdict.provider.clone_from(&run.provider);
            }
            Event::Fault(fault) if fault.phase == Phase::Begin => {
                *verdict.faults.entry(fault.kind.clone()).or_default() += 1;
            }
            _ => {}
        }
    }
    let (Some(began), Some(last)) = (began, history.lines.last()) else {
        bail!("the histories have no line of the controller that tells what was run");
    };
    verdict.seconds = last.line.at.saturating_sub(began) / 1_000_000_000;
    for operation in Operation::pair(history, &Windows::default()) {
        let counts: &mut BTreeMap<String, u64> = match operation.outcome {
            Outcome::Answered(_) => &mut verdict.ops,
            Outcome::Failed => &mut verdict.failed,
            Outcome::Unknown => &mut verdict.unknown,
        };
        *counts.entry(operation.call.kind().to_owned()).or_default() += 1;
    }
    Ok(verdict)
}
