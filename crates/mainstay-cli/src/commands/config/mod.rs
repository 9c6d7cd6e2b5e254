//! `mainstay config`: what the program is told to do, before it does it.

mod check;
mod effective;
pub(crate) mod mending;

use std::process::ExitCode;

use clap::Subcommand;

use crate::cli::Flags;

/// Check the configuration
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration file, the environment, the fleet file and `[serve]`, and print what counts
    #[command(after_help = check::EXAMPLES)]
    Check,
}

pub(crate) fn run(command: &ConfigCommand, flags: Flags) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Check => check::run(flags),
    }
}
