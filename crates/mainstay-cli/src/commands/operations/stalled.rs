//! `mainstay operations stalled`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mainstay::Operations;
use serde_json::json;

use crate::attempt::Attempt;
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, parse_positive_duration};

const EXAMPLES: &str = "\
Examples:
  mainstay operations stalled                     Those without a sign of life for 5 minutes
  mainstay operations stalled --older-than 1h
  mainstay operations stalled --mark              End them as stalled, which is final

What is marked is recorded in the audit trail. Times are UTC.";

/// List running operations without a sign of life, and mark them as stalled
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct StalledArgs {
    /// How long they have been silent at least
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_positive_duration)]
    older_than: Duration,
    /// End all of them as stalled
    #[arg(long)]
    mark: bool,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, conflicts_with = "mark", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

impl StalledArgs {
    /// What is recorded if it fails; nothing is for a look.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        self.mark.then(|| Attempt::new("operation.mark_stalled"))
    }
}

pub(super) async fn run(
    arguments: &StalledArgs,
    operations: &Operations,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if arguments.mark {
        return mark(arguments, operations, settings).await;
    }
    let found = operations.stalled(arguments.older_than, arguments.limit).await;
    let found = found.context("the operations can't be listed")?;
    if settings.json {
        output::json(&found.iter().map(super::json_of).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no stalled operations")?;
        return Ok(ExitCode::SUCCESS);
    }
    super::tell(&found)?;
    if found.len() == arguments.limit as usize {
        let shown = counted(found.len() as u64, "operation");
        output::note(format_args!("{shown} shown, the longest silent; there may be more: raise --limit"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn mark(
    arguments: &StalledArgs,
    operations: &Operations,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let marked = operations.mark_stalled(arguments.older_than).await;
    let marked = marked.context("the operations can't be marked")?;
    if settings.json {
        output::json(&json!({ "marked": marked }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for id in &marked {
        output::line(id)?;
    }
    output::note(format_args!("{} marked as stalled", counted(marked.len() as u64, "operation")));
    Ok(ExitCode::SUCCESS)
}
