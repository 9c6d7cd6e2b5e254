//! Runs the cases, and says which were not run. It takes the arguments that matter: parts of names, `--skip`, `--exact`, `--list`, `--ignored` and
//! `--test-threads`.

use std::collections::VecDeque;
use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use crate::own_database::SERVER;

/// Something that holds of the program on a SQL Server.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
}

/// Names each function once.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        &[$(crate::harness::Case { name: concat!(module_path!(), "::", stringify!($name)), run: $name }),*]
    };
}
pub(crate) use cases;

/// Why a case can't be run on the server under test.
struct NotApplicable(&'static str);

/// Ends a case that can't be run on the server under test. It neither passes nor fails.
pub(crate) fn not_applicable(why: &'static str) -> ! {
    resume_unwind(Box::new(NotApplicable(why)))
}

struct Arguments {
    parts: Vec<String>,
    skipped: Vec<String>,
    exact: bool,
    list: bool,
    ignored: bool,
    threads: usize,
}

/// As many at once as a small server bears.
const THREADS: usize = 2;

fn arguments() -> Arguments {
    let mut found = Arguments {
        parts: Vec::new(),
        skipped: Vec::new(),
        exact: false,
        list: false,
        ignored: false,
        threads: THREADS,
    };
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--exact" => found.exact = true,
            "--skip" => found.skipped.extend(given.next()),
            "--list" => found.list = true,
            "--ignored" => found.ignored = true,
            // Those of the usual harness that have a value.
            "--format" | "--color" | "--logfile" | "-Z" => drop(given.next()),
            "--test-threads" => {
                found.threads = given.next().and_then(|count| count.parse().ok()).unwrap_or(THREADS)
            }
            other => match other.strip_prefix("--test-threads=") {
                Some(count) => found.threads = count.parse().unwrap_or(THREADS),
                None if other.starts_with('-') => {}
                None => found.parts.push(other.to_owned()),
            },
        }
    }
    found
}

pub(crate) fn main(all: Vec<Case>) -> ExitCode {
    let arguments = arguments();
    let wanted = |case: &Case| {
        let fits = |part: &String| {
            if arguments.exact { case.name == part } else { case.name.contains(part.as_str()) }
        };
        (arguments.parts.is_empty() || arguments.parts.iter().any(fits))
            && !arguments.skipped.iter().any(fits)
    };
    let runs = std::env::var(SERVER).is_ok_and(|url| !url.is_empty());
    let cases: VecDeque<Case> = all.into_iter().filter(wanted).collect();
    if arguments.list {
        // Whoever asks for what is ignored is told of all where nothing can be run.
        let listed = cases.iter().filter(|_| !arguments.ignored || !runs);
        listed.for_each(|case| println!("{}: test", case.name));
        return ExitCode::SUCCESS;
    }
    if !runs {
        println!("\nrunning 0 cases");
        cases.iter().for_each(|case| println!("case {} ... not run", case.name));
        let count = cases.len();
        println!(
            "\nresult: NOT RUN. 0 passed; 0 failed; {count} not run: set {SERVER} to the URL of a server"
        );
        return ExitCode::SUCCESS;
    }
    run(cases, arguments.threads.max(1))
}

/// What became of the cases that did not pass.
#[derive(Default)]
struct Others {
    failed: Vec<&'static str>,
    not_applicable: usize,
}

fn run(cases: VecDeque<Case>, threads: usize) -> ExitCode {
    println!("\nrunning {} cases", cases.len());
    let (count, queue, others) = (cases.len(), Mutex::new(cases), Mutex::new(Others::default()));
    let work = || {
        loop {
            let Some(case) = queue.lock().unwrap().pop_front() else { return };
            let begun = Instant::now();
            let ended = match catch_unwind(case.run).map_err(|panic| panic.downcast::<NotApplicable>()) {
                Ok(()) => "ok".to_owned(),
                Err(Ok(reason)) => {
                    others.lock().unwrap().not_applicable += 1;
                    format!("not applicable: {}", reason.0)
                }
                Err(Err(_)) => {
                    others.lock().unwrap().failed.push(case.name);
                    "FAILED".to_owned()
                }
            };
            println!("case {} ... {ended} ({:.1?})", case.name, begun.elapsed());
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let Others { failed, not_applicable } = others.into_inner().unwrap();
    failed.iter().for_each(|name| println!("failed: {name}"));
    let passed = count - failed.len() - not_applicable;
    println!("\nresult: {passed} passed; {} failed; {not_applicable} not applicable", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
