//! `mainstay inbox list`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Inbox;
use mainstay::inbox::{EntryState, InboxFilter, InboxKey, InboxPage};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, moment, shorten};

const EXAMPLES: &str = "\
Examples:
  mainstay inbox list --state dead
  mainstay inbox list --source billing --limit 20
  mainstay inbox list --after billing inv-17      The page after that message
  mainstay inbox list --json | jq -r '.[].message_id'

Payloads are not listed; `mainstay inbox show SOURCE ID` shows one. Times are UTC.";

/// List received messages, newest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only from this source
    #[arg(long)]
    source: Option<String>,
    /// Only in this state: seen, processing, done or dead
    #[arg(long, value_parser = parse_state)]
    state: Option<EntryState>,
    /// Only those that were enqueued under this topic
    #[arg(long)]
    topic: Option<String>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those after this message: the last one of the page before
    #[arg(long, num_args = 2, value_names = ["SOURCE", "ID"])]
    after: Option<Vec<String>>,
}

fn parse_state(text: &str) -> Result<EntryState, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}

pub(super) async fn run(arguments: ListArgs, inbox: &Inbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let mut filter = InboxFilter::all();
    filter.source = arguments.source;
    filter.state = arguments.state;
    filter.topic = arguments.topic;
    let after = match arguments.after.as_deref() {
        Some([source, message_id]) => Some(InboxKey::new(source, message_id)?),
        _ => None,
    };
    if let Some(key) = &after {
        let known =
            inbox.get(key.source(), key.message_id()).await.context("the messages can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("message", key))?;
    }
    let page = InboxPage { limit: arguments.limit, after };
    let entries = inbox.list(&filter, &page).await.context("the messages can't be listed")?;
    if settings.json {
        output::json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    if entries.is_empty() {
        output::line("no messages")?;
        return Ok(ExitCode::SUCCESS);
    }
    let header =
        ["source", "message id", "state", "topic", "attempts", "first seen", "last seen", "last error"];
    let mut table = output::table(header);
    for entry in &entries {
        table.add_row([
            shorten(entry.key.source(), 30),
            shorten(entry.key.message_id(), 40),
            entry.state.to_string(),
            entry.topic.as_deref().map(|topic| shorten(topic, 40)).unwrap_or_default(),
            entry.attempts.to_string(),
            moment(entry.first_seen_at),
            moment(entry.last_seen_at),
            entry.last_error.as_deref().map(|error| shorten(error, 60)).unwrap_or_default(),
        ]);
    }
    output::print(&table)?;
    if entries.len() == arguments.limit as usize
        && let Some(last) = entries.last()
    {
        let (shown, key) = (counted(entries.len() as u64, "message"), &last.key);
        output::note(format_args!(
            "{shown} shown; there may be more: --after {:?} {:?}",
            key.source(),
            key.message_id()
        ));
    }
    Ok(ExitCode::SUCCESS)
}
