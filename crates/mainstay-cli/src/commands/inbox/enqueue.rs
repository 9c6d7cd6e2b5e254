//! `mainstay inbox enqueue`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::Inbox;
use mainstay::inbox::Incoming;

use super::KeyArgs;
use crate::commands::content::lenient;
use crate::commands::outbox::enqueue::EnqueueArgs;
use crate::output;
use crate::settings::Settings;

pub(super) const EXAMPLES: &str = "\
Examples:
  mainstay inbox enqueue billing inv-17 invoice.paid '{\"invoice\":17}'
  receive | mainstay inbox enqueue billing inv-18 invoice.paid -

The same source and id a second time add nothing: the message is told to be replaced (it was still waiting),
in progress or done. One that is dead is revived. Prints what became of it and its work item.";

/// Put a received message into the queue
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    #[command(flatten)]
    key: KeyArgs,
    #[command(flatten)]
    message: EnqueueArgs,
}

impl ReceiveArgs {
    /// The message, checked.
    pub(super) fn incoming(&self) -> anyhow::Result<Incoming> {
        let incoming = Incoming::new(&self.key.source, &self.key.message_id, self.message.message()?);
        incoming.clone().prepare(&lenient()).context("the message can't be received")?;
        Ok(incoming)
    }
}

pub(super) async fn run(
    incoming: Option<Incoming>,
    inbox: &Inbox,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let incoming = incoming.context("there is no message")?;
    let received = inbox.enqueue(incoming).await.context("the message was not received")?;
    if settings.json {
        output::json(&received)?;
        return Ok(ExitCode::SUCCESS);
    }
    let note = if received.hash_mismatch { " (it was known with another content)" } else { "" };
    output::line(format_args!("{}{note}", received.outcome))?;
    if let Some(id) = received.work_item {
        output::line(format_args!("work item {id}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
