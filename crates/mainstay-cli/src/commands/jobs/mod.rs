//! `mainstay jobs`: work that comes round by the clock.

mod explain;

use std::process::ExitCode;

use clap::Subcommand;

use crate::settings::Settings;

/// Look at jobs and their schedules
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Show when a cron expression fires next, and what clock changes do to it
    Explain(explain::ExplainArgs),
}

pub(crate) async fn run(command: JobsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    match command {
        // Needs no database.
        JobsCommand::Explain(arguments) => explain::run(&arguments, settings),
    }
}
