//! `mainstay joins cancel`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::{JoinId, Joins};
use serde_json::json;

use crate::failure::Told;
use crate::output;
use crate::settings::Settings;
use crate::text::counted;

const EXAMPLES: &str = "\
Example:
  mainstay joins cancel 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11

It ends without a continuation. Its messages that no worker has begun with are cancelled; what is being handled goes on. One
that has ended is left alone, and the exit code is 1.";

/// Cancel a join and those of its messages that no worker has begun with
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CancelArgs {
    /// The join's id
    #[arg(value_parser = super::parse_id)]
    id: JoinId,
}

impl CancelArgs {
    pub(super) fn id(&self) -> JoinId {
        self.id
    }
}

pub(super) async fn run(
    arguments: &CancelArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let id = arguments.id;
    let cancelled = joins.cancel(id).await;
    let cancelled = cancelled.map_err(|error| super::refused(error, "the join was not cancelled"))?;
    let refused = match cancelled.changed {
        true => None,
        false => {
            let found = joins.get(id).await.context("the join can't be read")?;
            let state = found.map_or_else(|| "gone".to_owned(), |join| join.state.to_string());
            Some(format!("{id} not cancelled: it is {state}"))
        }
    };
    if settings.json {
        output::json(&json!({
            "id": id,
            "changed": cancelled.changed,
            "cancelled_messages": cancelled.messages,
            "counted": cancelled.counted.iter().map(super::json_of_count).collect::<Vec<_>>(),
        }))?;
    } else if let Some(refused) = &refused {
        output::note(refused);
    } else {
        let messages = counted(cancelled.messages.len() as u64, "waiting message");
        output::line(format_args!("{id} cancelled, and {messages} of it"))?;
    }
    match refused {
        None => Ok(ExitCode::SUCCESS),
        Some(refused) => Err(Told(refused).into()),
    }
}
