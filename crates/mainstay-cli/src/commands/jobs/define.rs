//! `mainstay jobs create` and `mainstay jobs update`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use mainstay::job::Job;
use mainstay::{JobDefinition, Jobs, Misfire, Overlap};

use crate::commands::content::{lenient, read_payload};
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{moment, parse_duration, parse_positive_duration};

const CREATE_EXAMPLES: &str = "\
Examples:
  mainstay jobs create nightly '30 2 * * *' --topic report.build --tz Europe/Berlin
  mainstay jobs create sync '*/5 * * * *' --payload '{\"full\":false}' --overlap skip --jitter 30s
  mainstay jobs create ledger '0 * * * *' --misfire all --misfire-cap 24 --misfire-window 2d

Its runs are messages of the topic, which is the job's name unless told otherwise. `mainstay jobs explain` shows when an
expression fires. A job that is there already is left alone; `mainstay jobs update` changes it.";

const UPDATE_EXAMPLES: &str = "\
Examples:
  mainstay jobs update nightly --cron '0 3 * * *'
  mainstay jobs update sync --payload-file wanted.json --priority 3

Runs that are there already stay as they are. Another expression or zone counts from now on; after any other change the next
run comes when it was to come.";

/// What can be said of a job.
#[derive(Debug, Args)]
pub(crate) struct DefinitionArgs {
    /// The topic of its runs, 1 to 255 characters [default: the job's name]
    #[arg(long)]
    topic: Option<String>,
    /// The payload of its runs; `-` reads it from stdin [default: empty]
    #[arg(long, conflicts_with = "payload_file", allow_hyphen_values = true)]
    payload: Option<String>,
    /// Read the payload from a file
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// The time zone whose clock it goes by, an IANA name like Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    tz: Option<String>,
    /// What becomes of occurrences that nobody was there for [default: once]
    #[arg(long, value_enum, value_name = "POLICY")]
    misfire: Option<MisfirePolicy>,
    /// With --misfire all: the newest so many run, 1 to 1,000 [default: 100]
    #[arg(long, value_name = "RUNS")]
    misfire_cap: Option<u32>,
    /// With --misfire all: those that are not older run, up to 366 days [default: 1d]
    #[arg(long, value_name = "DURATION", value_parser = parse_positive_duration)]
    misfire_window: Option<Duration>,
    /// What happens when it is due while an earlier run is not over [default: allow]
    #[arg(long, value_enum, value_name = "POLICY")]
    overlap: Option<OverlapPolicy>,
    /// Spread runs over this long after their nominal time, up to a day [default: 0s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    jitter: Option<Duration>,
    /// -9 to 9, higher first [default: 0]
    #[arg(long, value_name = "LEVEL", allow_negative_numbers = true)]
    priority: Option<i16>,
}

/// What becomes of late occurrences.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MisfirePolicy {
    /// None of them runs
    Skip,
    /// One run stands for all of them
    Once,
    /// All of them run, within cap and window
    All,
}

/// What happens while an earlier run is not over.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OverlapPolicy {
    /// Both go on
    Allow,
    /// The new one is skipped
    Skip,
    /// The new one waits
    Queue,
}

impl DefinitionArgs {
    /// The job with all that was said changed.
    fn apply(&self, mut job: JobDefinition, misfire: Misfire) -> anyhow::Result<JobDefinition> {
        if let Some(topic) = &self.topic {
            job = job.topic(topic);
        }
        if let Some(payload) = read_payload(self.payload.as_deref(), self.payload_file.as_deref())? {
            job = job.payload(payload);
        }
        if let Some(zone) = &self.tz {
            job = job.time_zone(zone);
        }
        job = job.misfire(self.misfire(misfire)?);
        if let Some(overlap) = self.overlap {
            job = job.overlap(match overlap {
                OverlapPolicy::Allow => Overlap::Allow,
                OverlapPolicy::Skip => Overlap::Skip,
                OverlapPolicy::Queue => Overlap::Queue,
            });
        }
        if let Some(jitter) = self.jitter {
            job = job.jitter(jitter);
        }
        if let Some(level) = self.priority {
            job = job.priority(level);
        }
        Ok(job)
    }

