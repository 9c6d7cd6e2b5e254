//! `mainstay fanout list`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::fanout::{Fanout, FanoutPolicy};

use crate::output;
use crate::settings::Settings;
use crate::text::{moment, shorten};

use super::span;

/// Policies fetched at a time.
const PAGE: u32 = 500;

async fn all(fanout: &Fanout) -> Result<Vec<FanoutPolicy>, mainstay::Error> {
    let mut all: Vec<FanoutPolicy> = Vec::new();
    loop {
        let page = fanout.list(all.last().map(|policy| &policy.key), PAGE).await?;
        let full = page.len() == PAGE as usize;
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

pub(super) async fn run(fanout: &Fanout, settings: &Settings) -> anyhow::Result<ExitCode> {
    let all = all(fanout).await.context("the fan-outs can't be listed")?;
    if settings.json {
        output::json(&all)?;
        return Ok(ExitCode::SUCCESS);
    }
    if all.is_empty() {
        output::line("no fan-outs")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["topic", "work key", "every", "jitter", "cron", "zone", "last (UTC)", ""]);
    for policy in &all {
        table.add_row([
            shorten(policy.key.topic(), 40),
            shorten(policy.key.work_key(), 40),
            span(policy.every),
            span(policy.jitter),
            policy.cron.as_deref().map(|cron| shorten(cron, 40)).unwrap_or_default(),
            shorten(&policy.time_zone, 32),
            policy.last_run_at.map(moment).unwrap_or_default(),
            standing(policy).to_owned(),
        ]);
    }
    output::print(&table)?;
    Ok(ExitCode::SUCCESS)
}

/// What is out of the ordinary.
fn standing(policy: &FanoutPolicy) -> &'static str {
    match (policy.run_requested_at, policy.enabled) {
        (Some(_), _) => "a run is asked for",
        (None, false) => "disabled",
        (None, true) => "",
    }
}
