//! `mainstay joins report`.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use mainstay::join::{Reported, Step};
use mainstay::{JoinId, Joins, WorkItemId};
use serde_json::json;

use crate::attempt::Attempt;
use crate::commands::outbox;
use crate::failure::Told;
use crate::output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Example:
  mainstay joins report 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 0190a5c4-8a10-7c41-9d52-0c9a3c1c7b02 completed

Steps that are messages are counted by themselves. A step is counted once, however often it is reported. If the join had ended
before, nothing changes, and the exit code is 1.";

/// Count a step by hand, as completed or failed
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReportArgs {
    /// The join's id
    #[arg(value_parser = super::parse_id)]
    join: JoinId,
    /// The step's id
    #[arg(value_parser = outbox::parse_id)]
    item: WorkItemId,
    /// How it has ended
    #[arg(value_enum)]
    outcome: Outcome,
}

/// How a step has ended.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Outcome {
    /// Well
    Completed,
    /// Not well
    Failed,
}

impl ReportArgs {
    pub(super) fn attempt(&self) -> Attempt {
        Attempt::new("join.report").about("join", [self.join]).about("step", [self.item])
    }
}

pub(super) async fn run(
    arguments: &ReportArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let step = match arguments.outcome {
        Outcome::Completed => Step::Completed,
        Outcome::Failed => Step::Failed,
    };
    let reported = joins.report(arguments.join, arguments.item, step).await;
    let reported = reported.map_err(|error| super::refused(error, "the step was not counted"))?;
    let (word, state) = match reported {
        Reported::Counted(counted) => ("counted", Some(counted.state)),
        Reported::Already => ("already", None),
        Reported::Ended(state) => ("ended", Some(state)),
    };
    if settings.json {
        let (join, item) = (arguments.join, arguments.item);
        let state = state.map(|state| state.as_str());
        output::json(&json!({ "join": join, "work_item": item, "outcome": word, "state": state }))?;
    } else {
        match reported {
            Reported::Counted(counted) => {
                output::line(format_args!("counted as {}; the join is {}", step.as_str(), counted.state))?;
            }
            Reported::Already => output::line("counted already")?,
            Reported::Ended(state) => output::note(format_args!("not counted: the join is {state}")),
        }
    }
    match reported {
        Reported::Ended(state) => Err(Told(format!("not counted: the join is {state}")).into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}
