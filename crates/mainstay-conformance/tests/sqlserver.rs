//! The contract on SQL Server: on the server that `MAINSTAY_TEST_SQLSERVER` names.
//!
//! Without it every case is recorded as not run, and shown as such: the usual harness knows only passed, failed and ignored by the source. So this
//! one runs the cases itself. It takes the arguments that matter: parts of names, `--skip`, `--exact`, `--list` and `--test-threads`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a harness prints, and a fixture fails by panicking"
)]

#[path = "fixtures/sqlserver_calls.rs"]
mod calls;
#[path = "fixtures/sqlserver.rs"]
mod fixture;
#[path = "fixtures/sqlserver_session.rs"]
mod session;
#[path = "fixtures/sqlserver_slots.rs"]
mod slots;

use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use mainstay_conformance::{Case, run_case};

use fixture::SqlServerFixture;

struct Arguments {
    parts: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    threads: usize,
}

fn arguments() -> Arguments {
    let mut found =
        Arguments { parts: Vec::new(), skipped: Vec::new(), exact: false, list: false, threads: 2 };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--exact" => found.exact = true,
            "--skip" => found.skipped.extend(given.next()),
            "--list" => found.list = true,
            // Those of the usual harness that have a value.
            "--format" | "--color" | "--logfile" | "-Z" => drop(given.next()),
            "--test-threads" => {
                found.threads = given.next().and_then(|count| count.parse().ok()).unwrap_or(2)
            }
            other => match other.strip_prefix("--test-threads=") {
                Some(count) => found.threads = count.parse().unwrap_or(2),
                None if other.starts_with('-') => {}
                None => found.parts.push(other.to_owned()),
            },
        }
    }
    found
}

fn main() -> ExitCode {
    let arguments = arguments();
    let wanted = |case: &Case| {
        let fits = |part: &String| {
            if arguments.exact { case.name == part } else { case.name.contains(part.as_str()) }
        };
        (arguments.parts.is_empty() || arguments.parts.iter().any(fits))
            && !arguments.skipped.iter().any(fits)
    };
    let cases: VecDeque<Case> = mainstay_conformance::all().into_iter().filter(wanted).collect();
    if arguments.list {
        cases.iter().for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    let runs = SqlServerFixture::is_named();
    println!("\nrunning {} cases", if runs { cases.len() } else { 0 });
    let (count, queue) = (cases.len(), Mutex::new(cases));
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let Some(case) = queue.lock().unwrap().pop_front() else { return };
                    let begun = Instant::now();
                    let ended = catch_unwind(|| run_case(case.name, SqlServerFixture::named));
                    match ended {
                        Ok(()) if runs => println!("case {} ... ok ({:.1?})", case.name, begun.elapsed()),
                        Ok(()) => println!("case {} ... not run", case.name),
                        Err(_) => {
                            println!("case {} ... FAILED ({:.1?})", case.name, begun.elapsed());
                            failed.lock().unwrap().push(case.name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    if !runs {
        println!(
            "\nresult: NOT RUN. 0 passed; 0 failed; {count} not run: set {} to the URL of a server",
            fixture::SERVER
        );
        return ExitCode::SUCCESS;
    }
    failed.iter().for_each(|name| println!("failed: {name}"));
    println!("\nresult: {} passed or not applicable; {} failed", count - failed.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
