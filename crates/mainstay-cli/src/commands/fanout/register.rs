//! `mainstay fanout register` and `mainstay fanout delete`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mainstay::fanout::{Fanout, FanoutDefinition};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, parse_duration};

use super::KeyArgs;

const REGISTER_EXAMPLES: &str = "\
Examples:
  mainstay fanout register etl payments --every 10m --jitter 1m
  mainstay fanout register etl reports --cron '0 2 * * *' --tz Europe/Berlin

Registering the same values again changes nothing, also where they were changed with `mainstay fanout set` since. A program that
registers the fan-out itself does so with its own values, at its next start. Slices are made while some program coordinates.";

const DELETE_EXAMPLES: &str = "\
Example:
  mainstay fanout set etl payments --disable      so that no more slices are made
  mainstay fanout delete etl payments

Its shards are forgotten with it, and how far they had come. Refused while a slice is under way. A program that registers the
fan-out makes it anew at its next start; `mainstay fanout set --disable` lasts.";

/// Register a fan-out: a topic with a work key, and how often its shards are due
#[derive(Debug, Args)]
#[command(after_help = REGISTER_EXAMPLES)]
pub(crate) struct RegisterArgs {
    #[command(flatten)]
    pub(super) key: KeyArgs,
    /// The cadence, in whole seconds, up to 366 days; with a cron expression, the least distance between two slices of a shard
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, required_unless_present = "cron")]
    every: Option<Duration>,
    /// Spread slices over this long, in whole seconds, up to a day
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    jitter: Option<Duration>,
    /// Plan at the times of this cron expression, quoted: '0 2 * * *'
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,
    /// The time zone of the cron expression, an IANA name like Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Plan nothing but what is asked for, until it is enabled
    #[arg(long)]
    disabled: bool,
}

impl RegisterArgs {
    fn definition(&self) -> FanoutDefinition {
        let mut definition =
            FanoutDefinition::new(&self.key.topic, &self.key.work_key).enabled(!self.disabled);
        definition = self.every.into_iter().fold(definition, FanoutDefinition::every);
        definition = self.jitter.into_iter().fold(definition, FanoutDefinition::jitter);
        definition = self.cron.iter().fold(definition, FanoutDefinition::cron);
        self.tz.iter().fold(definition, FanoutDefinition::time_zone)
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.definition().prepare().map(drop).context("the fan-out can't be registered")
    }
}

pub(super) async fn register(
    arguments: &RegisterArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let before = fanout.get(&key.topic, &key.work_key).await.context("the fan-out can't be read")?;
    let policy = fanout.register(arguments.definition()).await.context("the fan-out was not registered")?;
    if settings.json {
        output::json(&policy)?;
    } else {
        let verb = match before {
            None => "registered",
            Some(before) if before.version == policy.version => "unchanged",
            Some(_) => "changed",
        };
        output::line(format_args!("{} {verb}, version {}", key.shown(), policy.version))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Delete a fan-out, with its shards
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct DeleteArgs {
    #[command(flatten)]
    pub(super) key: KeyArgs,
}

pub(super) async fn delete(
    arguments: &DeleteArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let deleted = fanout.delete(&key.topic, &key.work_key).await;
    let deleted = deleted.map_err(|error| match error.field() {
        Some("work_key") => anyhow::Error::new(
            Failure::new("the fan-out was not deleted").because(error.message()).hint(format!(
                "`mainstay fanout set {} {} --disable` keeps it from making more",
                key.topic, key.work_key
            )),
        ),
        _ => anyhow::Error::new(error).context("the fan-out was not deleted"),
    })?;
    let shards = deleted.ok_or_else(|| key.unknown())?;
    if settings.json {
        output::json(&json!({ "topic": key.topic, "work_key": key.work_key, "forgotten_shards": shards }))?;
    } else {
        output::line(format_args!("{} deleted, {} forgotten", key.shown(), counted(shards, "shard")))?;
    }
    Ok(ExitCode::SUCCESS)
}
