//! The programs of `bench/peers`: building and running them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::cargo::cargo;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

/// The name of a program is that of its folder. The first is ours.
pub(super) const PROGRAMS: [&str; 5] = ["mainstay", "graphile_worker", "riverqueue", "awa", "apalis"];

/// What stands in a workspace of its own among them.
const ALONE: [&str; 1] = ["awa"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/peers")
}

/// Builds programs, optimised.
pub(super) fn build(programs: &[&str], interrupt: &Interrupt) -> Result<(), Failure> {
    let (alone, together): (Vec<&str>, Vec<&str>) = programs.iter().partition(|name| ALONE.contains(name));
    match together.as_slice() {
        [] => {}
        [name] => build_in(&folder(), &["--package", &package(name)], interrupt)?,
        // All of them, because cargo builds the dependencies again for every other choice of packages.
        _ => build_in(&folder(), &["--workspace"], interrupt)?,
    }
    alone.iter().try_for_each(|name| build_in(&folder().join(name), &[], interrupt))
}

fn build_in(workspace: &Path, what: &[&str], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut command = cargo();
    command.current_dir(workspace).args(["build", "--release", "--locked"]).args(what);
    run(command.env("CARGO_TARGET_DIR", folder().join("target")), interrupt)
}

fn package(name: &str) -> String {
    format!("peer-{name}")
}

/// A program that was built.
pub(super) fn program(name: &str) -> Command {
    binary(&package(name))
}

/// A binary of one of the packages.
pub(super) fn binary(name: &str) -> Command {
    Command::new(folder().join("target/release").join(name))
}

/// Runs a program to its end and reads the one line of JSON that it prints.
pub(super) fn ask(mut command: Command, interrupt: &Interrupt) -> Result<Value, Failure> {
    let name = command.get_program().display().to_string();
    let piped = std::io::pipe().map_err(|error| Failure::new(format!("cannot make a pipe: {error}")));
    let (mut reader, writer) = piped?;
    // One line fits into the pipe, so it can be read when the program has ended.
    run(command.stdout(writer), interrupt)?;
    // Or the pipe would never end.
    drop(command);
    let mut text = String::new();
    reader.read_to_string(&mut text).map_err(|error| Failure::new(format!("cannot read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| Failure::new(format!("{name} printed no JSON: {error}")))
}
