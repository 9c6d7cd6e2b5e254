//! `mainstay jobs`: work that comes round by the clock.

mod change;
mod define;
mod explain;
mod list;
mod runs;
mod show;
mod trigger;

use std::process::ExitCode;

use clap::Subcommand;
use mainstay::Jobs;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::Settings;

use super::outbox::Opened;

/// Register, look at, switch and trigger work that comes round by the clock
#[derive(Debug, Subcommand)]
pub(crate) enum JobsCommand {
    /// Register a job
    Create(define::CreateArgs),
    /// Change a job; what is not named stays as it is
    Update(define::UpdateArgs),
    /// Delete a job and cancel its pending runs; its history stays
    Delete(change::DeleteArgs),
    /// Let a job run again, from now on
    Enable(change::NameArgs),
    /// Keep a job from running
    Disable(change::NameArgs),
    /// List jobs by name
    List,
    /// Show a job, its payload included
    Show(show::ShowArgs),
    /// Make a run of a job now
    Trigger(trigger::TriggerArgs),
    /// List runs, newest first, or show one with its output
    Runs(runs::RunsArgs),
    /// Show when a cron expression fires next, and what clock changes do to it
    Explain(explain::ExplainArgs),
}

pub(crate) async fn run(command: JobsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first; and one command needs none.
    match &command {
        JobsCommand::Explain(arguments) => return explain::run(arguments, settings),
        JobsCommand::Create(arguments) => arguments.check()?,
        JobsCommand::Update(arguments) => arguments.check()?,
        _ => {}
    }
    let (attempt, tells_itself) = match &command {
        JobsCommand::Create(arguments) => (Some(("job.create_or_update", arguments.name())), false),
        JobsCommand::Update(arguments) => (Some(("job.create_or_update", arguments.name())), false),
        JobsCommand::Delete(arguments) => (Some(("job.delete", arguments.name())), false),
        JobsCommand::Enable(arguments) => (Some(("job.enable", arguments.name())), false),
        JobsCommand::Disable(arguments) => (Some(("job.disable", arguments.name())), false),
        // A run that is skipped is there, and recorded as that.
        JobsCommand::Trigger(arguments) => (Some(("job.trigger", arguments.name())), true),
        _ => (None, false),
    };
    let attempt = attempt.map(|(name, job)| Attempt::new(name).about("job", [job]));
    let opened = Opened::open(settings).await?;
    let jobs = Jobs::new(opened.provider.jobs()).by(&settings.actor);
    let result = match command {
        JobsCommand::Create(arguments) => define::create(&arguments, &jobs, settings).await,
        JobsCommand::Update(arguments) => define::update(&arguments, &jobs, settings).await,
        JobsCommand::Delete(arguments) => change::delete(&arguments, &jobs, settings).await,
        JobsCommand::Enable(arguments) => change::switch(&arguments, true, &jobs, settings).await,
        JobsCommand::Disable(arguments) => change::switch(&arguments, false, &jobs, settings).await,
        JobsCommand::List => list::run(&jobs, settings).await,
        JobsCommand::Show(arguments) => show::run(&arguments, &jobs, settings).await,
        JobsCommand::Trigger(arguments) => trigger::run(&arguments, &jobs, settings).await,
        JobsCommand::Runs(arguments) => runs::run(&arguments, &jobs, settings).await,
        JobsCommand::Explain(_) => Ok(ExitCode::SUCCESS),
    };
    if let Some(attempt) = attempt.filter(|_| result.is_err() || !tells_itself) {
        attempt.ended(opened.provider.as_ref(), settings, &result).await;
    }
    opened.provider.close().await;
    result
}

/// The failure for a name that no job has.
fn unknown(name: &str) -> Failure {
    Failure::new(format!("there is no job {name:?}")).hint("`mainstay jobs list` shows those there are")
}