    fn misfire(&self, before: Misfire) -> anyhow::Result<Misfire> {
        let cap = self.misfire_cap.or(before.cap()).unwrap_or(100);
        let window = self.misfire_window.or(before.window()).unwrap_or(Duration::from_secs(24 * 3_600));
        let all = Misfire::All { cap, window };
        let limited = self.misfire_cap.is_some() || self.misfire_window.is_some();
        match self.misfire {
            Some(MisfirePolicy::All) => Ok(all),
            None if limited && before.cap().is_some() => Ok(all),
            _ if limited => {
                Err(Failure::usage("--misfire-cap and --misfire-window belong to --misfire all").into())
            }
            Some(MisfirePolicy::Skip) => Ok(Misfire::Skip),
            Some(MisfirePolicy::Once) => Ok(Misfire::Once),
            None => Ok(before),
        }
    }
}

/// Register a job
#[derive(Debug, Args)]
#[command(after_help = CREATE_EXAMPLES)]
pub(crate) struct CreateArgs {
    /// Its name, 1 to 255 characters
    name: String,
    /// The cron expression, quoted: '*/5 * * * *'
    cron: String,
    #[command(flatten)]
    rest: DefinitionArgs,
    /// Register it without letting it run yet
    #[arg(long)]
    disabled: bool,
}

impl CreateArgs {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn definition(&self) -> anyhow::Result<JobDefinition> {
        let job = JobDefinition::new(&self.name, &self.name, &self.cron).enabled(!self.disabled);
        self.rest.apply(job, Misfire::default())
    }

    /// Refuses what needs no database to be refused. What comes from stdin is there only once, and checked later.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match self.rest.payload.as_deref() {
            Some("-") => Ok(()),
            _ => self.definition()?.validate(&lenient()).context("the job can't be registered"),
        }
    }
}

/// Change a job; what is not named stays as it is
#[derive(Debug, Args)]
#[command(after_help = UPDATE_EXAMPLES)]
pub(crate) struct UpdateArgs {
    /// Its name
    name: String,
    /// Another cron expression, quoted: '*/5 * * * *'
    #[arg(long)]
    cron: Option<String>,
    #[command(flatten)]
    rest: DefinitionArgs,
}

impl UpdateArgs {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(cron) = &self.cron {
            mainstay::job::Schedule::parse(cron, "UTC").context("the job can't be changed")?;
        }
        Ok(())
    }
}

pub(super) async fn create(
    arguments: &CreateArgs,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if jobs.get(&arguments.name).await.context("the job can't be registered")?.is_some() {
        return Err(Failure::new(format!("there is a job {:?} already", arguments.name))
            .hint("`mainstay jobs update` changes it")
            .into());
    }
    let job = jobs.create_or_update(arguments.definition()?).await;
    tell(&job.context("the job was not registered")?, "created", settings)
}

pub(super) async fn update(
    arguments: &UpdateArgs,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let found = jobs.get(&arguments.name).await.context("the job can't be changed")?;
    let before = found.ok_or_else(|| super::unknown(&arguments.name))?;
    let definition = match &arguments.cron {
        Some(cron) => before.definition().cron(cron),
        None => before.definition(),
    };
    let definition = arguments.rest.apply(definition, before.misfire)?;
    let job = jobs.create_or_update(definition).await.context("the job was not changed")?;
    tell(&job, if job.version == before.version { "unchanged" } else { "updated" }, settings)
}

fn tell(job: &Job, verb: &str, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.json {
        output::json(job)?;
    } else {
        let next =
            job.next_nominal_at.map_or("it is disabled".to_owned(), |at| format!("next {}", moment(at)));
        output::line(format_args!("{} {verb}, {next}", job.name))?;
    }
    Ok(ExitCode::SUCCESS)
}
