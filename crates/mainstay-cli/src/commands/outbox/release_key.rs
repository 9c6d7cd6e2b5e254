//! `mainstay outbox release-key`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Outbox;
use serde_json::json;

use crate::failure::Told;
use crate::output;
use crate::settings::Settings;
use crate::text::harmless;

const EXAMPLES: &str = "\
Example:
  mainstay outbox release-key customer-3

A message enqueued with --hold-on-failure that fails for good holds the later messages of its ordering
key back. This lets them go on without it; requeueing the failed message lets them go on after it.
The exit code is 1 when the key was not held.";

/// Let an ordering key that a failed message holds go on without it
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReleaseKeyArgs {
    /// The ordering key
    key: String,
}

impl ReleaseKeyArgs {
    pub(super) fn key(&self) -> &str {
        &self.key
    }
}

pub(super) async fn run(
    arguments: ReleaseKeyArgs,
    outbox: &Outbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let released = outbox.release_key(key).await.context("the key can't be released")?;
    let refused = format!("{key} not released: it is not held");
    if settings.json {
        output::json(&json!({ "key": key, "released": released }))?;
    } else if released {
        output::line(format_args!("{} released", harmless(key)))?;
    } else {
        output::refusal(&harmless(&refused));
    }
    if released { Ok(ExitCode::SUCCESS) } else { Err(Told(refused).into()) }
}
