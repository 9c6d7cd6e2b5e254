//! `mainstay audit show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::audit::{Audit, AuditId, AuditRecord};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, moment};

const EXAMPLES: &str = "\
Examples:
  mainstay audit show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay audit show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --json | jq .data.before

Of what it is about, at most 100 things are shown. Times are UTC.";

/// Show a record
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The record's id
    #[arg(value_parser = super::parse_id)]
    id: AuditId,
}

pub(super) async fn run(
    arguments: &ShowArgs,
    audit: &Audit,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = audit.get(arguments.id).await.context("the record can't be read")?;
    let record = found.ok_or_else(|| {
        Failure::new(format!("there is no record {}", arguments.id))
            .hint("`mainstay audit list` shows those there are")
    })?;
    if settings.json {
        output::json(&record)?;
    } else {
        tell(&record)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(record: &AuditRecord) -> anyhow::Result<()> {
    let mut rows = vec![
        ("id", record.id.to_string()),
        ("when", moment(record.recorded_at)),
        ("what", record.name.clone()),
        ("actor", record.actor.clone()),
        ("outcome", record.outcome.to_string()),
    ];
    rows.extend(record.correlation_id.clone().map(|id| ("belongs to", id)));
    rows.extend(record.anchors.iter().map(|anchor| ("about", format!("{}={}", anchor.kind, anchor.value))));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    if let Some(data) = &record.data {
        output::line("")?;
        // Line by line: what a text within steers a terminal with is written out by JSON itself, but for the direction of a line.
        for line in serde_json::to_string_pretty(data)?.lines() {
            output::line(harmless(line))?;
        }
    }
    Ok(())
}
