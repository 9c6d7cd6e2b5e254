//! `mainstay fanout add-shards` and `mainstay fanout forget-shards`.

use std::collections::HashMap;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::ErrorKind;
use mainstay::fanout::{Fanout, FanoutKey};
use serde_json::json;

use crate::attempt::Attempt;
use crate::commands::verdicts;
use crate::output;
use crate::settings::Settings;
use crate::text::counted;

use super::KeyArgs;

const ADD_EXAMPLES: &str = "\
Examples:
  mainstay fanout add-shards etl payments acme globex
  tenants | xargs mainstay fanout add-shards etl payments

They are due at once. Only where the program that coordinates has no planner of its own are these the shards that it plans. Those
that are known already stay as they are; `mainstay fanout cursors` lists them all.";

const FORGET_EXAMPLES: &str = "\
Example:
  mainstay fanout forget-shards etl payments acme

How far it had come is forgotten too: should a planner name it again, it begins anew. One with a slice that is
under way is not forgotten: wait for the slice's end, or cancel its message. Anything left is exit code 1.";

/// Make shards known to a fan-out
#[derive(Debug, Args)]
#[command(after_help = ADD_EXAMPLES)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    shards: ShardsArgs,
}

/// Forget shards of a fan-out, and how far they have come
#[derive(Debug, Args)]
#[command(after_help = FORGET_EXAMPLES)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    shards: ShardsArgs,
}

/// Which shards
#[derive(Debug, Args)]
struct ShardsArgs {
    #[command(flatten)]
    key: KeyArgs,
    /// Their keys, 1 to 256 characters each
    #[arg(required = true, value_name = "SHARD")]
    shards: Vec<String>,
}

impl AddArgs {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.shards.check("the shards can't be added")
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.shards.attempt("fanout.add_shards")
    }
}

impl ForgetArgs {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.shards.check("the shards can't be forgotten")
    }

    pub(super) fn attempt(&self) -> Attempt {
        self.shards.attempt("fanout.forget_shard")
    }
}

impl ShardsArgs {
    fn check(&self, what: &'static str) -> anyhow::Result<()> {
        FanoutKey::new(&self.key.topic, &self.key.work_key).context(what)?;
        let mut shards = self.shards.iter();
        shards.try_for_each(|shard| FanoutKey::validate_shard("fanout.shards", shard)).context(what)
    }

    fn attempt(&self, name: &'static str) -> Attempt {
        let key = self.key.plain();
        let shards = self.shards.iter().map(|shard| format!("{key}:{shard}"));
        Attempt::new(name).about("fanout", [&key]).about("shard", shards)
    }

    /// Refuses a fan-out that is not there.
    async fn known(&self, fanout: &Fanout) -> anyhow::Result<()> {
        let found = fanout.get(&self.key.topic, &self.key.work_key).await;
        if found.context("the fan-out can't be read")?.is_none() {
            return Err(self.key.unknown().into());
        }
        Ok(())
    }
}

pub(super) async fn add(
    AddArgs { shards: arguments }: &AddArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let key = &arguments.key;
    let added = fanout.add_shards(&key.topic, &key.work_key, arguments.shards.clone()).await;
    let added = added.map_err(|error| match error.kind() {
        ErrorKind::NotFound => key.unknown().into(),
        _ => anyhow::Error::new(error).context("the shards were not added"),
    })?;
    if settings.json {
        output::json(&json!({ "topic": key.topic, "work_key": key.work_key, "added": added }))?;
    } else {
        output::line(format_args!("{} added to {}", counted(added, "shard"), key.shown()))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn forget(
    ForgetArgs { shards: arguments }: &ForgetArgs,
    fanout: &Fanout,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    arguments.known(fanout).await?;
    let key = &arguments.key;
    let (mut forgotten, mut refused) = (Vec::new(), HashMap::new());
    for shard in &arguments.shards {
        match fanout.forget_shard(&key.topic, &key.work_key, shard).await {
            Ok(true) => forgotten.push(shard.clone()),
            Ok(false) => {}
            // It keeps no other from being forgotten.
            Err(error) if error.field() == Some("shard_key") => {
                refused.insert(shard, error.message().to_owned());
            }
            Err(error) => return Err(anyhow::Error::new(error).context("the shards were not forgotten")),
        }
    }
    let why_not = async |shard: &String| {
        Ok(refused.get(shard).cloned().unwrap_or_else(|| "it is not known".to_owned()))
    };
    verdicts::tell(&arguments.shards, &forgotten, "forgotten", settings, why_not).await
}
