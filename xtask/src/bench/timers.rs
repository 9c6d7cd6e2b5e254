//! `cargo xtask bench timers`: how late timers are, with few and with many others waiting.

use std::process::Command;

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

use super::ground::Ground;
use super::machine::Machine;
use super::options::Options;
use super::programs::{binary, build};

const ONLY: [&str; 2] = ["postgres", "sqlite"];

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let quick = options.flag("--quick");
    let only = options.list("--only", &ONLY)?;
    options.done()?;

    build(&["mainstay"], interrupt)?;
    println!("{}", Machine::look());
    let program = |url: &str| {
        let mut command: Command = binary("timers");
        command.args(["--database", url]);
        if quick {
            command.arg("--quick");
        }
        command
    };
    if only.contains(&"postgres") {
        let ground = Ground::start(interrupt)?;
        println!("PostgreSQL {}", ground.query("postgres", "show server_version")?);
        run(&mut program(&ground.database("timers")?.url), interrupt)?;
    }
    if only.contains(&"sqlite") {
        let folder = tempfile::tempdir().map_err(|error| Failure::new(format!("no folder: {error}")))?;
        run(&mut program(&format!("sqlite:{}", folder.path().join("timers.db").display())), interrupt)?;
    }
    Ok(())
}
