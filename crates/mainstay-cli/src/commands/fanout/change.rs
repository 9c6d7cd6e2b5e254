//! `mainstay fanout set` and `mainstay fanout run`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use mainstay::ErrorKind;
use mainstay::fanout::{Fanout, FanoutChange};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::parse_duration;

use super::KeyArgs;

const SET_EXAMPLES: &str = "\
Examples:
  mainstay fanout set etl payments --every 5m --jitter 30s
  mainstay fanout set etl payments --cron '0 2 * * *' --tz Europe/Berlin
  mainstay fanout set etl payments --no-cron --every 1h
  mainstay fanout set etl payments --disable

It counts at once, for all programs. A program that registers the fan-out with the values it always had does not undo it; one that
registers it with other values does.";

const RUN_EXAMPLES: &str = "\
Example:
  mainstay fanout run etl payments

Each shard whose last slice is not under way gets one, by whichever program coordinates; also where the fan-out is disabled. The
exit code says that the run is asked for, not that it is over: `mainstay fanout cursors` shows how far the shards have come.";

/// Change a fan-out's policy at run time; what is not named stays as it is
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct SetArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// The cadence, in whole seconds, up to 366 days; with a cron expression, the least distance between two slices of a shard
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    every: Option<Duration>,
    /// Spread slices over this long, in whole seconds, up to a day
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    jitter: Option<Duration>,
    /// Plan at the times of this cron expression, quoted: '0 2 * * *'
    #[arg(long, value_name = "CRON")]
    cron: Option<String>,
    /// Plan by the cadence alone
    #[arg(long, conflicts_with = "cron")]
    no_cron: bool,
    /// The time zone of the cron expression, an IANA name like Europe/Berlin
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// Plan from now on
    #[arg(long)]
    enable: bool,
    /// Plan nothing but what is asked for
    #[arg(long, conflicts_with = "enable")]
    disable: bool,
}

impl SetArgs {
    pub(super) fn key(&self) -> &KeyArgs {
        &self.key
    }

    fn change(&self) -> FanoutChange {
        let mut change = FanoutChange::default();
        if let Some(every) = self.every {
            change = change.every(every);
        }
        if let Some(jitter) = self.jitter {
            change = change.jitter(jitter);
        }
        if self.cron.is_some() || self.no_cron {
            change = change.cron(self.cron.clone());
        }
        if let Some(zone) = &self.tz {
            change = change.time_zone(zone);
        }
        if self.enable || self.disable {
            change = change.enabled(self.enable);
        }
        change
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.change().is_empty() {
            let what = "nothing is to be changed: name --every, --jitter, --cron, --no-cron, --tz, --enable or --disable";
            return Err(Failure::usage(what).into());
        }
        if let Some(cron) = &self.cron {
            mainstay::job::Schedule::parse(cron, "UTC").context("the fan-out can't be changed")?;
        }
        Ok(())
    }
}

/// Ask for a run now
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    key: KeyArgs,
}

impl RunArgs {
    pub(super) fn key(&self) -> &KeyArgs {
        &self.key
    }
}

/// A failure that says what to do where there is no such fan-out.
fn told(error: mainstay::Error, key: &KeyArgs, what: &'static str) -> anyhow::Error {
    match error.kind() {
        ErrorKind::NotFound => key.unknown().into(),
        _ => anyhow::Error::new(error).context(what),
    }
}

pub(super) async fn set(
    arguments: &SetArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let before = fanout.get(&key.topic, &key.work_key).await.context("the fan-out can't be read")?;
    let before = before.ok_or_else(|| key.unknown())?;
    let changed = fanout.set(&key.topic, &key.work_key, &arguments.change()).await;
    let policy = changed.map_err(|error| told(error, key, "the fan-out was not changed"))?;
    if settings.json {
        output::json(&policy)?;
    } else {
        let verb = if policy.version == before.version { "unchanged" } else { "changed" };
        output::line(format_args!("{} {verb}, version {}", key.shown(), policy.version))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run(
    arguments: &RunArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let asked = fanout.run_now(&key.topic, &key.work_key).await;
    asked.map_err(|error| told(error, key, "the run can't be asked for"))?;
    if settings.json {
        output::json(&json!({ "topic": key.topic, "work_key": key.work_key, "requested": true }))?;
    } else {
        output::line(format_args!("a run of {} is asked for; whoever coordinates it makes it", key.shown()))?;
    }
    Ok(ExitCode::SUCCESS)
}
