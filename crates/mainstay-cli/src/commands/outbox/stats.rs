//! `mainstay outbox stats`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Outbox;
use mainstay::outbox::{OutboxStats, TopicStats};
use serde_json::{Value, json};

use crate::commands::pausing;
use crate::output::{self, number};
use crate::settings::Settings;
use crate::text::{age, count, shorten};

pub(super) async fn run(outbox: &Outbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let stats = outbox.stats().await.context("the messages can't be counted")?;
    let paused = outbox.paused().await.context("what is paused can't be listed")?;
    if settings.json {
        let mut value = in_json(&stats);
        value["paused"] = serde_json::to_value(&paused)?;
        output::json(&value)?;
    } else {
        tell(&stats)?;
        pausing::tell_paused(&paused)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A queue's counts for programs.
pub(crate) fn in_json(stats: &OutboxStats) -> Value {
    json!({
        "ready": stats.ready,
        "scheduled": stats.scheduled,
        "in_progress": stats.in_progress,
        "lapsed": stats.lapsed,
        "done": stats.done,
        "failed": stats.failed,
        "held_keys": stats.held_keys,
        "oldest_ready_seconds": stats.oldest_ready.map(|age| age.as_secs_f64()),
        "topics": stats.topics,
    })
}

/// A queue's counts for people.
pub(crate) fn tell(stats: &OutboxStats) -> anyhow::Result<()> {
    let mut table = output::table(["", "messages"]);
    for (name, messages) in [
        ("ready", stats.ready),
        ("scheduled (due later)", stats.scheduled),
        ("in progress", stats.in_progress),
        ("  of these lapsed", stats.lapsed),
        ("done", stats.done),
        ("failed", stats.failed),
        ("ordering keys held", stats.held_keys),
    ] {
        table.add_row([comfy_table::Cell::new(name), number(count(messages))]);
    }
    output::print(&table)?;
    if let Some(waiting) = stats.oldest_ready {
        output::line(format_args!("the oldest ready message has been waiting for {}", age(waiting)))?;
    }
    tell_topics(&stats.topics, ["topic", "ready", "scheduled", "in progress", "failed", "waiting for"])
}

/// The counts by topic, if there are any.
pub(crate) fn tell_topics(topics: &[TopicStats], header: [&str; 6]) -> anyhow::Result<()> {
    if topics.is_empty() {
        return Ok(());
    }
    let mut table = output::table(header);
    for topic in topics {
        let counts = [topic.ready, topic.scheduled, topic.in_progress, topic.failed];
        let cells = counts.map(|items| number(count(items)));
        let waiting = number(topic.oldest_ready.map(age).unwrap_or_default());
        let name = comfy_table::Cell::new(shorten(&topic.topic, 60));
        table.add_row(std::iter::once(name).chain(cells).chain([waiting]));
    }
    output::print(&table)
}
