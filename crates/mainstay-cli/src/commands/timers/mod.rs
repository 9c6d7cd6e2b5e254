//! `mainstay timers`: messages for later. Looking at them is what `mainstay outbox` does, with another noun.

mod reschedule;
mod schedule;
mod stats;

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use mainstay::Timers;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::Settings;

use super::outbox::{Opened, cancel, list, show, tell_verdicts};

const LIST_EXAMPLES: &str = "\
Examples:
  mainstay timers list --status ready             Those that have not fired yet
  mainstay timers list --reason cancelled
  mainstay timers list --topic reminder.send --json | jq -r '.[].id'

A timer that has fired is `done`: its message is in the outbox, under the same id. Times are UTC.";

const SHOW_EXAMPLES: &str = "\
Examples:
  mainstay timers show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay timers show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --payload | jq .";

const CANCEL_EXAMPLES: &str = "\
Example:
  mainstay timers cancel 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11

A cancelled timer never fires. One that has fired already is left alone, and so is its message.";

/// Schedule, look at and change messages for later
#[derive(Debug, Subcommand)]
pub(crate) enum TimersCommand {
    /// Schedule a timer: a message that is sent when it is due
    Schedule(schedule::ScheduleArgs),
    /// List timers, newest first
    #[command(after_help = LIST_EXAMPLES)]
    List(list::ListArgs),
    /// Show a timer, its payload included
    #[command(after_help = SHOW_EXAMPLES)]
    Show(show::ShowArgs),
    /// Cancel timers that have not fired
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(cancel::CancelArgs),
    /// Give a timer that has not fired another due time
    Reschedule(reschedule::RescheduleArgs),
    /// Count timers by where they stand
    Stats,
}

pub(crate) async fn run(command: TimersCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    let timer = match &command {
        TimersCommand::Schedule(arguments) => Some(arguments.timer()?),
        _ => None,
    };
    let attempt = match &command {
        TimersCommand::Cancel(arguments) => {
            Some(Attempt::new("timers.cancel").about("timers", &arguments.ids))
        }
        TimersCommand::Reschedule(arguments) => {
            Some(Attempt::new("timers.reschedule").about("timers", [arguments.id()]))
        }
        _ => None,
    };
    let opened = Opened::open(settings).await?;
    let timers = Timers::new(opened.provider.as_ref()).by(&settings.actor);
    let result = match command {
        TimersCommand::Schedule(_) => schedule::run(timer, &timers, settings).await,
        TimersCommand::List(arguments) => list_timers(&arguments, &timers, settings).await,
        TimersCommand::Show(arguments) => show_timer(&arguments, &timers, settings).await,
        TimersCommand::Cancel(arguments) => cancel_timers(&arguments, &timers, settings).await,
        TimersCommand::Reschedule(arguments) => reschedule::run(&arguments, &timers, settings).await,
        TimersCommand::Stats => stats::run(&timers, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(opened.provider.as_ref(), settings, &result).await;
    }
    opened.provider.close().await;
    result
}

async fn show_timer(
    arguments: &show::ShowArgs,
    timers: &Timers,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = timers.get(arguments.id).await.context("the timer can't be read")?;
    let words = ("timer", "`mainstay timers list` shows the ids");
    show::tell(found.as_ref().map(|timer| timer.record()), arguments, words, settings)
}

async fn cancel_timers(
    arguments: &cancel::CancelArgs,
    timers: &Timers,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let changed = timers.cancel_many(&arguments.ids).await.context("the timers can't be cancelled")?;
    let words = ("timer", "cancelled");
    tell_verdicts(timers.queue(), &arguments.ids, &changed, words, settings).await
}

async fn list_timers(
    arguments: &list::ListArgs,
    timers: &Timers,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.page().before {
        let known = timers.get(id).await.context("the timers can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("timer", id))?;
    }
    let found = timers.list(&arguments.filter(), arguments.page()).await;
    let found = found.context("the timers can't be listed")?;
    let records: Vec<_> = found.iter().map(|timer| timer.record().clone()).collect();
    list::tell(&records, arguments, "timer", settings)
}
