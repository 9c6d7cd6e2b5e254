//! `mainstay outbox enqueue`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use mainstay::outbox::Enqueued;
use mainstay::{JoinId, Message, Outbox};

use crate::commands::content::{ContentArgs, lenient};
use crate::commands::joins;
use crate::output;
use crate::settings::Settings;
use crate::text::{parse_duration, parse_positive_duration, parse_timestamp};

pub(super) const EXAMPLES: &str = "\
Examples:
  mainstay outbox enqueue order.paid '{\"order\":7}'
  mainstay outbox enqueue report.wanted --payload-file wanted.json --due-in 5m
  generate | mainstay outbox enqueue import.row - --ordering-key imports
  mainstay outbox enqueue order.paid '{}' --key order-7-paid --header source=import

Without a payload the message has an empty one. Prints the ids of work item and message.";

/// Enqueue a message
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct EnqueueArgs {
    #[command(flatten)]
    content: ContentArgs,
    /// Not before this long from now, by the database's clock: 30s, 5m, 1h30m
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration, conflicts_with = "due_at")]
    due_in: Option<Duration>,
    /// Not before this moment: 2027-01-31T09:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    due_at: Option<Timestamp>,
    /// Never handled later than this long from now; it then fails as expired
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_positive_duration)]
    expires_in: Option<Duration>,
}

/// Enqueue a message, as a step of joins or of none
#[derive(Debug, Args)]
#[command(allow_negative_numbers = true)]
pub(crate) struct StepArgs {
    #[command(flatten)]
    message: EnqueueArgs,
    /// Make it a step of this join; may be repeated
    #[arg(long = "join", value_name = "ID", value_parser = joins::parse_id)]
    joins: Vec<JoinId>,
}

impl StepArgs {
    /// The message, checked.
    pub(super) fn message(&self) -> anyhow::Result<Message> {
        Ok(self.joins.iter().copied().fold(self.message.message()?, Message::join))
    }
}

impl EnqueueArgs {
    /// The message, checked.
    pub(crate) fn message(&self) -> anyhow::Result<Message> {
        let mut message = self.content.message()?;
        if let Some(delay) = self.due_in {
            message = message.due_in(delay);
        }
        if let Some(due) = self.due_at {
            message = message.due_at(due);
        }
        if let Some(lifetime) = self.expires_in {
            message = message.expires_in(lifetime);
        }
        message.clone().prepare(&lenient()).context("the message can't be enqueued")?;
        Ok(message)
    }
}

pub(super) async fn run(
    message: Option<Message>,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let message = message.context("there is no message")?;
    let enqueued = outbox.enqueue(message).await;
    let enqueued = enqueued.map_err(|error| joins::refused(error, "the message was not enqueued"))?;
    tell(enqueued, "work item", settings)
}

/// Tells the ids of what was added.
pub(crate) fn tell(enqueued: Enqueued, noun: &str, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.json {
        output::json(&enqueued)?;
    } else {
        let note = if enqueued.added { "" } else { " (was there already, by its idempotency key)" };
        output::line(format_args!("{noun:<9} {}{note}", enqueued.work_item))?;
        output::line(format_args!("message   {}", enqueued.message))?;
    }
    Ok(ExitCode::SUCCESS)
}
