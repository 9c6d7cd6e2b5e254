//! `mainstay audit`: who did what, and what came of it.

mod list;
mod show;

use std::process::ExitCode;

use clap::Subcommand;
use mainstay::audit::{Audit, AuditId};

use crate::settings::Settings;

use super::outbox::Opened;

/// See who did what, and what came of it
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List the records of the audit trail, newest first
    List(list::ListArgs),
    /// Show a record
    Show(show::ShowArgs),
}

pub(crate) async fn run(command: AuditCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let opened = Opened::open(settings).await?;
    let audit = Audit::new(opened.provider.audit());
    let result = match command {
        AuditCommand::List(arguments) => list::run(&arguments, &audit, settings).await,
        AuditCommand::Show(arguments) => show::run(&arguments, &audit, settings).await,
    };
    opened.provider.close().await;
    result
}

fn parse_id(text: &str) -> Result<AuditId, String> {
    text.parse().map_err(|_| "an id is a UUID, like 0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11".to_owned())
}
