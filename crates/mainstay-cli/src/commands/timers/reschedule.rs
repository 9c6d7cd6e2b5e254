//! `mainstay timers reschedule`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::{Timers, WorkItemId};

use crate::commands::outbox::{parse_id, tell_verdicts};
use crate::settings::Settings;

use super::schedule::DueArgs;

const EXAMPLES: &str = "\
Examples:
  mainstay timers reschedule 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --due-in 5m
  mainstay timers reschedule 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --due-at 2027-01-31T09:00:00Z

A timer that has fired, is cancelled, or that somebody has claimed is left alone.";

/// Give a timer that has not fired another due time
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RescheduleArgs {
    /// The timer's id
    #[arg(value_parser = parse_id)]
    id: WorkItemId,
    #[command(flatten)]
    due: DueArgs,
}

impl RescheduleArgs {
    pub(super) fn id(&self) -> WorkItemId {
        self.id
    }
}

pub(super) async fn run(
    arguments: &RescheduleArgs,
    timers: &Timers,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let asked = [arguments.id];
    let changed = timers.reschedule(arguments.id, arguments.due.when()?).await;
    let changed = if changed.context("the timer can't be rescheduled")? { &asked[..] } else { &[] };
    tell_verdicts(timers.queue(), &asked, changed, ("timer", "rescheduled"), settings).await
}
