//! The program `mainstay-chaos`, which `cargo xtask chaos` builds and runs.

// What it says is for the person who started it.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use mainstay_chaos::checker::{VERDICT, exit_code, run_check, write_verdict};
use mainstay_chaos::child::{self, ChildArguments};
use mainstay_chaos::clock;
use mainstay_chaos::controller;
use mainstay_chaos::options::{ProviderName, RunOptions, parse_faults};
use mainstay_chaos::page;
use mainstay_chaos::power;
use mainstay_chaos::verdict::{Verdict, today};

#[derive(Parser)]
#[command(
    name = "mainstay-chaos",
    about = "Runs Mainstay under real faults, and judges the history of every call"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run processes under faults, and give a verdict
    Run(RunArguments),
    /// Judge the histories of a run once more
    Check {
        /// The directory of the run
        directory: PathBuf,
    },
    /// Make the page of published verdicts
    Page {
        /// Compare the page with the verdicts
        #[arg(long)]
        check: bool,
        /// Write the page
        #[arg(long, conflicts_with = "check")]
        write: bool,
        /// The directory of the page, with the verdicts in `reliability`
        directory: PathBuf,
    },
    /// Simulate power losses of a SQLite database, and give a verdict
    Power {
        /// Decides the calls that are recorded, and the states of the disk
        #[arg(long)]
        seed: u64,
        /// Power losses to simulate
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
        states: u64,
        /// A new or empty directory for the recording, the states with a violation and verdict.json
        #[arg(long)]
        out: PathBuf,
    },
    /// A child process of a run
    #[command(hide = true)]
    Child(ChildArguments),
}

#[derive(clap::Args)]
struct RunArguments {
    /// Decides the schedule of the faults
    #[arg(long)]
    seed: u64,
    /// How long faults are injected
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// How many times as many faults as usual there are
    #[arg(long, default_value_t = 1.0)]
    rate: f64,
    /// postgres, pgbouncer, failover, sqlite or sqlserver
    #[arg(long, default_value = "postgres")]
    provider: ProviderName,
    /// all, none, or kinds with commas between them
    #[arg(long, default_value = "all")]
    faults: String,
    /// Fail if this machine does not allow one of the faults, instead of leaving it out
    #[arg(long)]
    strict: bool,
    /// A new or empty directory for the histories, the logs and verdict.json
    #[arg(long)]
    out: PathBuf,
}

impl RunArguments {
    fn options(self) -> Result<RunOptions> {
        let faults = parse_faults(&self.faults, self.provider)?;
        if !(self.minutes > 0.0 && self.minutes <= 1_440.0) {
            bail!("--minutes must be above 0 and at most 1440, got {}", self.minutes);
        }
        if !(self.rate >= 0.01 && self.rate <= 20.0) {
            bail!("--rate must be from 0.01 to 20, got {}", self.rate);
        }
        if self.provider == ProviderName::SqlServer {
            controller::require_sql_server()?;
        }
        let out = absolute(&self.out)?;
        let Self { seed, minutes, rate, provider, strict, .. } = self;
        Ok(RunOptions { seed, minutes, rate, provider, faults, strict, out })
    }
}

/// A new or empty directory, by a path that holds wherever a process is.
fn absolute(out: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(out).context("--out")?;
    if path.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("--out {} is not empty: a run needs a directory of its own", path.display());
    }
    std::fs::create_dir_all(&path).with_context(|| format!("cannot create --out {}", path.display()))?;
    Ok(path)
}

/// The exit code for mistakes in arguments, and for runs that could not be judged.
const NO_VERDICT: u8 = 2;

/// Violations that are printed; all are in verdict.json.
const SHOWN: usize = 20;

/// Ids of a violation that are printed.
const IDS: usize = 4;

fn main() -> ExitCode {
    let result = match power::write_if_asked() {
        Some(written) => written.map(|()| ExitCode::SUCCESS),
        None => obey(Arguments::parse().command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(NO_VERDICT)
    })
}

fn obey(command: Command) -> Result<ExitCode> {
    match command {
        Command::Child(arguments) => child::main(arguments).map(|()| ExitCode::SUCCESS),
        Command::Run(arguments) => arguments.options().and_then(run),
        Command::Check { directory } => judge(&directory),
        Command::Page { write: true, directory, .. } => page::write(&directory).map(|()| ExitCode::SUCCESS),
        Command::Page { directory, .. } => page::check(&directory).map(|()| ExitCode::SUCCESS),
        Command::Power { seed, states, out } => {
            let out = absolute(&out)?;
            tell(&power::run(seed, states, &out)?.verdict(today(), commit()), &out)
        }
    }
}

/// Runs, and says what the checker found.
fn run(mut options: RunOptions) -> Result<ExitCode> {
    clock::share(&mut options)?;
    let network = controller::enter_network(&mut options);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(controller::run(options.clone(), commit(), network))?;
    let code = judge(&options.out)?;
    println!("the same schedule again: {}", options.command());
    Ok(code)
}

/// Judges the histories in a directory. The exit code is 1 on a violation.
fn judge(directory: &Path) -> Result<ExitCode> {
    tell(&run_check(directory)?, directory)
}

/// Writes a verdict and prints what it says.
fn tell(verdict: &Verdict, directory: &Path) -> Result<ExitCode> {
    write_verdict(directory, verdict)?;
    let sum = |counts: &BTreeMap<String, u64>| counts.values().sum::<u64>();
    println!(
        "seed {} on {}: {} faults, {} answered calls, {} failed, {} unknown, {} violations in {} s",
        verdict.seed,
        verdict.provider,
        sum(&verdict.faults),
        sum(&verdict.ops),
        sum(&verdict.failed),
        sum(&verdict.unknown),
        verdict.violations.len(),
        verdict.seconds
    );
    for violation in verdict.violations.iter().take(SHOWN) {
        let ids = violation.ids.iter().take(IDS).cloned().collect::<Vec<_>>().join(", ");
        let lines = violation.lines.iter().take(IDS).cloned().collect::<Vec<_>>().join(", ");
        println!("{:?}: {}\n  ids: {ids}\n  lines: {lines}", violation.rule, violation.text);
    }
    println!("the verdict is in {}", directory.join(VERDICT).display());
    Ok(exit_code(verdict))
}

/// The commit that was built.
fn commit() -> String {
    let output = std::process::Command::new("git")
        .args(["-C", env!("CARGO_MANIFEST_DIR"), "rev-parse", "HEAD"])
        .output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or_else(|| "unknown".to_owned(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}
