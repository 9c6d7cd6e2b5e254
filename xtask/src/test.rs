use crate::cargo::cargo;
use crate::conformance;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::pinned::pinned_worker;
use crate::run::run;
use crate::tools::start_servers;

pub(crate) const USAGE: &str = "\
test [-p <package>]... [--<option of cargo test>]... [<filter>]... [-- <option of the tests>...]
    Run all tests, or those of the packages, whose name contains one of the filters, on
    SQLite and on a PostgreSQL and a PgBouncer started for them. Missing programs are
    installed. An option of cargo test that takes a value is written with `=`. A full run
    also checks docs/reference/conformance.md.
    With MAINSTAY_TEST_SQLSERVER=mssql://<user>:<password>@<host>:<port>/master they are run
    on that SQL Server too; without it those tests are not run, and told as such";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    let request = Request::parse(arguments)?;
    test(&request, &Interrupt::watch()?)
}

/// Starts the servers, runs the tests, stops the servers.
pub(crate) fn test(request: &Request, interrupt: &Interrupt) -> Result<(), Failure> {
    let is_full_run = *request == Request::default();
    if is_full_run {
        conformance::forget_results()?;
    }
    // Built before the servers start: a build that fails then leaves nothing to stop.
    let pinned = if request.covers("mainstay-e2e") { pinned_worker(interrupt)? } else { None };
    // Dropped, and with that stopped, on every way out.
    let servers = start_servers(interrupt)?;
    let mut command = cargo();
    // All of it, so that one run tells everything.
    command.args(["test", "--no-fail-fast"]);
    if request.packages.is_empty() {
        command.arg("--workspace");
    }
    for package in &request.packages {
        command.args(["--package", package]);
    }
    // The features clippy and the documentation are built with, so that one build of the
    // dependencies' build scripts and macros serves all.
    command.arg("--all-features").args(&request.for_cargo);
    command.arg("--").args(&request.filters).args(&request.for_tests);
    command.envs(servers.environment()).env("TMPDIR", servers.scratch());
    command.envs(pinned.map(|worker| ("MAINSTAY_TEST_PINNED_WORKER", worker)));
    run(&mut command, interrupt)?;
    // A part of the tests says nothing of the whole contract.
    if is_full_run { conformance::report("--check", interrupt) } else { Ok(()) }
}

/// Which tests to run, and how.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    packages: Vec<String>,
    for_cargo: Vec<String>,
    filters: Vec<String>,
    for_tests: Vec<String>,
}

impl Request {
    /// Whether it may run a test of this package.
    fn covers(&self, package: &str) -> bool {
        self.packages.is_empty() || self.packages.iter().any(|named| named == package)
    }

    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut request = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                request.for_tests = arguments.cloned().collect();
                break;
            }
            if argument == "-p" || argument == "--package" {
                let package =
                    arguments.next().ok_or_else(|| Failure::usage(format!("{argument} takes a package")))?;
                request.packages.push(package.clone());
            } else if argument.starts_with('-') {
                request.for_cargo.push(argument.clone());
            } else {
                request.filters.push(argument.clone());
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    fn strings(words: &str) -> Vec<String> {
        words.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_go_to_whom_they_are_for() {
        let words = strings("claim -p a --no-fail-fast --test=x reap --package b -- --nocapture");
        let request = Request::parse(&words).unwrap();
        assert_eq!(
            request,
            Request {
                packages: strings("a b"),
                for_cargo: strings("--no-fail-fast --test=x"),
                filters: strings("claim reap"),
                for_tests: strings("--nocapture"),
            }
        );
    }

    #[test]
    fn an_option_without_its_package_is_an_error() {
        let failure = Request::parse(&strings("-p")).unwrap_err();
        assert_eq!(failure.code, crate::failure::USAGE);
    }
}
