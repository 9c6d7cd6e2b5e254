//! `mainstay fanout show`.

use std::process::ExitCode;

use anyhow::Context;
use mainstay::Leases;
use mainstay::fanout::{Fanout, FanoutPolicy};
use serde::Serialize;

use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, moment};

use super::{KeyArgs, span};

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    policy: &'a FanoutPolicy,
    /// Who holds the fan-out's lease; null if nobody does.
    coordinator: Option<String>,
}

pub(super) async fn run(
    key: &KeyArgs,
    fanout: &Fanout,
    leases: &Leases,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = fanout.get(&key.topic, &key.work_key).await.context("the fan-out can't be read")?;
    let policy = found.ok_or_else(|| key.unknown())?;
    let lease = leases.get(&policy.key.lease_name()).await.context("its lease can't be read")?;
    let coordinator = lease.filter(|lease| lease.held).and_then(|lease| lease.owner);
    if settings.json {
        output::json(&Shown { policy: &policy, coordinator })?;
    } else {
        tell(&policy, coordinator)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(policy: &FanoutPolicy, coordinator: Option<String>) -> anyhow::Result<()> {
    let mut rows = vec![
        ("topic", policy.key.topic().to_owned()),
        ("work key", policy.key.work_key().to_owned()),
        ("messages", policy.key.message_topic()),
        ("enabled", if policy.enabled { "yes" } else { "no" }.to_owned()),
        ("every", span(policy.every)),
        ("jitter", span(policy.jitter)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("cron", policy.cron.clone());
    add("time zone", Some(policy.time_zone.clone()));
    add("coordinator", Some(coordinator.unwrap_or_else(|| "nobody".to_owned())));
    add("last run", policy.last_run_at.map(moment));
    add("run asked for", policy.run_requested_at.map(moment));
    add("counts from", Some(moment(policy.since_at)));
    add("version", Some(policy.version.to_string()));
    add("created", Some(moment(policy.created_at)));
    add("changed", Some(moment(policy.updated_at)));
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    Ok(())
}
