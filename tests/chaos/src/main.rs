//! The program `mainstay-chaos`, which `cargo xtask chaos` builds and runs.

// What it says is for the person who started it.
#![allow(clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::{Parser, Subcommand};
use mainstay_chaos::child::{self, ChildArguments};
use mainstay_chaos::controller;
use mainstay_chaos::options::{ProviderName, RunOptions, parse_faults};

#[derive(Parser)]
#[command(name = "mainstay-chaos", about = "Runs Mainstay under real faults, and judges the history of every call")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run processes under faults, and give a verdict
    Run(RunArguments),
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
    /// postgres, pgbouncer, failover, sqlite or sqlserver
    #[arg(long, default_value = "postgres")]
    provider: ProviderName,
    /// all, none, or kinds with commas between them
    #[arg(long, default_value = "all")]
    faults: String,
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
        if self.provider == ProviderName::SqlServer {
            bail!("there is no harness for sqlserver: the machines that run this have no SQL Server");
        }
        let out = absolute(&self.out)?;
        Ok(RunOptions { seed: self.seed, minutes: self.minutes, provider: self.provider, faults, out })
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

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Child(arguments) => child::main(arguments).map(|()| ExitCode::SUCCESS),
        Command::Run(arguments) => arguments.options().map_or_else(
            |error| {
                eprintln!("error: {error:#}");
                Ok(ExitCode::from(2))
            },
            run,
        ),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(3)
    })
}

/// Runs, and says what the checker found. The exit code is 1 on a violation, and 3 if the run itself failed.
fn run(options: RunOptions) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(controller::run(options.clone(), commit()))?;
    println!("the histories are in {}", options.out.display());
    Ok(ExitCode::SUCCESS)
}

/// The commit of the working directory.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    text.map_or_else(|| "unknown".to_owned(), |text| String::from_utf8_lossy(&text).trim().to_owned())
}
