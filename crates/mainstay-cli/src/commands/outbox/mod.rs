//! `mainstay outbox`: messages, one by one and by the number.

pub(super) mod cancel;
pub(super) mod enqueue;
pub(super) mod list;
mod release_key;
mod requeue;
pub(super) mod show;
pub(super) mod stats;

use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use mainstay::store::Provider;
use mainstay::{Outbox, WorkItemId};
use serde::Serialize;

use crate::database::IfMissing;
use crate::failure::FAILED;
use crate::output;
use crate::settings::Settings;

/// Enqueue, look at and mend messages
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Enqueue a message
    Enqueue(enqueue::EnqueueArgs),
    /// List messages, newest first
    List(list::ListArgs),
    /// Show a message, its payload included
    Show(show::ShowArgs),
    /// Make failed messages ready again
    Requeue(requeue::RequeueArgs),
    /// Cancel messages that no worker has begun with
    Cancel(cancel::CancelArgs),
    /// Let an ordering key that a failed message holds go on without it
    ReleaseKey(release_key::ReleaseKeyArgs),
    /// Count messages by where they stand
    Stats,
}

pub(crate) async fn run(command: OutboxCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    let message = match &command {
        OutboxCommand::Enqueue(arguments) => Some(arguments.message()?),
        _ => None,
    };
    let store = Opened::open(settings).await?;
    let result = match command {
        OutboxCommand::Enqueue(_) => enqueue::run(message, &store.outbox, settings).await,
        OutboxCommand::List(arguments) => list::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Show(arguments) => show::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Requeue(arguments) => {
            let now = store.provider.now().await?;
            requeue::run(arguments, &store.outbox, now, settings).await
        }
        OutboxCommand::Cancel(arguments) => cancel::run(arguments, &store.outbox, settings).await,
        OutboxCommand::ReleaseKey(arguments) => release_key::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Stats => stats::run(&store.outbox, settings).await,
    };
    store.provider.close().await;
    result
}

/// An outbox whose schema is there.
pub(super) struct Opened {
    pub(super) provider: Arc<dyn Provider>,
    outbox: Outbox,
}

impl Opened {
    pub(super) async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let database = settings.require_database()?;
        let provider = database.open(settings.names()?, IfMissing::Refuse).await?;
        let current = provider.schema().require().await;
        current.with_context(|| format!("{database} can't be used"))?;
        let outbox = Outbox::new(provider.outbox());
        Ok(Self { provider, outbox })
    }
}

/// What a command did to one of the ids it was given.
#[derive(Serialize)]
struct Verdict {
    id: WorkItemId,
    changed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Tells of each id whether it changed, and if not, why. Anything left unchanged is exit code 1.
pub(super) async fn tell_verdicts(
    outbox: &Outbox,
    asked: &[WorkItemId],
    changed: &[WorkItemId],
    (noun, verb): (&str, &str),
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let changed: HashSet<_> = changed.iter().copied().collect();
    let mut verdicts = Vec::with_capacity(asked.len());
    for id in asked {
        let why = match changed.contains(id) {
            true => None,
            false => Some(match outbox.get(*id).await? {
                None => format!("there is no such {noun}"),
                Some(message) => format!("it is {}", message.status),
            }),
        };
        verdicts.push(Verdict { id: *id, changed: why.is_none(), why });
    }
    let all = verdicts.iter().all(|verdict| verdict.changed);
    if settings.json {
        output::json(&verdicts)?;
    } else {
        for Verdict { id, why, .. } in &verdicts {
            match why {
                None => output::line(format_args!("{id} {verb}"))?,
                Some(why) => eprintln!("{id} not {verb}: {why}"),
            }
        }
    }
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

pub(super) fn parse_id(text: &str) -> Result<WorkItemId, String> {
    text.parse().map_err(|_| "an id is a UUID, like 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11".to_owned())
}
