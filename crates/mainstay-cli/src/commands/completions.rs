//! `mainstay completions`: what a shell needs to complete the command line.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output;

const EXAMPLES: &str = "\
Where shells look for it:
  bash        mainstay completions bash > ~/.local/share/bash-completion/completions/mainstay
  zsh         mainstay completions zsh > \"${fpath[1]}/_mainstay\"     (a directory of $fpath; then `compinit`)
  fish        mainstay completions fish > ~/.config/fish/completions/mainstay.fish
  powershell  mainstay completions powershell >> $PROFILE
  elvish      mainstay completions elvish > ~/.config/elvish/lib/mainstay.elv     (then `use mainstay` in rc.elv)

For all users of a machine: /usr/share/bash-completion/completions/mainstay, /usr/share/zsh/site-functions/_mainstay,
/usr/share/fish/vendor_completions.d/mainstay.fish.";

/// Print the completions of a shell
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(arguments: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "mainstay", &mut script);
    output::raw(&script)?;
    Ok(ExitCode::SUCCESS)
}
