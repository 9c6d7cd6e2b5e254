//! A command that dies with the process that started it, even if that is killed.
//!
//! Only a process itself can ask the kernel for this, after it was started and before it becomes the command. So this program is
//! started a second time, asks, and turns into the command: under the same process id, with the same files and group.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use super::lease::unrunnable;
use crate::failure::Failure;

/// This program, also when its file has been replaced or removed meanwhile.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

/// What [`BoundArgs`] is called on the command line.
pub(crate) const NAME: &str = "run-bound";

/// Turn into a command that dies with its parent
#[derive(Debug, Args)]
pub(crate) struct BoundArgs {
    /// The process to die with
    parent: i32,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Comes back only if it can't be done.
pub(crate) fn turn_into(arguments: &BoundArgs) -> anyhow::Error {
    let Some((program, rest)) = arguments.command.split_first() else {
        return Failure::usage("there is no command").into();
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return unrunnable(program, error.into()).into();
    }
    // Asked after the above: who died before it sends no signal, and who dies after it does.
    if getppid().map(Pid::as_raw_pid) != Some(arguments.parent) {
        return unrunnable(program, std::io::Error::other("who started it is gone")).into();
    }
    unrunnable(program, Command::new(program).args(rest).exec()).into()
}
