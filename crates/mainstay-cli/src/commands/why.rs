//! `mainstay why`: why a message is not running.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::WorkItemId;
use mainstay::health::Explanation;

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::harmless;

use super::outbox::{Opened, parse_id};

const EXAMPLES: &str = "\
Examples:
  mainstay why 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay why 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --json | jq -r .because

Looks in the outbox, the inbox's queue, the timers and the runs of jobs, and tells what the item
waits for: its due time, another one of its ordering key, that its topic is resumed, a worker with
a handler; or who has it, or how it ended. Nothing is written.";

/// Tell why a message is not running, and what to do
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WhyArgs {
    /// The work item's id
    #[arg(value_parser = parse_id)]
    id: WorkItemId,
}

pub(crate) async fn run(arguments: WhyArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let opened = Opened::open(settings).await?;
    let explained = Explanation::of(opened.provider.as_ref(), arguments.id).await;
    opened.provider.close().await;
    let Some(explanation) = explained.context("the message can't be read")? else {
        return Err(Failure::new(format!("there is no item {}", arguments.id))
            .hint("the id is that of the work item, as `mainstay outbox list` shows it; what is done may be gone by retention")
            .into());
    };
    if settings.json {
        output::json(&explanation)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Explanation { queue, topic, status, summary, advice, .. } = &explanation;
    output::line(format_args!("{} in {queue}, topic {}, {status}", explanation.id, harmless(topic)))?;
    output::line(format_args!("  why: {}", harmless(summary)))?;
    if let Some(advice) = advice {
        output::line(format_args!("  do:  {}", harmless(advice)))?;
    }
    Ok(ExitCode::SUCCESS)
}
