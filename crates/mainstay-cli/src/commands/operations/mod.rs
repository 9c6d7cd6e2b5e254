//! `mainstay operations`: work that takes a while, and what became of it.

mod list;
mod show;
mod stalled;

use std::process::ExitCode;

use clap::Subcommand;
use mainstay::operation::{Operation, Progress};
use mainstay::{OperationId, Operations};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{count, moment, shorten};

use super::outbox::Opened;

/// Look at operations, and give up those that are stalled
#[derive(Debug, Subcommand)]
pub(crate) enum OperationsCommand {
    /// List operations, newest first
    List(list::ListArgs),
    /// Show an operation, its parts and its events
    Show(show::ShowArgs),
    /// List running operations without a sign of life, and mark them as stalled
    Stalled(stalled::StalledArgs),
}

pub(crate) async fn run(command: OperationsCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let attempt = match &command {
        OperationsCommand::Stalled(arguments) => arguments.attempt(),
        _ => None,
    };
    let opened = Opened::open(settings).await?;
    let operations = Operations::new(opened.provider.operations()).by(&settings.actor);
    let result = match command {
        OperationsCommand::List(arguments) => list::run(&arguments, &operations, settings).await,
        OperationsCommand::Show(arguments) => show::run(&arguments, &operations, settings).await,
        OperationsCommand::Stalled(arguments) => stalled::run(&arguments, &operations, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(opened.provider.as_ref(), settings, &result).await;
    }
    opened.provider.close().await;
    result
}

fn parse_id(text: &str) -> Result<OperationId, String> {
    text.parse().map_err(|_| "an id is a UUID, like 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11".to_owned())
}

/// The failure for an id that no operation has.
fn unknown(id: OperationId) -> Failure {
    Failure::new(format!("there is no operation {id}"))
        .hint("`mainstay operations list` shows those there are")
}

/// An operation as JSON.
fn json_of(operation: &Operation) -> Value {
    json!({
        "id": operation.id,
        "name": operation.name,
        "parent": operation.parent,
        "state": operation.state.as_str(),
        "done": operation.progress.done,
        "total": operation.progress.total,
        "message": operation.progress.message,
        "error": operation.error,
        "actor": operation.actor,
        "correlation_id": operation.correlation_id,
        "tags": operation.tags,
        "events": operation.events,
        "started_at": operation.started_at,
        "updated_at": operation.updated_at,
        "ended_at": operation.ended_at,
    })
}

/// How far it has come, in a few words.
fn standing(progress: &Progress) -> String {
    match (progress.done, progress.total) {
        (Some(done), Some(total)) => format!("{} of {}", count(done), count(total)),
        (Some(done), None) => count(done),
        (None, Some(total)) => format!("of {}", count(total)),
        (None, None) => String::new(),
    }
}

/// Operations as a table.
fn tell(operations: &[Operation]) -> anyhow::Result<()> {
    let mut table = output::table(["id", "name", "state", "progress", "started", "last sign", "ended"]);
    for operation in operations {
        table.add_row([
            operation.id.to_string(),
            shorten(&operation.name, 40),
            operation.state.to_string(),
            standing(&operation.progress),
            moment(operation.started_at),
            moment(operation.updated_at),
            operation.ended_at.map(moment).unwrap_or_default(),
        ]);
    }
    output::print(&table)
}
