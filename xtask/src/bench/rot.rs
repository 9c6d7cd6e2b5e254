//! `cargo xtask bench rot`: what a transaction that somebody holds open does to claims.

use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::run::run;

use super::ground::Ground;
use super::machine::Machine;
use super::options::Options;
use super::programs::{binary, build};

pub(super) fn main(arguments: &[String], interrupt: &Interrupt) -> Result<(), Failure> {
    let mut options = Options::new(arguments);
    let quick = options.flag("--quick");
    let rate: u64 = options.value("--rate")?.unwrap_or(1_000);
    let minutes: f64 = options.value("--minutes")?.unwrap_or(10.0);
    options.done()?;
    if rate == 0 || minutes.is_nan() || minutes <= 0.0 {
        return Err(Failure::usage("--rate and --minutes must be above zero"));
    }

    build(&["mainstay"], interrupt)?;
    let machine = Machine::look();
    let ground = Ground::start(interrupt)?;
    println!("{machine}\nPostgreSQL {}", ground.query("postgres", "show server_version")?);
    let database = ground.database("rot")?;
    let mut command = binary("rot");
    command.args(["--database", &database.url]);
    command.args(["--rate", &rate.to_string(), "--minutes", &minutes.to_string()]);
    if quick {
        command.arg("--quick");
    }
    run(&mut command, interrupt)
}
