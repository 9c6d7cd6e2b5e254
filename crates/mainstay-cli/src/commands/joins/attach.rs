//! `mainstay joins attach`.

use std::process::ExitCode;

use clap::Args;
use mainstay::{JoinId, Joins, WorkItemId};
use serde_json::json;

use crate::attempt::Attempt;
use crate::commands::outbox;
use crate::output;
use crate::settings::Settings;
use crate::text::counted;

const EXAMPLES: &str = "\
Example:
  mainstay joins attach 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 0190a5c4-8a10-7c41-9d52-0c9a3c1c7b02

A message that has ended already is counted at once. An id that is no message is a step that `mainstay joins report` counts.
Those that are members already stay as they are.";

/// Make messages, or whatever is reported by hand, steps of a join
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct AttachArgs {
    /// The join's id
    #[arg(value_parser = super::parse_id)]
    join: JoinId,
    /// The work items' ids
    #[arg(required = true, value_parser = outbox::parse_id)]
    items: Vec<WorkItemId>,
}

impl AttachArgs {
    pub(super) fn attempt(&self) -> Attempt {
        Attempt::new("join.attach").about("join", [self.join]).about("step", &self.items)
    }
}

pub(super) async fn run(
    arguments: &AttachArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let attached = joins.attach(arguments.join, &arguments.items).await;
    let attached = attached.map_err(|error| super::refused(error, "nothing was attached"))?;
    if settings.json {
        output::json(&json!({
            "join": arguments.join,
            "added": attached.added,
            "counted": attached.counted.as_ref().map(super::json_of_count),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format_args!("{} attached", counted(attached.added, "step")))?;
    if let Some(count) = attached.counted {
        let steps = u64::from(count.completed) + u64::from(count.failed);
        output::line(format_args!("{steps} counted at once; the join is {}", count.state))?;
    }
    Ok(ExitCode::SUCCESS)
}
