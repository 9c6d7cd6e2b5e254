//! `mainstay inbox`: messages that come from elsewhere, each known by its source and its id there.

mod enqueue;
mod list;
mod mark;
mod requeue;
mod show;
mod stats;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use mainstay::Inbox;
use mainstay::inbox::InboxKey;

use crate::commands::outbox::Opened;
use crate::commands::pausing::{self, PauseArgs, ResumeArgs};
use crate::commands::verdicts;
use crate::settings::Settings;

/// Receive, look at and mend messages that come from elsewhere
#[derive(Debug, Subcommand)]
pub(crate) enum InboxCommand {
    /// Put a received message into the queue
    #[command(after_help = enqueue::EXAMPLES)]
    Enqueue(enqueue::ReceiveArgs),
    /// List received messages, newest first
    List(list::ListArgs),
    /// Show a received message, its payload included
    Show(show::ShowArgs),
    /// Make dead messages live again
    Requeue(requeue::RequeueArgs),
    /// Mark messages as processed or dead by hand
    Mark(mark::MarkArgs),
    /// Keep workers from claiming messages of a topic from the queue
    #[command(after_help = pausing::EXAMPLES)]
    Pause(PauseArgs),
    /// Let workers have the messages of a paused topic again
    #[command(after_help = pausing::EXAMPLES)]
    Resume(ResumeArgs),
    /// Count received messages by where they stand, and list what is paused
    Stats,
}

/// One message.
#[derive(Debug, Args)]
struct KeyArgs {
    /// Where the message comes from
    source: String,
    /// Its id there
    message_id: String,
}

impl KeyArgs {
    /// The key, checked.
    fn key(&self) -> mainstay::Result<InboxKey> {
        InboxKey::new(&self.source, &self.message_id)
    }
}

pub(crate) async fn run(command: InboxCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    // What can be refused without a database is refused first.
    let incoming = match &command {
        InboxCommand::Enqueue(arguments) => Some(arguments.incoming()?),
        InboxCommand::Mark(arguments) => {
            arguments.check()?;
            None
        }
        _ => None,
    };
    let attempt = match &command {
        InboxCommand::Requeue(arguments) => Some(arguments.attempt()),
        InboxCommand::Mark(arguments) => Some(arguments.attempt()),
        InboxCommand::Pause(arguments) => Some(arguments.attempt("inbox.pause")),
        InboxCommand::Resume(arguments) => Some(arguments.attempt("inbox.resume")),
        _ => None,
    };
    let provider = Opened::open(settings).await?.provider;
    let inbox = &Inbox::new(provider.as_ref()).by(&settings.actor);
    let result = match command {
        InboxCommand::Enqueue(_) => enqueue::run(incoming, inbox, settings).await,
        InboxCommand::List(arguments) => list::run(arguments, inbox, settings).await,
        InboxCommand::Show(arguments) => show::run(arguments, inbox, settings).await,
        InboxCommand::Requeue(arguments) => requeue::run(arguments, inbox, settings).await,
        InboxCommand::Mark(arguments) => mark::run(arguments, inbox, settings).await,
        InboxCommand::Pause(arguments) => {
            let changed = inbox.pause(arguments.topic(), arguments.reason()).await;
            pausing::tell(arguments.topic(), true, changed, settings)
        }
        InboxCommand::Resume(arguments) => {
            let changed = inbox.resume(arguments.topic()).await;
            pausing::tell(arguments.topic(), false, changed, settings)
        }
        InboxCommand::Stats => stats::run(inbox, settings).await,
    };
    if let Some(attempt) = attempt {
        attempt.ended(provider.as_ref(), settings, &result).await;
    }
    provider.close().await;
    result
}

/// Tells of each message whether it changed, and if not, why.
async fn tell_verdicts(
    inbox: &Inbox,
    asked: &[InboxKey],
    changed: &[InboxKey],
    verb: &str,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let why_not = async |key: &InboxKey| {
        Ok(match inbox.store().get(key).await? {
            None => "there is no such message".to_owned(),
            Some(entry) => format!("it is {}", entry.state),
        })
    };
    verdicts::tell(asked, changed, verb, settings, why_not).await
}
