//! `mainstay outbox list`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::outbox::{MessageFilter, OutboxMessage, Page};
use mainstay::queue::{FailureReason, Status};
use mainstay::{Outbox, WorkItemId};
use serde_json::Value;

use crate::failure::Failure;
use crate::output::{self, Tone, toned};
use crate::settings::Settings;
use crate::text::{counted, moment, shorten};

const EXAMPLES: &str = "\
Examples:
  mainstay outbox list --status failed --reason delivery-limit
  mainstay outbox list --topic order.paid --limit 20
  mainstay outbox list --after 0190a5c4-…         The page after that id
  mainstay outbox list --json | jq -r '.[].id'

Payloads are not listed; `mainstay outbox show ID` shows one. Times are UTC.";

/// Which messages.
#[derive(Debug, Args)]
pub(crate) struct FilterArgs {
    /// Only this topic
    #[arg(long)]
    topic: Option<String>,
    /// Only this status: ready, in-progress, done or failed
    #[arg(long, value_parser = parse_status)]
    status: Option<Status>,
    /// Only failed ones with this reason: handler, delivery-limit, expired or cancelled
    #[arg(long, value_parser = parse_reason)]
    reason: Option<FailureReason>,
    /// Only this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> MessageFilter {
        let mut filter = MessageFilter::all();
        filter.topic = self.topic.clone();
        filter.status = self.status;
        filter.reason = self.reason;
        filter.correlation_id = self.correlation_id.clone();
        filter
    }

    /// Whether it is all of them.
    pub(super) fn is_empty(&self) -> bool {
        self.filter() == MessageFilter::all()
    }
}

/// List messages, newest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those that come after this id: the last one of the page before
    #[arg(long, alias = "before", value_name = "ID", value_parser = super::parse_id)]
    after: Option<WorkItemId>,
}

impl ListArgs {
    pub(crate) fn filter(&self) -> MessageFilter {
        self.filter.filter()
    }

    pub(crate) fn page(&self) -> Page {
        Page { limit: self.limit, before: self.after }
    }
}

pub(super) async fn run(
    arguments: ListArgs,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.after {
        let known = outbox.get(id).await.context("the messages can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("message", id))?;
    }
    let messages = outbox.list(&arguments.filter(), arguments.page()).await;
    tell(&messages.context("the messages can't be listed")?, &arguments, "message", settings)
}

/// Tells what was found: messages, or whatever the noun says.
pub(crate) fn tell(
    messages: &[OutboxMessage],
    arguments: &ListArgs,
    noun: &str,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if settings.json {
        let rows: Result<Vec<_>, _> = messages.iter().map(without_payload).collect();
        output::json(&rows?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if messages.is_empty() {
        output::line(format_args!("no {noun}s"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        output::table(["id", "topic", "status", "attempts", "created", "due or settled", "last error"]);
    for message in messages {
        let tone = match message.status {
            Status::Failed => Tone::Bad,
            _ => Tone::Plain,
        };
        table.add_row([
            message.id.to_string().into(),
            shorten(&message.topic, 40).into(),
            toned(standing(message), tone),
            message.attempts.to_string().into(),
            moment(message.created_at).into(),
            moment(message.processed_at.unwrap_or(message.next_attempt_at)).into(),
            message.last_error.as_deref().map(|error| shorten(error, 60)).unwrap_or_default().into(),
        ]);
    }
    output::print(&table)?;
    if messages.len() == arguments.limit as usize
        && let Some(last) = messages.last()
    {
        let shown = counted(messages.len() as u64, noun);
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// The status, with the reason of a failure.
pub(super) fn standing(message: &OutboxMessage) -> String {
    match message.reason {
        Some(reason) => format!("{}: {reason}", message.status),
        None => message.status.to_string(),
    }
}

/// A message as JSON. A list is what ends up in logs and tickets, so payloads and headers stay out of it.
fn without_payload(message: &OutboxMessage) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(message)?;
    if let Some(fields) = value.as_object_mut() {
        fields.remove("payload");
        fields.remove("headers");
    }
    Ok(value)
}

pub(super) fn parse_status(text: &str) -> Result<Status, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}

pub(super) fn parse_reason(text: &str) -> Result<FailureReason, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}
