//! `mainstay man`: the manual pages, of what the command line says of itself.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::output;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  mainstay man | man -l -                       Read the page of the program
  mainstay man --dir ~/.local/share/man/man1    Write all pages there: mainstay.1, mainstay-outbox.1, mainstay-outbox-list.1 …

For all users of a machine: /usr/local/share/man/man1.";

/// Print the manual page, or write all of them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManArgs {
    /// Write the pages of the program and of each command into this directory, which is made if need be
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = Cli::command();
    command.build();
    let Some(directory) = &arguments.dir else {
        output::raw(&page(&command)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(directory).with_context(|| format!("{} can't be made", directory.display()))?;
    let written = write(&command, directory)?;
    output::line(format_args!("{} written to {}", counted(written, "page"), directory.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command, and those of the commands in it. How many.
fn write(command: &clap::Command, directory: &Path) -> anyhow::Result<u64> {
    let path = directory.join(format!("{}.1", name(command)));
    std::fs::write(&path, page(command)?).with_context(|| format!("{} can't be written", path.display()))?;
    let shown = command.get_subcommands().filter(|part| !part.is_hide_set());
    shown.map(|part| write(part, directory)).try_fold(1, |sum, written| Ok(sum + written?))
}

/// `mainstay-outbox-list`: what `man` calls it.
fn name(command: &clap::Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

fn page(command: &clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).title(name(command)).render(&mut page)?;
    Ok(page)
}
