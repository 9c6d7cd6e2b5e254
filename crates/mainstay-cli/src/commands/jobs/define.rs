//! `mainstay jobs create` and `mainstay jobs update`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use mainstay::job::{Expected, JobChange, Registered};
use mainstay::{Error, ErrorKind, JobDefinition, Jobs, Misfire, Overlap};

use crate::commands::content::{lenient, read_payload};
use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{harmless, moment, parse_duration, parse_positive_duration};

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
run comes when it was to come. What somebody else changes at the same moment stays as well; that a job was disabled, too.";

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
    fn payload(&self) -> anyhow::Result<Option<String>> {
        read_payload(self.payload.as_deref(), self.payload_file.as_deref())
    }

    /// The job with all that was said changed, and with this payload if there is one.
    fn apply(
        &self,
        mut job: JobDefinition,
        misfire: Misfire,
        payload: Option<&str>,
    ) -> anyhow::Result<JobDefinition> {
        if let Some(topic) = &self.topic {
            job = job.topic(topic);
        }
        if let Some(payload) = payload {
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
        self.rest.apply(job, Misfire::default(), self.rest.payload()?.as_deref())
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
    let created = jobs.register(arguments.definition()?, Expected::Nothing).await;
    let created = created.map_err(|error| match error.kind() {
        ErrorKind::Mismatch => Failure::new(format!("there is a job {:?} already", arguments.name))
            .hint("`mainstay jobs update` changes it")
            .into(),
        _ => anyhow::Error::new(error).context("the job was not registered"),
    });
    tell(&created?, settings)
}

pub(super) async fn update(
    arguments: &UpdateArgs,
    jobs: &Jobs,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    // Stdin is there only once, and the change may be made several times.
    let payload = arguments.rest.payload()?;
    let updated = jobs.update(&arguments.name, |before| -> anyhow::Result<JobDefinition> {
        let definition = match &arguments.cron {
            Some(cron) => before.definition().cron(cron),
            None => before.definition(),
        };
        arguments.rest.apply(definition, before.misfire, payload.as_deref())
    });
    let updated = updated.await.map_err(|error| match error.downcast_ref::<Error>().map(Error::kind) {
        Some(ErrorKind::NotFound) => super::unknown(&arguments.name).into(),
        Some(ErrorKind::Mismatch) => Failure::new("the job was not changed")
            .because("others keep changing it at the same moment")
            .hint("try again")
            .into(),
        Some(_) => error.context("the job was not changed"),
        None => error,
    });
    tell(&updated?, settings)
}

fn tell(registered: &Registered, settings: &Settings) -> anyhow::Result<ExitCode> {
    let Registered { job, change } = registered;
    if settings.json {
        output::json(job)?;
    } else {
        let verb = match change {
            JobChange::Created => "created",
            JobChange::Updated => "updated",
            JobChange::Unchanged => "unchanged",
        };
        let next = match job.next_nominal_at {
            Some(at) => format!("next {}", moment(at)),
            None if job.enabled => "a scheduler calculates when it is next".to_owned(),
            None => "it is disabled".to_owned(),
        };
        output::line(format_args!("{} {verb}, {next}", harmless(&job.name)))?;
    }
    Ok(ExitCode::SUCCESS)
}
