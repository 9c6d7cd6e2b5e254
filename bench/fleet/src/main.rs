//! A thousand databases in one process, measured: what they cost while nothing happens, how soon a message is begun while one in a
//! hundred is busy, and whether ten that are down change that.
//!
//! `bench-fleet measure` makes the databases and starts two more of itself: `node`, the process with the fleet, which is the one that is
//! measured, and `sender`, which adds messages from outside. It tells its progress on stderr and ends with one line of JSON.

#![allow(clippy::print_stdout, reason = "this is what the caller reads")]

mod affliction;
mod child;
mod latency;
mod measure;
mod node;
mod pacing;
mod plan;
mod report;
mod sender;
mod tenants;
mod watcher;
mod wire;

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-fleet: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let role = arguments.next().context("which part: measure, node or sender?")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = match role.as_str() {
        "measure" => runtime.block_on(measure::measure(plan::Request::parse(arguments)?)),
        "node" => runtime.block_on(node::run(&arguments.next().context("the list of databases is missing")?)),
        "sender" => {
            runtime.block_on(sender::run(&arguments.next().context("the list of databases is missing")?))
        }
        _ => bail!("there is no part {role:?}"),
    };
    // Whatever still waits for a database that is down must not keep anybody.
    runtime.shutdown_background();
    done
}
