//! `mainstay outbox`: messages, one by one and by the number.

pub(super) mod cancel;
mod carried;
pub(super) mod enqueue;
mod export;
mod import;
pub(super) mod list;
mod release_key;
mod requeue;
pub(super) mod show;
pub(super) mod stats;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use clap::Subcommand;
use mainstay::queue::FailureReason;
use mainstay::store::Provider;
use mainstay::{Outbox, WorkItemId};

use crate::attempt::Attempt;
use crate::commands::pausing::{self, PauseArgs, ResumeArgs};
use crate::commands::verdicts;
use crate::database::IfMissing;
use crate::settings::Settings;

/// Enqueue, look at and mend messages
#[derive(Debug, Subcommand)]
pub(crate) enum OutboxCommand {
    /// Enqueue a message
    #[command(after_help = enqueue::EXAMPLES)]
    Enqueue(enqueue::StepArgs),
    /// List messages, newest first
    List(list::ListArgs),
    /// Show a message, its payload included
    Show(show::ShowArgs),
    /// Write messages as lines of JSON
    Export(export::ExportArgs),
    /// Enqueue messages from lines of JSON
    Import(import::ImportArgs),
    /// Make failed messages ready again
    Requeue(requeue::RequeueArgs),
    /// Cancel messages that no worker has begun with
    Cancel(cancel::CancelArgs),
    /// Let an ordering key that a failed message holds go on without it
    ReleaseKey(release_key::ReleaseKeyArgs),
    /// Keep workers from claiming messages of a topic
    #[command(after_help = pausing::EXAMPLES)]
    Pause(PauseArgs),
    /// Let workers have the messages of a paused topic again
    #[command(after_help = pausing::EXAMPLES)]
    Resume(ResumeArgs),
    /// Count messages by where they stand, and list what is paused
    Stats,
}

pub(crate) async fn run(command: OutboxCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    let message = match &command {
        OutboxCommand::Enqueue(arguments) => Some(arguments.message()?),
        _ => None,
    };
    let attempt = match &command {
        OutboxCommand::Requeue(arguments) => {
            Some(Attempt::new("outbox.requeue").about("outbox", arguments.ids()))
        }
        OutboxCommand::Cancel(arguments) => {
            Some(Attempt::new("outbox.cancel").about("outbox", &arguments.ids))
        }
        OutboxCommand::ReleaseKey(arguments) => {
            Some(Attempt::new("outbox.release_key").about("ordering_key", [arguments.key()]))
        }
        OutboxCommand::Import(arguments) => arguments.attempt(),
        OutboxCommand::Pause(arguments) => Some(arguments.attempt("outbox.pause")),
        OutboxCommand::Resume(arguments) => Some(arguments.attempt("outbox.resume")),
        _ => None,
    };
    let store = Opened::open(settings).await?;
    let result = match command {
        OutboxCommand::Enqueue(_) => enqueue::run(message, &store.outbox, settings).await,
        OutboxCommand::List(arguments) => list::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Show(arguments) => show::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Export(arguments) => export::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Import(arguments) => import::run(arguments, &store, settings).await,
        OutboxCommand::Requeue(arguments) => match store.provider.now().await {
            Ok(now) => requeue::run(arguments, &store.outbox, now, settings).await,
            Err(error) => Err(error.into()),
        },
        OutboxCommand::Cancel(arguments) => cancel::run(arguments, &store.outbox, settings).await,
        OutboxCommand::ReleaseKey(arguments) => release_key::run(arguments, &store.outbox, settings).await,
        OutboxCommand::Pause(arguments) => {
            let changed = store.outbox.pause(arguments.topic(), arguments.reason()).await;
            pausing::tell(arguments.topic(), true, changed, settings)
        }
        OutboxCommand::Resume(arguments) => {
            let changed = store.outbox.resume(arguments.topic()).await;
            pausing::tell(arguments.topic(), false, changed, settings)
        }
        OutboxCommand::Stats => stats::run(&store.outbox, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(store.provider.as_ref(), settings, &result).await;
    }
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
        let outbox = Outbox::new(provider.outbox()).by(&settings.actor);
        Ok(Self { provider, outbox })
    }
}

/// Tells of each id whether it changed, and if not, why.
pub(super) async fn tell_verdicts(
    outbox: &Outbox,
    asked: &[WorkItemId],
    changed: &[WorkItemId],
    (noun, verb): (&str, &str),
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let why_not = async |id: &WorkItemId| {
        Ok(match outbox.get(*id).await? {
            None => format!("there is no such {noun}"),
            Some(message) if message.reason == Some(FailureReason::Cancelled) => "it is cancelled".to_owned(),
            Some(message) => format!("it is {}", message.status),
        })
    };
    verdicts::tell(asked, changed, verb, settings, why_not).await
}

pub(super) fn parse_id(text: &str) -> Result<WorkItemId, String> {
    text.parse().map_err(|_| "an id is a UUID, like 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11".to_owned())
}
