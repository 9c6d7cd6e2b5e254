use std::process::Command;

use crate::cargo::{cargo, target};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;
use crate::tools::install_servers;

pub(crate) const USAGE: &str = "\
chaos --seed <n> --out <directory> [--minutes <m>] [--rate <factor>] [--provider <name>]
      [--faults <kinds>] [--strict] [--release]
chaos power --seed <n> --out <directory> [--states <n>] [--release]
chaos --slice
    Run processes under real faults by a seeded schedule, and judge the history of every call.
    Writes verdict.json; the exit code is 1 if a rule was broken. Providers: postgres,
    pgbouncer, failover, sqlite, and sqlserver, which runs on the server whose URL is in
    MAINSTAY_TEST_SQLSERVER; faults: all, none, or kinds with commas between them.
    `power` records a process on SQLite, and checks what its file holds after each of so many
    simulated power losses.
    --slice runs what `cargo xtask ci` runs: four minutes, with the commit as the seed";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    let interrupt = Interrupt::watch()?;
    if arguments == ["--slice"] {
        return slice(&interrupt);
    }
    let is_release = |argument: &&String| *argument == "--release";
    let release = arguments.iter().any(|argument| is_release(&argument));
    let rest: Vec<&String> = arguments.iter().filter(|argument| !is_release(argument)).collect();
    if !["sqlite", "sqlserver"].iter().any(|provider| names(&rest, provider)) {
        install_servers(&interrupt)?;
    }
    build(release, &interrupt)?;
    let mut command = program(release)?;
    if rest.first().is_none_or(|argument| *argument != "power") {
        command.arg("run");
    }
    run(command.args(rest), &interrupt)
}

/// Returns whether the arguments name a provider.
fn names(arguments: &[&String], provider: &str) -> bool {
    arguments.iter().any(|argument| argument.strip_prefix("--provider=") == Some(provider))
        || arguments.windows(2).any(|pair| pair[0] == "--provider" && pair[1] == provider)
}

/// Builds the program.
pub(crate) fn build(release: bool, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--package", "mainstay-chaos"]);
    if release {
        build.arg("--release");
    }
    run(&mut build, interrupt)
}

/// The program.
pub(crate) fn program(release: bool) -> Result<Command, Failure> {
    let profile = if release { "release" } else { "debug" };
    Ok(Command::new(target()?.join(profile).join("mainstay-chaos")))
}

/// A short run of each provider, with the commit as the seed. What failed stays for a look at it.
pub(crate) fn slice(interrupt: &Interrupt) -> Result<(), Failure> {
    install_servers(interrupt)?;
    build(false, interrupt)?;
    let seed = commit_seed();
    for (provider, minutes) in [("postgres", "1.5"), ("pgbouncer", "1"), ("failover", "0.5"), ("sqlite", "1")]
    {
        let out = target()?.join("chaos").join(provider);
        forget(&out)?;
        let mut command = program(false)?;
        command.args(["run", "--seed", &seed.to_string(), "--minutes", minutes, "--provider", provider]);
        if rustix::process::geteuid().is_root() {
            // Everything can be had.
            command.arg("--strict");
        }
        run(command.arg("--out").arg(&out), interrupt)?;
    }
    let out = target()?.join("chaos").join("power");
    forget(&out)?;
    let mut command = program(false)?;
    command.args(["power", "--seed", &seed.to_string(), "--states", "1000", "--out"]).arg(&out);
    run(&mut command, interrupt)
}

/// Removes what an earlier run has left.
fn forget(out: &std::path::Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(out) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot remove {}: {error}", out.display())))
        }
        _ => Ok(()),
    }
}

/// The first digits of the commit's hash; zero outside a repository.
fn commit_seed() -> u64 {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let text = output.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.and_then(|text| String::from_utf8(text).ok()).unwrap_or_default();
    text.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or(0)
}
