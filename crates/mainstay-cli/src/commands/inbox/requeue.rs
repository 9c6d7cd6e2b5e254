//! `mainstay inbox requeue`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgGroup, Args};
use mainstay::Inbox;
use mainstay::inbox::{InboxFilter, InboxKey};
use serde_json::json;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  mainstay inbox requeue billing inv-17 inv-18
  mainstay inbox requeue --from billing --limit 100
  mainstay inbox requeue --all-dead

A requeued message has all its attempts again. One that was in the queue is ready there; one that was only
marked is free for the next that asks for it.";

/// The messages of one step when there are many.
const BATCH: u64 = 1_000;

/// Make dead messages live again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct RequeueArgs {
    /// Where the messages come from, and then their ids there
    #[arg(group = "which", value_names = ["SOURCE", "ID"], num_args = 2.., conflicts_with_all = ["from", "topic", "all_dead", "limit"])]
    messages: Vec<String>,
    /// Dead messages from this source
    #[arg(long, group = "which", value_name = "SOURCE")]
    from: Option<String>,
    /// Dead messages that were enqueued under this topic
    #[arg(long, group = "which")]
    topic: Option<String>,
    /// All dead messages
    #[arg(long, group = "which", conflicts_with_all = ["from", "topic"])]
    all_dead: bool,
    /// Messages at most [default: all that match]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl RequeueArgs {
    pub(super) fn attempt(&self) -> Attempt {
        let attempt = Attempt::new("inbox.requeue");
        match self.messages.split_first() {
            Some((source, ids)) => attempt.about("inbox", ids).about("source", [source]),
            None => attempt.about("source", &self.from),
        }
    }
}

pub(super) async fn run(
    arguments: RequeueArgs,
    inbox: &Inbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let doing = "the messages can't be requeued";
    if let Some((source, ids)) = arguments.messages.split_first() {
        if ids.is_empty() {
            return Err(Failure::usage("the ids of the messages are missing").into());
        }
        let keys = ids.iter().map(|id| InboxKey::new(source, id)).collect::<mainstay::Result<Vec<_>>>()?;
        let changed = inbox.revive(&keys).await.context(doing)?;
        return super::tell_verdicts(inbox, &keys, &changed, "requeued", settings).await;
    }
    let mut filter = InboxFilter::all();
    filter.source = arguments.from;
    filter.topic = arguments.topic;
    let dead = inbox.stats().await.context(doing)?.ledger.dead;
    // No more than have died by now: one that dies again meanwhile must not be requeued without end.
    let most = dead.min(arguments.limit.map_or(u64::MAX, u64::from));
    let mut revived = Vec::new();
    let mut progress = Progress::new("requeueing", Some(most), settings);
    while (revived.len() as u64) < most {
        let batch = (most - revived.len() as u64).min(BATCH) as u32;
        let changed = inbox.revive_where(&filter, batch).await.context(doing)?;
        progress.add(changed.len() as u64);
        let full = changed.len() == batch as usize;
        revived.extend(changed);
        if !full {
            break;
        }
    }
    drop(progress);
    if settings.json {
        output::json(&json!({ "requeued": revived.len(), "messages": revived }))?;
    } else {
        output::line(format_args!("{} requeued", counted(revived.len() as u64, "message")))?;
    }
    Ok(ExitCode::SUCCESS)
}
