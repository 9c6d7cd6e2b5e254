//! `mainstay inbox mark`.

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use mainstay::Inbox;

use super::KeyArgs;
use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::Settings;

const EXAMPLES: &str = "\
Examples:
  mainstay inbox mark processed billing inv-17
  mainstay inbox mark dead billing inv-18 --error 'a duplicate of inv-17'

A marked message leaves the queue, unless a worker has it just now; then it does not come back. Processed is
for good, dead until `mainstay inbox requeue`. The exit code is 1 when it was so already.";

/// Mark a message as processed or dead by hand
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MarkArgs {
    /// What it is
    #[arg(value_enum)]
    mark: MarkAs,
    #[command(flatten)]
    key: KeyArgs,
    /// Why it is dead; with `dead` only
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MarkAs {
    /// It is done, and nothing is left to do
    Processed,
    /// It is given up
    Dead,
}

impl MarkArgs {
    /// Refuses what needs no database to be refused.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        match (self.mark, &self.error) {
            (MarkAs::Processed, Some(_)) => Err(Failure::usage("--error belongs to `inbox mark dead`")
                .because("a message that is processed keeps no error")
                .into()),
            _ => Ok(()),
        }
    }

    pub(super) fn attempt(&self) -> Attempt {
        let name = match self.mark {
            MarkAs::Processed => "inbox.mark_processed",
            MarkAs::Dead => "inbox.mark_dead",
        };
        let KeyArgs { source, message_id } = &self.key;
        Attempt::new(name).about("inbox", [message_id]).about("source", [source])
    }
}

pub(super) async fn run(arguments: MarkArgs, inbox: &Inbox, settings: &Settings) -> anyhow::Result<ExitCode> {
    let key = arguments.key.key()?;
    let (source, id) = (key.source(), key.message_id());
    let (changed, verb) = match arguments.mark {
        MarkAs::Processed => (inbox.mark_processed(source, id).await, "marked as processed"),
        MarkAs::Dead => (inbox.mark_dead(source, id, arguments.error).await, "marked as dead"),
    };
    let changed =
        if changed.context("the message can't be marked")? { vec![key.clone()] } else { Vec::new() };
    super::tell_verdicts(inbox, &[key], &changed, verb, settings).await
}
