//! `mainstay inbox stats`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Inbox;
use serde_json::json;

use crate::commands::outbox::stats::{in_json, tell};
use crate::commands::pausing;
use crate::output::{self, number};
use crate::settings::Settings;
use crate::text::count;

pub(super) async fn run(inbox: &Inbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let stats = inbox.stats().await.context("the messages can't be counted")?;
    let paused = inbox.paused().await.context("what is paused can't be listed")?;
    if settings.json {
        output::json(&json!({ "ledger": stats.ledger, "queue": in_json(&stats.queue), "paused": paused }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["ledger", "messages"]);
    for (name, messages) in [
        ("seen", stats.ledger.seen),
        ("processing (reserved)", stats.ledger.processing),
        ("  of these lapsed", stats.ledger.lapsed),
        ("done", stats.ledger.done),
        ("dead", stats.ledger.dead),
    ] {
        table.add_row([comfy_table::Cell::new(name), number(count(messages))]);
    }
    output::print(&table)?;
    output::line("\nin the queue")?;
    tell(&stats.queue)?;
    pausing::tell_paused(&paused)?;
    Ok(ExitCode::SUCCESS)
}
