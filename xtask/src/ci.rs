use std::process::Command;
use std::time::Instant;

use crate::cargo::cargo;
use crate::chaos;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::reliability;
use crate::run::run;
use crate::test::{Request, test};

pub(crate) const USAGE: &str = "\
ci
    Check the format, run clippy, build the documentation, run all tests, and run four minutes
    of chaos with the commit as the seed; stop at the first that fails";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(Failure::usage(format!("unexpected argument `{argument}`")));
    }
    let interrupt = Interrupt::watch()?;
    let step = |arguments: &str| {
        let mut command = cargo();
        command.args(arguments.split_whitespace());
        command
    };
    let run = |mut command: Command| run(&mut command, &interrupt);

    timed("format", || run(step("fmt --all --check")))?;
    timed("clippy", || run(step("clippy --workspace --all-targets --all-features -- -D warnings")))?;
    timed("documentation", || {
        let mut command = step("doc --workspace --all-features --no-deps");
        command.env("RUSTDOCFLAGS", "-D warnings");
        run(command)
    })?;
    timed("tests", || test(&Request::default(), &interrupt))?;
    timed("reliability page", || reliability::page("--check", &interrupt))?;
    timed("chaos", || chaos::slice(&interrupt))
}

/// Does a step and says how long it took.
fn timed(name: &str, step: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let start = Instant::now();
    let result = step();
    let outcome = if result.is_ok() { "ok" } else { "FAILED" };
    println!("{name}: {outcome} in {:.1} s", start.elapsed().as_secs_f64());
    result
}
