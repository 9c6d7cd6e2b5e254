//! `mainstay inbox stats`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Inbox;
use serde_json::json;

use crate::commands::outbox::stats::{in_json, tell};
use crate::output::{self, number};
use crate::settings::Settings;
use crate::text::count;

pub(super) async fn run(inbox: &Inbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let stats = inbox.stats().await.context("the messages can't be counted")?;
    if settings.json {
        output::json(&json!({ "ledger": stats.ledger, "queue": in_json(&stats.queue) }))?;
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
    Ok(ExitCode::SUCCESS)
}
