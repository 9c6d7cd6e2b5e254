//! `mainstay jobs runs`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::job::{JobRun, RunFilter, RunState, Trigger};
use mainstay::outbox::Page;
use mainstay::{Jobs, WorkItemId};
use serde_json::{Value, json};

use crate::commands::outbox::parse_id;
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, harmless, milliseconds, moment, shorten};

const EXAMPLES: &str = "\
Examples:
  mainstay jobs runs nightly
  mainstay jobs runs --state failed --limit 20
  mainstay jobs runs --id 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11     One run, with its output
  mainstay jobs runs nightly --json | jq -r '.[] | select(.state == \"failed\").error'

A run is pending until its time comes, dispatched once its message is in the outbox, and succeeded or failed once a handler
has ended. Its id is that of its message: `mainstay outbox show` and `requeue` take it. Times are UTC.";

/// List runs, newest first, or show one with its output
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunsArgs {
    /// Only runs of this job
    name: Option<String>,
    /// Only runs that stand here: pending, claimed, dispatched, running, succeeded, failed, skipped or cancelled
    #[arg(long, value_parser = parse_state)]
    state: Option<RunState>,
    /// Only runs that were made by this: cron or manual
    #[arg(long, value_parser = parse_trigger)]
    trigger: Option<Trigger>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those that come after this run: the last one of the page before
    #[arg(long, alias = "before", value_name = "ID", value_parser = parse_id)]
    after: Option<WorkItemId>,
    /// Show this run alone, with its output
    #[arg(long, value_name = "ID", value_parser = parse_id, conflicts_with_all = ["name", "state", "trigger", "after"])]
    id: Option<WorkItemId>,
}

pub(super) async fn run(arguments: &RunsArgs, jobs: &Jobs, settings: &Settings) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.id {
        let found = jobs.run(id).await.context("the run can't be read")?;
        let run = found.ok_or_else(|| {
            Failure::new(format!("there is no run {id}")).hint("`mainstay jobs runs` shows the ids")
        })?;
        return tell_one(&run, settings);
    }
    if let Some(id) = arguments.after {
        let known = jobs.run(id).await.context("the runs can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("run", id))?;
    }
    let mut filter = RunFilter::all();
    filter.job.clone_from(&arguments.name);
    filter.state = arguments.state;
    filter.trigger = arguments.trigger;
    let page = Page { limit: arguments.limit, before: arguments.after };
    let runs = jobs.runs(&filter, page).await.context("the runs can't be listed")?;
    if settings.json {
        output::json(&runs.iter().map(json_of).collect::<Result<Vec<_>, _>>()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        output::line("no runs")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table =
        output::table(["id", "job", "nominal", "by", "state", "started", "took", "attempts", "error"]);
    for run in &runs {
        table.add_row([
            run.id.to_string(),
            shorten(&run.job, 40),
            moment(run.nominal_at),
            run.trigger.to_string(),
            run.state.to_string(),
            run.started_at.map(moment).unwrap_or_default(),
            run.duration().map(milliseconds).unwrap_or_default(),
            run.attempts.to_string(),
            run.error.as_deref().map(|error| shorten(error, 60)).unwrap_or_default(),
        ]);
    }
    output::print(&table)?;
    if runs.len() == arguments.limit as usize
        && let Some(last) = runs.last()
    {
        let shown = counted(runs.len() as u64, "run");
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// A run as JSON, with how long it took.
fn json_of(run: &JobRun) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(run)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("duration_seconds".to_owned(), json!(run.duration().map(|took| took.as_secs_f64())));
    }
    Ok(value)
}

fn tell_one(run: &JobRun, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.json {
        output::json(&json_of(run)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ("id", run.id.to_string()),
        ("job", run.job.clone()),
        ("state", run.state.to_string()),
        ("made by", run.trigger.to_string()),
        ("nominal", moment(run.nominal_at)),
        ("due", moment(run.due_at)),
        ("created", moment(run.created_at)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("dispatched", run.dispatched_at.map(moment));
    add("started", run.started_at.map(moment));
    add("ended", run.ended_at.map(moment));
    add("took", run.duration().map(milliseconds));
    add("attempts", Some(run.attempts.to_string()));
    add("error", run.error.clone());
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    if let Some(text) = &run.output {
        let lines: Vec<_> = text.lines().map(harmless).collect();
        output::line(format_args!("\n{}", lines.join("\n")))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_state(text: &str) -> Result<RunState, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}

fn parse_trigger(text: &str) -> Result<Trigger, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}
