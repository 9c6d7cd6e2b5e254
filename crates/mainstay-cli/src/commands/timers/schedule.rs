//! `mainstay timers schedule`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use mainstay::Timers;
use mainstay::outbox::When;
use mainstay::timer::NewTimer;

use crate::commands::content::{ContentArgs, lenient};
use crate::commands::outbox::enqueue;
use crate::failure::Failure;
use crate::settings::Settings;
use crate::text::{parse_duration, parse_timestamp};

const EXAMPLES: &str = "\
Examples:
  mainstay timers schedule reminder.send '{\"user\":7}' --due-in 2h
  mainstay timers schedule invoice.send --payload-file invoice.json --due-at 2027-01-31T09:00:00Z
  mainstay timers schedule order.expire '{\"order\":7}' --due-in 30m --key expire-order-7

Prints the ids of the timer and of the message it becomes. It fires in whichever process runs Mainstay with timers.";

/// Schedule a timer: a message that is sent when it is due
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct ScheduleArgs {
    #[command(flatten)]
    content: ContentArgs,
    #[command(flatten)]
    due: DueArgs,
}

/// When a timer is due.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("due").required(true))]
pub(crate) struct DueArgs {
    /// This long from now, by the database's clock: 30s, 5m, 1h30m
    #[arg(long, group = "due", value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    due_in: Option<Duration>,
    /// At this moment: 2027-01-31T09:00:00Z. A past one means at once
    #[arg(long, group = "due", value_name = "MOMENT", value_parser = parse_timestamp)]
    due_at: Option<Timestamp>,
}

impl DueArgs {
    pub(super) fn when(&self) -> Result<When, Failure> {
        let due = self.due_in.map(When::In).or(self.due_at.map(When::At));
        // The parser sees to it that there is one.
        due.ok_or_else(|| Failure::usage("when is it due? --due-in or --due-at says"))
    }
}

impl ScheduleArgs {
    /// The timer, checked.
    pub(super) fn timer(&self) -> anyhow::Result<NewTimer> {
        let timer = NewTimer::from_message(self.content.message()?, self.due.when()?);
        timer.clone().prepare(&lenient()).context("the timer can't be scheduled")?;
        Ok(timer)
    }
}

pub(super) async fn run(
    timer: Option<NewTimer>,
    timers: &Timers,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let timer = timer.context("there is no timer")?;
    let scheduled = timers.schedule(timer).await.context("the timer was not scheduled")?;
    enqueue::tell(scheduled, "timer", settings)
}
