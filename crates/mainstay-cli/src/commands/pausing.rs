//! `mainstay outbox pause` and `resume`, and the same of `inbox`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::outbox::PausedTopic;
use serde_json::json;

use crate::attempt::Attempt;
use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, moment, shorten};

pub(super) const EXAMPLES: &str = "\
Examples:
  mainstay outbox pause mail.send --reason 'the provider is down, INC-17'
  mainstay outbox resume mail.send
  mainstay inbox pause order.import

From the next claim on no worker gets messages of the topic, in whatever language it is written.
What was claimed before goes on to its end, messages can still be enqueued, and those that wait
keep their place. Those that expire meanwhile fail after the resume. `stats` lists what is paused.
The exit code is 0 also when nothing had to change.";

/// Keep workers from claiming messages of a topic
#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The topic
    topic: String,
    /// Why, for those who wonder; up to 255 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Let workers have the messages of a paused topic again
#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// The topic
    topic: String,
}

impl PauseArgs {
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    pub(super) fn attempt(&self, name: &'static str) -> Attempt {
        Attempt::new(name).about("topic", [&self.topic])
    }
}

impl ResumeArgs {
    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn attempt(&self, name: &'static str) -> Attempt {
        Attempt::new(name).about("topic", [&self.topic])
    }
}

/// Tells how a topic stands after it was paused, or resumed, and whether that changed anything.
pub(super) fn tell(
    topic: &str,
    paused: bool,
    changed: mainstay::Result<bool>,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (verb, still) = match paused {
        true => ("paused", "paused already"),
        false => ("resumed", "not paused"),
    };
    let changed = changed.with_context(|| format!("the topic can't be {verb}"))?;
    if settings.json {
        output::json(&json!({ "topic": topic, "paused": paused, "changed": changed }))?;
    } else {
        let state = if changed { verb } else { still };
        output::line(format_args!("{} {state}", harmless(topic)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Tells what is paused, if anything is.
pub(super) fn tell_paused(paused: &[PausedTopic]) -> anyhow::Result<()> {
    if paused.is_empty() {
        return Ok(());
    }
    let mut table = output::table(["paused topic", "since", "by", "reason"]);
    for paused in paused {
        table.add_row([
            shorten(&paused.topic, 60),
            moment(paused.since),
            shorten(&paused.by, 40),
            paused.reason.as_deref().map(|reason| shorten(reason, 80)).unwrap_or_default(),
        ]);
    }
    output::print(&table)
}
