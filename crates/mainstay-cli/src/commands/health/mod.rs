//! `mainstay health`: whether a database, or each of a fleet, is well. For people, and as the probe of a deployment.
//!
//! It reads and never writes. Whatever is wrong, it answers within a bound; what is shown of a database is where it is, never its
//! password.

mod ask;
mod remote;
mod tell;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use mainstay::health::{HealthOptions, HealthReport, HealthStatus, Probe};

use crate::failure::{FAILED, Failure, UNREACHABLE};
use crate::output;
use crate::settings::Settings;
use crate::text::parse_positive_duration;

use super::stores::FleetArgs;

const EXAMPLES: &str = "\
Examples:
  mainstay health --database shop.db
  mainstay health ready                           Does it answer, and is the schema the right one?
  mainstay health --fleet fleet.toml              All databases of a fleet, the worst first
  mainstay health --fleet fleet.toml --store acme
  mainstay health live --url http://127.0.0.1:7417
  mainstay health --url https://mainstay.internal:7417 --ca-file /etc/ssl/company.pem
  mainstay health --json | jq -r '.checks[] | select(.status != \"healthy\") | .name'

Without a word after it, everything is checked: whether the database answers, its schema, whether workers are seen,
work that is stuck or overdue, jobs, the deadlines of joins, leases. Failed messages and those due later never make it
unhealthy. Nothing is written.

Exit codes:
  0  healthy, or degraded: it works, but somebody should look at it
  1  unhealthy
  2  wrong usage
  3  could not tell: the database can't be reached, or does not answer in time";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  mainstay doctor --database shop.db
  mainstay doctor --fleet fleet.toml --store acme
  mainstay doctor --json | jq -r '.checks[] | select(.advice) | \"\\(.name): \\(.advice)\"'

All that `mainstay health` checks, and what is around it: the clocks of this machine and of the database, the rights of
the user, a pooler between, the way of notifications, transactions that have been open for long and who holds them, dead
rows and unused pages, indexes, runs of jobs that were late, how far each topic lags. Nothing is written.

Exit codes: those of `mainstay health`; what only a doctor checks never makes a database unhealthy.";

/// What is to be known.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Asked {
    /// Whether the database answers
    Live,
    /// Whether workers could start: it answers, and the schema is the right one
    Ready,
}

/// Check a database, or all of a fleet, and say what to do
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HealthArgs {
    /// What is to be known [default: everything]
    #[arg(value_enum)]
    probe: Option<Asked>,
    /// A server that runs (`mainstay serve`), instead of a database; with MAINSTAY_TOKEN it says more
    #[arg(long, value_name = "URL", conflicts_with_all = ["fleet", "store"])]
    url: Option<String>,
    /// Certificates, in PEM, that the server's may be signed by, beside those the system trusts
    #[arg(long, value_name = "FILE", requires = "url")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    of: AskedOf,
}

/// Examine a database, or all of a fleet, more closely than health does, and say what to do
#[derive(Debug, Args)]
#[command(after_help = DOCTOR_EXAMPLES)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    of: AskedOf,
}

/// What is asked, and for how long.
#[derive(Debug, Args)]
struct AskedOf {
    /// The databases that this fleet file names, instead of one; also MAINSTAY_FLEET or `fleet = "…"` where no database is named
    #[arg(long, value_name = "FILE")]
    fleet: Option<PathBuf>,
    /// Of the fleet, only the databases with these ids
    #[arg(long, value_name = "ID")]
    store: Vec<String>,
    /// How long a check waits for its answer, 10ms to 5m; all of them take three times that at most, a doctor's eight times
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = parse_positive_duration)]
    timeout: Duration,
    /// Databases of a fleet asked at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1000))]
    at_once: u32,
}

pub(crate) async fn run(arguments: HealthArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let probe = match arguments.probe {
        Some(Asked::Live) => Probe::Live,
        Some(Asked::Ready) => Probe::Ready,
        None => Probe::Full,
    };
    let options = HealthOptions::default().timeout(arguments.of.timeout);
    options.validate()?;
    if let Some(url) = &arguments.url {
        let ca_file = arguments.ca_file.as_deref();
        return remote::run(url, ca_file, probe, arguments.of.timeout, settings).await;
    }
    check(probe, arguments.of, options, settings).await
}

pub(crate) async fn doctor(arguments: DoctorArgs, settings: &Settings) -> anyhow::Result<ExitCode> {
    let options = HealthOptions::default().timeout(arguments.of.timeout);
    options.validate()?;
    check(Probe::Doctor, arguments.of, options, settings).await
}

async fn check(
    probe: Probe,
    arguments: AskedOf,
    options: HealthOptions,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let of_fleet =
        arguments.fleet.is_some() || settings.database()?.is_none() && settings.fleet(None)?.is_some();
    if !of_fleet {
        if let Some(id) = arguments.store.first() {
            return Err(Failure::usage(format!(
                "--store {id} names a database of a fleet, and no fleet is named"
            ))
            .hint("give --fleet FILE too")
            .into());
        }
        let report = ask::one(&settings.require_database()?, settings.names()?, probe, options).await?;
        if settings.json {
            output::json(&report)?
        } else {
            tell::one(&report)?
        }
        return Ok(verdict([&report]));
    }
    let fleet = FleetArgs { ids: arguments.store, fleet: arguments.fleet };
    let health = ask::fleet(fleet, probe, options, arguments.at_once, settings).await?;
    if settings.json {
        output::json(&health)?
    } else {
        tell::fleet(&health)?
    }
    Ok(verdict(health.databases.iter().map(|database| &database.report)))
}

/// The exit code. What is known to be bad counts before what could not be told; of a database that can't be reached nothing else is known.
fn verdict<'a>(reports: impl IntoIterator<Item = &'a HealthReport>) -> ExitCode {
    let codes = reports.into_iter().map(|report| match report.status {
        HealthStatus::Unhealthy if report.reached == Some(false) => UNREACHABLE,
        HealthStatus::Unhealthy => FAILED,
        HealthStatus::Unknown => UNREACHABLE,
        _ => 0,
    });
    let codes: Vec<_> = codes.collect();
    let worst = [FAILED, UNREACHABLE].into_iter().find(|code| codes.contains(code));
    worst.map_or(ExitCode::SUCCESS, ExitCode::from)
}
