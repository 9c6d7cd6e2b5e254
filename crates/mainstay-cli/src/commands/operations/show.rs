//! `mainstay operations show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::operation::{EventPage, Operation, OperationEvent, OperationPage};
use mainstay::{OperationId, Operations};
use serde_json::{Value, json};

use crate::output;
use crate::settings::Settings;
use crate::text::{count, counted, harmless, moment};

const EXAMPLES: &str = "\
Examples:
  mainstay operations show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay operations show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --after 50   The events after that number
  mainstay operations show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --json | jq '.event_list'

Times are UTC.";

/// Show an operation, its parts and its events
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The operation's id
    #[arg(value_parser = super::parse_id)]
    id: OperationId,
    /// Events at most, and parts at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only events after this number: the last one of the page before
    #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    after: u64,
}

pub(super) async fn run(
    arguments: &ShowArgs,
    operations: &Operations,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = operations.get(arguments.id).await.context("the operation can't be read")?;
    let operation = found.ok_or_else(|| super::unknown(arguments.id))?;
    let page = EventPage { limit: arguments.limit, after: arguments.after };
    let events = operations.events(operation.id, page).await.context("its events can't be listed")?;
    let page = OperationPage { limit: arguments.limit, before: None };
    let parts = operations.children(operation.id, page).await.context("its parts can't be listed")?;
    if settings.json {
        output::json(&as_json(&operation, &events, &parts))?;
        return Ok(ExitCode::SUCCESS);
    }
    tell(&operation)?;
    if !parts.is_empty() {
        output::line("\nparts, newest first")?;
        super::tell(&parts)?;
    }
    tell_events(&events, arguments.limit)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(operation: &Operation, events: &[OperationEvent], parts: &[Operation]) -> Value {
    let mut value = super::json_of(operation);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("event_list".to_owned(), json!(events));
        fields.insert("parts".to_owned(), parts.iter().map(super::json_of).collect());
    }
    value
}

fn tell(operation: &Operation) -> anyhow::Result<()> {
    let mut rows = vec![("id", operation.id.to_string()), ("name", operation.name.clone())];
    rows.extend(operation.parent.map(|parent| ("part of", parent.to_string())));
    rows.push(("state", operation.state.to_string()));
    rows.extend(operation.error.clone().map(|error| ("error", error)));
    let progress = super::standing(&operation.progress);
    rows.extend((!progress.is_empty()).then_some(("progress", progress)));
    rows.extend(operation.progress.message.clone().map(|message| ("message", message)));
    rows.push(("actor", operation.actor.clone()));
    rows.extend(operation.correlation_id.clone().map(|id| ("correlation id", id)));
    rows.extend(operation.tags.iter().map(|(key, value)| ("tag", format!("{key}={value}"))));
    rows.extend([
        ("events", count(operation.events)),
        ("started", moment(operation.started_at)),
        ("last sign", moment(operation.updated_at)),
    ]);
    rows.extend(operation.ended_at.map(|at| ("ended", moment(at))));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    Ok(())
}

fn tell_events(events: &[OperationEvent], limit: u32) -> anyhow::Result<()> {
    let Some(last) = events.last() else { return Ok(()) };
    let mut table = output::table(["event", "at", "kind", "message", "data"]);
    for event in events {
        table.add_row([
            event.seq.to_string(),
            moment(event.recorded_at),
            harmless(&event.kind),
            event.message.as_deref().map(harmless).unwrap_or_default(),
            event.data.as_ref().map(|data| harmless(&data.to_string())).unwrap_or_default(),
        ]);
    }
    output::line("")?;
    output::print(&table)?;
    if events.len() == limit as usize {
        let shown = counted(events.len() as u64, "event");
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.seq));
    }
    Ok(())
}
