//! `mainstay outbox cancel`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::{Outbox, WorkItemId};

use crate::settings::Settings;

const EXAMPLES: &str = "\
Example:
  mainstay outbox cancel 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11

A cancelled message ends as failed with the reason `cancelled`; `mainstay outbox requeue` undoes it.
A message that a worker has begun with is left alone.";

/// Cancel messages that no worker has begun with
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CancelArgs {
    /// The work items' ids
    #[arg(required = true, value_parser = super::parse_id)]
    pub(crate) ids: Vec<WorkItemId>,
}

pub(super) async fn run(
    arguments: CancelArgs,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let changed = outbox.cancel(&arguments.ids).await.context("the messages can't be cancelled")?;
    super::tell_verdicts(outbox, &arguments.ids, &changed, ("message", "cancelled"), settings).await
}
