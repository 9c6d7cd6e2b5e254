//! `mainstay bench`.

use std::process::ExitCode;

use clap::Args;

use crate::settings::Settings;

/// Measure the outbox on your own database
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {}

pub(crate) async fn run(_arguments: BenchArgs, _settings: &Settings) -> anyhow::Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
