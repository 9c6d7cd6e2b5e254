//! `mainstay outbox requeue`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use mainstay::outbox::MessageFilter;
use mainstay::queue::FailureReason;
use mainstay::{Outbox, WorkItemId};
use serde_json::json;

use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  mainstay outbox requeue 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11
  mainstay outbox requeue --topic order.paid --reason delivery-limit --limit 100
  mainstay outbox requeue --all-failed

A requeued message has all its attempts again. The oldest failures go first.";

/// The rows of one transaction when there are many.
const BATCH: u32 = 1_000;

/// Make failed messages ready again
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("which").required(true).multiple(true))]
pub(crate) struct RequeueArgs {
    /// The work items' ids
    #[arg(group = "which", value_parser = super::parse_id, conflicts_with_all = ["topic", "reason", "all_failed", "limit"])]
    ids: Vec<WorkItemId>,
    /// Failed messages of this topic
    #[arg(long, group = "which")]
    topic: Option<String>,
    /// Failed messages with this reason: handler, delivery-limit, expired or cancelled
    #[arg(long, group = "which", value_parser = super::list::parse_reason)]
    reason: Option<FailureReason>,
    /// All failed messages
    #[arg(long, group = "which", conflicts_with_all = ["topic", "reason"])]
    all_failed: bool,
    /// Messages at most [default: all that match]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl RequeueArgs {
    /// Those that are named, if any.
    pub(super) fn ids(&self) -> &[WorkItemId] {
        &self.ids
    }
}

pub(super) async fn run(
    arguments: RequeueArgs,
    outbox: &Outbox,
    now: Timestamp,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let doing = "the messages can't be requeued";
    if !arguments.ids.is_empty() {
        let changed = outbox.requeue(&arguments.ids).await.context(doing)?;
        return super::tell_verdicts(outbox, &arguments.ids, &changed, ("message", "requeued"), settings)
            .await;
    }
    let mut filter = MessageFilter::all();
    filter.topic = arguments.topic;
    filter.reason = arguments.reason;
    // Only what has failed by now: a message that fails again meanwhile must not be requeued without end.
    filter.settled_before = Some(now);
    let mut left = arguments.limit.unwrap_or(u32::MAX);
    let mut ids = Vec::new();
    let there = failed(&filter, outbox).await;
    let total = match (arguments.limit.map(u64::from), there) {
        (Some(limit), Some(there)) => Some(limit.min(there)),
        (limit, there) => limit.or(there),
    };
    let mut progress = Progress::new("requeueing", total, settings);
    while left > 0 {
        let batch = left.min(BATCH);
        let changed = outbox.requeue_where(&filter, batch).await.context(doing)?;
        let count = changed.len() as u32;
        ids.extend(changed);
        left -= count.min(left);
        progress.add(u64::from(count));
        if count < batch {
            break;
        }
    }
    drop(progress);
    if settings.json {
        output::json(&json!({ "requeued": ids.len(), "ids": ids }))?;
    } else {
        output::line(format_args!("{} requeued", counted(ids.len() as u64, "message")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// How many there are, where the counts tell. They know no reasons, and a bar is no reason to fail.
async fn failed(filter: &MessageFilter, outbox: &Outbox) -> Option<u64> {
    if filter.reason.is_some() {
        return None;
    }
    let stats = outbox.stats().await.ok()?;
    match &filter.topic {
        None => Some(stats.failed),
        Some(topic) => stats.topics.iter().find(|one| one.topic == *topic).map(|one| one.failed),
    }
}
