//! `mainstay inbox show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Inbox;
use mainstay::inbox::InboxEntry;
use serde_json::json;

use super::KeyArgs;
use crate::commands::outbox::show::{print_payload, tell_message, tell_rows};
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::moment;

const EXAMPLES: &str = "\
Examples:
  mainstay inbox show billing inv-17
  mainstay inbox show billing inv-17 --payload | jq .
  mainstay inbox show billing inv-17 --json";

/// Show a received message, its payload included
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Print the payload alone, byte for byte
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

pub(super) async fn run(arguments: ShowArgs, inbox: &Inbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let key = arguments.key.key()?;
    let Some(entry) = inbox.store().get(&key).await.context("the message can't be read")? else {
        return Err(Failure::new(format!("there is no message {key}"))
            .hint("source and id are those that `mainstay inbox list` shows")
            .into());
    };
    let message = match entry.work_item {
        Some(id) => inbox.queue().get(id).await.context("the message can't be read")?,
        None => None,
    };
    if settings.json {
        output::json(&json!({ "entry": entry, "message": message }))?;
    } else if arguments.payload {
        let message =
            message.ok_or_else(|| Failure::new("this message is not in the queue, so it has no payload"))?;
        print_payload(&message, "message")?;
    } else {
        tell_entry(&entry)?;
        if let Some(message) = message {
            output::line("")?;
            tell_message(&message)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tell_entry(entry: &InboxEntry) -> anyhow::Result<()> {
    let mut rows = vec![
        ("source", entry.key.source().to_owned()),
        ("message id", entry.key.message_id().to_owned()),
        ("state", entry.state.to_string()),
        ("attempts", entry.attempts.to_string()),
        ("first seen", moment(entry.first_seen_at)),
        ("last seen", moment(entry.last_seen_at)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("settled", entry.processed_at.map(moment));
    add("held by", entry.owner.map(|owner| owner.to_string()));
    add("held until", entry.locked_until.map(moment));
    add("hash", entry.hash.map(|hash| hash.to_string()));
    add("last error", entry.last_error.clone());
    tell_rows(&rows)
}
