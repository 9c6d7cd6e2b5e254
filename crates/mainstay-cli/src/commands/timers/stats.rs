//! `mainstay timers stats`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Timers;
use serde_json::json;

use crate::commands::outbox::stats::tell_topics;
use crate::output::{self, number};
use crate::settings::Settings;
use crate::text::{age, count, moment};

pub(super) async fn run(timers: &Timers, settings: &Settings) -> anyhow::Result<ExitCode> {
    let doing = "the timers can't be counted";
    let stats = timers.stats().await.context(doing)?;
    let next = timers.next_event_time().await.context(doing)?;
    if settings.json {
        output::json(&json!({
            "pending": stats.pending,
            "overdue": stats.overdue,
            "claimed": stats.claimed,
            "fired": stats.fired,
            "failed": stats.failed,
            "oldest_overdue_seconds": stats.oldest_overdue.map(|age| age.as_secs_f64()),
            "next_event_time": next,
            "topics": stats.topics,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["", "timers"]);
    for (name, timers) in [
        ("pending", stats.pending),
        ("  of these overdue", stats.overdue),
        ("claimed", stats.claimed),
        ("fired", stats.fired),
        ("cancelled, expired or failed", stats.failed),
    ] {
        table.add_row([comfy_table::Cell::new(name), number(count(timers))]);
    }
    output::print(&table)?;
    if let Some(late) = stats.oldest_overdue {
        output::line(format_args!("the oldest overdue timer was due {} ago", age(late)))?;
    }
    if let Some(next) = next {
        output::line(format_args!("the next event is due at {}", moment(next)))?;
    }
    tell_topics(&stats.topics, ["topic", "overdue", "due later", "claimed", "failed", "late by"])?;
    Ok(ExitCode::SUCCESS)
}
