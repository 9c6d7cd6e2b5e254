//! `mainstay jobs trigger`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Jobs;
use mainstay::job::RunState;

use crate::failure::FAILED;
use crate::output;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Example:
  mainstay jobs trigger nightly

Works for a disabled job too. With --overlap skip the run is recorded as skipped, and the exit code is 1, while an earlier one
is not over. A scheduler dispatches the run; `mainstay jobs runs --id RUN` shows what becomes of it.";

/// Make a run of a job now
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TriggerArgs {
    /// The job's name
    name: String,
}

impl TriggerArgs {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

pub(super) async fn run(
    arguments: &TriggerArgs,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    let run = match jobs.trigger(name).await {
        Err(error) if error.kind() == mainstay::ErrorKind::NotFound => {
            return Err(super::unknown(name).into());
        }
        run => run.context("the job can't be triggered")?,
    };
    let skipped = run.state == RunState::Skipped;
    if settings.json {
        output::json(&run)?;
    } else if skipped {
        output::note(format_args!("run {} skipped: an earlier run of {name} is not over", run.id));
    } else {
        output::line(format_args!("run {}", run.id))?;
    }
    Ok(if skipped { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
