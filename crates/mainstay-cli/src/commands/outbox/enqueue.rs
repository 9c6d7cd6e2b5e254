//! `mainstay outbox enqueue`.

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use mainstay::outbox::{Limits, OnFailure};
use mainstay::{Message, Outbox};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{parse_duration, parse_positive_duration, parse_timestamp};

const EXAMPLES: &str = "\
Examples:
  mainstay outbox enqueue order.paid '{\"order\":7}'
  mainstay outbox enqueue report.wanted --payload-file wanted.json --due-in 5m
  generate | mainstay outbox enqueue import.row - --ordering-key imports
  mainstay outbox enqueue order.paid '{}' --key order-7-paid --header source=import

Without a payload the message has an empty one. Prints the ids of work item and message.";

/// Enqueue a message
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, allow_negative_numbers = true)]
pub(crate) struct EnqueueArgs {
    /// The topic, 1 to 255 characters
    topic: String,
    /// The payload; `-` reads it from stdin
    #[arg(conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Read the payload from a file
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Link the message to the request it came from
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Not before this long from now, by the database's clock: 30s, 5m, 1h30m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "due_at")]
    due_in: Option<Duration>,
    /// Not before this moment: 2027-01-31T09:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    due_at: Option<Timestamp>,
    /// Never handled later than this long from now; it then fails as expired
    #[arg(long, value_name = "DURATION", value_parser = parse_positive_duration)]
    expires_in: Option<Duration>,
    /// An idempotency key: the same key a second time adds nothing and gives the first message's ids
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Messages with the same ordering key are handled one at a time, in order
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Should it fail for good, hold the later messages of its ordering key back
    #[arg(long, requires = "ordering_key")]
    hold_on_failure: bool,
    /// -9 to 9, higher first [default: 0]
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    priority: Option<i16>,
    /// A text that travels with the message; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = parse_header)]
    headers: Vec<(String, String)>,
}

impl EnqueueArgs {
    /// The message, checked.
    pub(super) fn message(&self) -> anyhow::Result<Message> {
        let mut message = Message::new(&self.topic, self.read_payload()?);
        if let Some(id) = &self.correlation_id {
            message = message.correlation(id);
        }
        if let Some(delay) = self.due_in {
            message = message.due_in(delay);
        }
        if let Some(due) = self.due_at {
            message = message.due_at(due);
        }
        if let Some(lifetime) = self.expires_in {
            message = message.expires_in(lifetime);
        }
        if let Some(key) = &self.key {
            message = message.idempotency_key(key);
        }
        if let Some(key) = &self.ordering_key {
            message = message.ordering_key(key);
        }
        if self.hold_on_failure {
            message = message.on_failure(OnFailure::Hold);
        }
        if let Some(level) = self.priority {
            message = message.priority(level);
        }
        for (name, value) in &self.headers {
            message = message.header(name, value);
        }
        // What no database takes is refused before one is opened. Whether it takes a NUL is for it to say.
        let mut limits = Limits::default();
        limits.nul_in_payload = true;
        message.clone().prepare(&limits).context("the message can't be enqueued")?;
        Ok(message)
    }

    fn read_payload(&self) -> anyhow::Result<String> {
        let bytes = match (&self.payload_file, self.payload.as_deref()) {
            (Some(path), _) => std::fs::read(path).map_err(|error| {
                Failure::usage(format!("the payload file {} can't be read", path.display())).because(error)
            })?,
            (None, Some("-")) => {
                let mut bytes = Vec::new();
                // One byte past the limit is enough to see that it is too long.
                let most = Limits::default().payload_bytes as u64 + 1;
                let read = std::io::stdin().lock().take(most).read_to_end(&mut bytes);
                read.context("the payload can't be read from stdin")?;
                bytes
            }
            (None, Some(text)) => return Ok(text.to_owned()),
            (None, None) => return Ok(String::new()),
        };
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            Failure::usage("the payload is not a text")
                .because(format!("it is not valid UTF-8 from byte {at} on"))
                .hint("payloads are texts; encode binary data, as base64 for example")
                .into()
        })
    }
}

pub(super) async fn run(
    message: Option<Message>,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let message = message.context("there is no message")?;
    let enqueued = outbox.enqueue(message).await.context("the message was not enqueued")?;
    if settings.json {
        output::json(&enqueued)?;
    } else {
        let note = if enqueued.added { "" } else { " (was there already, by its idempotency key)" };
        output::line(format_args!("work item {}{note}", enqueued.work_item))?;
        output::line(format_args!("message   {}", enqueued.message))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("a header is written NAME=VALUE".to_owned()),
    }
}
