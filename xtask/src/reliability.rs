use crate::chaos::{build, program};
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

pub(crate) const USAGE: &str = "\
reliability [--check | --write]
    Compare docs/reference/reliability.md with the verdicts of chaos runs in
    docs/reference/reliability, or write it from them";

pub(crate) fn main(arguments: &[String]) -> Result<(), Failure> {
    let mode = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] | ["--check"] => "--check",
        ["--write"] => "--write",
        _ => return Err(Failure::usage("expected --check or --write".to_owned())),
    };
    page(mode, &Interrupt::watch()?)
}

/// Compares the page with the verdicts (`--check`), or writes it from them (`--write`).
pub(crate) fn page(mode: &str, interrupt: &Interrupt) -> Result<(), Failure> {
    build(false, interrupt)?;
    let mut command = program(false)?;
    command.args(["page", mode, concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference")]);
    run(&mut command, interrupt)
}
