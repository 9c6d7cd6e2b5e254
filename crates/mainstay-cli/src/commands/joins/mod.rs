//! `mainstay joins`: several steps, and what is to happen when they have ended.

mod attach;
mod cancel;
mod list;
mod report;
mod show;
mod start;

use std::process::ExitCode;

use clap::Subcommand;
use mainstay::join::{Counted, Join};
use mainstay::{ErrorKind, JoinId, Joins};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::Settings;

use super::outbox::Opened;

/// Start, look at and change joins: several steps, and what happens when they have ended
#[derive(Debug, Subcommand)]
pub(crate) enum JoinsCommand {
    /// List joins, newest first
    List(list::ListArgs),
    /// Show a join and how its steps stand
    Show(show::ShowArgs),
    /// Start a join
    Start(start::StartArgs),
    /// Make messages, or whatever is reported by hand, steps of a join
    Attach(attach::AttachArgs),
    /// Count a step by hand, as completed or failed
    Report(report::ReportArgs),
    /// Cancel a join and those of its messages that no worker has begun with
    Cancel(cancel::CancelArgs),
}

pub(crate) async fn run(command: JoinsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    if let JoinsCommand::Start(arguments) = &command {
        arguments.check()?;
    }
    let attempt = match &command {
        JoinsCommand::Start(arguments) => Some(Attempt::new("join.start").about("join", arguments.id())),
        JoinsCommand::Attach(arguments) => Some(arguments.attempt()),
        JoinsCommand::Report(arguments) => Some(arguments.attempt()),
        JoinsCommand::Cancel(arguments) => Some(Attempt::new("join.cancel").about("join", [arguments.id()])),
        _ => None,
    };
    let opened = Opened::open(settings).await?;
    let joins = Joins::new(opened.provider.joins()).by(&settings.actor);
    let result = match command {
        JoinsCommand::List(arguments) => list::run(&arguments, &joins, settings).await,
        JoinsCommand::Show(arguments) => show::run(&arguments, &joins, settings).await,
        JoinsCommand::Start(arguments) => start::run(&arguments, &joins, settings).await,
        JoinsCommand::Attach(arguments) => attach::run(&arguments, &joins, settings).await,
        JoinsCommand::Report(arguments) => report::run(&arguments, &joins, settings).await,
        JoinsCommand::Cancel(arguments) => cancel::run(&arguments, &joins, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(opened.provider.as_ref(), settings, &result).await;
    }
    opened.provider.close().await;
    result
}

pub(crate) fn parse_id(text: &str) -> Result<JoinId, String> {
    text.parse().map_err(|_| "an id is a UUID, like 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11".to_owned())
}

/// The failure for an id that no join has.
fn unknown(id: JoinId) -> Failure {
    Failure::new(format!("there is no join {id}")).hint("`mainstay joins list` shows those there are")
}

/// The failure of an operation that the library refused: what it did not find, it names. A join that has ended is nothing that
/// is wrong with the arguments.
pub(crate) fn refused(error: mainstay::Error, doing: &'static str) -> anyhow::Error {
    match error.kind() {
        ErrorKind::InvalidArgument if error.field() == Some("join") => {
            // The name of a function in front is of no use here.
            let why = error.message();
            let why =
                why.split_once(": ").filter(|(name, _)| !name.contains(' ')).map_or(why, |(_, why)| why);
            Failure::new(doing).because(why).into()
        }
        ErrorKind::NotFound => Failure::new(doing)
            .because(error.message())
            .hint(
                "`mainstay joins list` shows the joins, `mainstay joins show ID --members` the steps of one",
            )
            .into(),
        _ => anyhow::Error::new(error).context(doing),
    }
}

/// A join as JSON.
fn json_of(join: &Join) -> Value {
    json!({
        "id": join.id,
        "grouping_key": join.grouping_key,
        "mode": join.mode.as_str(),
        "needed": join.mode.needed(join.expected),
        "expected": join.expected,
        "completed": join.completed,
        "failed": join.failed,
        "remaining": join.remaining(),
        "state": join.state.as_str(),
        "reason": join.reason.map(|reason| reason.as_str()),
        "deadline_at": join.deadline_at,
        "created_at": join.created_at,
        "updated_at": join.updated_at,
        "ended_at": join.ended_at,
    })
}

/// What was counted, as JSON.
fn json_of_count(counted: &Counted) -> Value {
    json!({
        "join": counted.join,
        "completed": counted.completed,
        "failed": counted.failed,
        "state": counted.state.as_str(),
        "reason": counted.reason.map(|reason| reason.as_str()),
    })
}

/// The state, with the reason of a failure.
fn standing(join: &Join) -> String {
    match join.reason {
        Some(reason) => format!("{}: {reason}", join.state),
        None => join.state.to_string(),
    }
}

/// The mode, with how many steps it takes where that is not all of them or one.
fn mode_of(join: &Join) -> String {
    match join.mode {
        mainstay::JoinMode::Quorum(needed) => format!("quorum of {needed}"),
        mode => mode.as_str().to_owned(),
    }
}
