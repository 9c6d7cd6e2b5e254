//! `mainstay jobs delete`, `enable` and `disable`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::{ErrorKind, Jobs};
use serde::Serialize;

use crate::output;
use crate::settings::Settings;
use crate::text::{counted, harmless};

const DELETE_EXAMPLES: &str = "\
Example:
  mainstay jobs delete nightly

Runs that are not dispatched yet are cancelled. Those whose message is in the outbox go on; `mainstay outbox cancel` with the
run's id stops one that no worker has begun with. `mainstay jobs runs nightly` still shows the history.";

/// Delete a job and cancel its pending runs; its history stays
#[derive(Debug, Args)]
#[command(after_help = DELETE_EXAMPLES)]
pub(crate) struct DeleteArgs {
    /// The job's name
    name: String,
}

/// A job
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The job's name
    name: String,
}

#[derive(Serialize)]
struct Deleted<'a> {
    name: &'a str,
    cancelled_runs: u64,
}

#[derive(Serialize)]
struct Switched<'a> {
    name: &'a str,
    enabled: bool,
    changed: bool,
}

impl DeleteArgs {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl NameArgs {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

pub(super) async fn delete(
    arguments: &DeleteArgs,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    let deleted = jobs.delete(name).await.context("the job can't be deleted")?;
    let cancelled_runs = deleted.ok_or_else(|| super::unknown(name))?;
    if settings.json {
        output::json(&Deleted { name, cancelled_runs })?;
    } else {
        let cancelled = counted(cancelled_runs, "pending run");
        output::line(format_args!("{} deleted, {cancelled} cancelled", harmless(name)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn switch(
    arguments: &NameArgs,
    enabled: bool,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let name = &arguments.name;
    if jobs.get(name).await.context("the job can't be read")?.is_none() {
        return Err(super::unknown(name).into());
    }
    let switched = if enabled { jobs.enable(name).await } else { jobs.disable(name).await };
    let changed = match switched {
        // Deleted since it was looked for.
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(super::unknown(name).into()),
        switched => switched.context("the job can't be changed")?,
    };
    if settings.json {
        output::json(&Switched { name, enabled, changed })?;
    } else {
        let state = if enabled { "enabled" } else { "disabled" };
        let already = if changed { "" } else { " already" };
        output::line(format_args!("{} {state}{already}", harmless(name)))?;
    }
    Ok(ExitCode::SUCCESS)
}
