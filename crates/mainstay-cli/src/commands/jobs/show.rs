//! `mainstay jobs show`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::job::Job;
use mainstay::{Jobs, Misfire};

use crate::output;
use crate::settings::Settings;
use crate::text::{age, harmless, moment};

const EXAMPLES: &str = "\
Examples:
  mainstay jobs show nightly
  mainstay jobs show nightly --payload | jq .
  mainstay jobs show nightly --json

`mainstay jobs runs nightly` shows its runs, `mainstay jobs explain` when its expression fires.";

/// Show a job, its payload included
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShowArgs {
    /// The job's name
    name: String,
    /// Print the payload alone, byte for byte
    #[arg(long, conflicts_with = "json")]
    payload: bool,
}

pub(super) async fn run(arguments: &ShowArgs, jobs: &Jobs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let found = jobs.get(&arguments.name).await.context("the job can't be read")?;
    let job = found.ok_or_else(|| super::unknown(&arguments.name))?;
    if settings.json {
        output::json(&job)?;
    } else if arguments.payload {
        output::raw(job.payload.as_bytes())?;
    } else {
        tell(&job)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(job: &Job) -> anyhow::Result<()> {
    let misfire = match job.misfire {
        Misfire::Skip => "skip".to_owned(),
        Misfire::Once => "once".to_owned(),
        Misfire::All { cap, window } => format!("all, at most {cap}, not older than {}", age(window)),
    };
    let mut rows = vec![
        ("name", job.name.clone()),
        ("topic", job.topic.clone()),
        ("cron", job.cron.clone()),
        ("time zone", job.time_zone.clone()),
        ("enabled", if job.enabled { "yes" } else { "no" }.to_owned()),
        ("misfire", misfire),
        ("overlap", job.overlap.to_string()),
        ("jitter", age(job.jitter)),
        ("priority", job.priority.to_string()),
        ("version", job.version.to_string()),
        ("created", moment(job.created_at)),
        ("changed", moment(job.updated_at)),
    ];
    let mut add = |name, value: Option<String>| rows.extend(value.map(|value| (name, value)));
    add("next", job.next_nominal_at.map(moment));
    add("last", job.last_nominal_at.map(moment));
    add("problem", job.problem.clone());
    let width = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    for (name, value) in rows {
        output::line(format_args!("{name:width$}  {}", harmless(&value)))?;
    }
    match job.payload.is_empty() {
        true => output::line("the payload is empty"),
        // Line breaks are the payload's own; `--payload` gives it byte for byte.
        false => {
            let lines: Vec<_> = job.payload.lines().map(harmless).collect();
            output::line(format_args!("\n{}", lines.join("\n")))
        }
    }
}
