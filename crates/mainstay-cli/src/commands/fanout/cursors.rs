//! `mainstay fanout cursors`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::fanout::Fanout;

use crate::output;
use crate::settings::Settings;
use crate::text::{counted, harmless, moment, shorten};

use super::KeyArgs;

const EXAMPLES: &str = "\
Examples:
  mainstay fanout cursors etl payments
  mainstay fanout cursors etl payments --after tenant-0050     The page after that shard
  mainstay fanout cursors etl payments --json | jq -r '.[] | select(.last_completed_at == null) | .shard_key'

A slice's id is that of its message: `mainstay outbox show` takes it. Times are UTC, by the database's clock.";

/// List the shards of a fan-out and how far each has come
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CursorsArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Rows at most, 1 to 10,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Only shards after this one: the last of the page before
    #[arg(long, value_name = "SHARD")]
    after: Option<String>,
}

pub(super) async fn run(
    arguments: &CursorsArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    if fanout.get(&key.topic, &key.work_key).await.context("the fan-out can't be read")?.is_none() {
        return Err(key.unknown().into());
    }
    let found = fanout.cursors(&key.topic, &key.work_key, arguments.after.as_deref(), arguments.limit).await;
    let found = found.context("the cursors can't be listed")?;
    if settings.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no shards")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["shard", "completed up to", "last slice for", "slice", ""]);
    for cursor in &found {
        table.add_row([
            shorten(&cursor.shard_key, 60),
            cursor.last_completed_at.map(moment).unwrap_or_default(),
            cursor.slice_due_at.map(moment).unwrap_or_default(),
            cursor.slice_id.map(|id| id.to_string()).unwrap_or_default(),
            if cursor.in_flight { "under way" } else { "" }.to_owned(),
        ]);
    }
    output::print(&table)?;
    if found.len() == arguments.limit as usize
        && let Some(last) = found.last()
    {
        let shown = counted(found.len() as u64, "shard");
        output::note(format_args!("{shown} shown; there may be more: --after {}", harmless(&last.shard_key)));
    }
    Ok(ExitCode::SUCCESS)
}
