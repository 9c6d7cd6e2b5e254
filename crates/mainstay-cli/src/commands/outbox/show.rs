//! `mainstay outbox show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::outbox::OutboxMessage;
use mainstay::{Outbox, WorkItemId};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, moment};

const EXAMPLES: &str = "\
Examples:
  mainstay outbox show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay outbox show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --payload | jq .
  mainstay outbox show 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11 --json";

/// Show a message, its payload included
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The work item's id
    #[arg(value_parser = super::parse_id)]
    pub(crate) id: WorkItemId,
    /// Print the payload alone, byte for byte
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

pub(super) async fn run(
    arguments: ShowArgs,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = outbox.get(arguments.id).await.context("the message can't be read")?;
    let hint = "the id is that of the work item, as `mainstay outbox list` shows it";
    tell(found.as_ref(), &arguments, ("message", hint), settings)
}

/// Tells all of what was found: a message, or whatever the noun says. The hint says where ids come from.
pub(crate) fn tell(
    found: Option<&OutboxMessage>,
    arguments: &ShowArgs,
    (noun, hint): (&str, &str),
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let Some(message) = found else {
        return Err(Failure::new(format!("there is no {noun} {}", arguments.id)).hint(hint).into());
    };
    if settings.json {
        output::json(message)?;
    } else if arguments.payload {
        print_payload(message, noun)?;
    } else {
        tell_message(message)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The payload alone, byte for byte.
pub(crate) fn print_payload(message: &OutboxMessage, noun: &str) -> anyhow::Result<()> {
    let payload = message.payload.as_deref();
    let payload =
        payload.ok_or_else(|| Failure::new(format!("the payload of this {noun} is no longer kept")))?;
    output::raw(payload.as_bytes())
}

/// A message for people, its payload included.
pub(crate) fn tell_message(message: &OutboxMessage) -> anyhow::Result<()> {
    let mut rows = vec![
        ("id", message.id.to_string()),
        ("message id", message.message_id.to_string()),
        ("topic", message.topic.clone()),
        ("status", super::list::standing(message)),
        ("attempts", message.attempts.to_string()),
        ("priority", message.priority.to_string()),
        ("created", moment(message.created_at)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("due", message.due_at.map(moment));
    if !message.status.is_terminal() {
        add("next attempt", Some(moment(message.next_attempt_at)));
    }
    add("expires", message.expires_at.map(moment));
    add("held by", message.owner.map(|owner| owner.to_string()));
    add("held until", message.locked_until.map(moment));
    add("settled", message.processed_at.map(moment));
    add("settled by", message.processed_by.map(|owner| owner.to_string()));
    add("last error", message.last_error.clone());
    add("correlation id", message.correlation_id.clone());
    add("ordering key", message.ordering_key.clone());
    add("idempotency key", message.idempotency_key.clone());
    for (name, value) in &message.headers {
        output_row(&mut rows, name, value);
    }
    tell_rows(&rows)?;
    match &message.payload {
        None => output::line("the payload is no longer kept"),
        Some(payload) if payload.is_empty() => output::line("the payload is empty"),
        // Line breaks are the payload's own; `--payload` gives it byte for byte.
        Some(payload) => {
            let lines: Vec<_> = payload.lines().map(harmless).collect();
            output::line(format_args!("\n{}", lines.join("\n")))
        }
    }
}

/// Names and values, one pair in a line.
pub(crate) fn tell_rows(rows: &[(&str, String)]) -> anyhow::Result<()> {
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(value)))?;
    }
    Ok(())
}

fn output_row(rows: &mut Vec<(&'static str, String)>, name: &str, value: &str) {
    rows.push(("header", format!("{name}={value}")));
}
