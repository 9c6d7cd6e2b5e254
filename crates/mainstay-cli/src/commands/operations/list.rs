//! `mainstay operations list`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::operation::{OperationFilter, OperationPage, OperationState};
use mainstay::{OperationId, Operations};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::counted;

const EXAMPLES: &str = "\
Examples:
  mainstay operations list --state running
  mainstay operations list --name import. --tag tenant=7
  mainstay operations list --after 0190a5c4-…     The page after that id
  mainstay operations list --json | jq -r '.[].id'

Times are UTC.";

/// List operations, newest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only names that begin with this
    #[arg(long, value_name = "PREFIX")]
    name: Option<String>,
    /// Only this state: running, succeeded, failed, cancelled or stalled
    #[arg(long, value_parser = parse_state)]
    state: Option<OperationState>,
    /// Only with this tag
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    tag: Option<(String, String)>,
    /// Only parts of this operation
    #[arg(long, value_name = "ID", value_parser = super::parse_id)]
    parent: Option<OperationId>,
    /// Only this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those that come after this id: the last one of the page before
    #[arg(long, alias = "before", value_name = "ID", value_parser = super::parse_id)]
    after: Option<OperationId>,
}

impl ListArgs {
    fn filter(&self) -> OperationFilter {
        let mut filter = OperationFilter::all();
        filter.name = self.name.clone();
        filter.state = self.state;
        filter.tag = self.tag.clone();
        filter.parent = self.parent;
        filter.correlation_id = self.correlation_id.clone();
        filter
    }
}

pub(super) async fn run(
    arguments: &ListArgs,
    operations: &Operations,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.after {
        let known = operations.get(id).await.context("the operations can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("operation", id))?;
    }
    let page = OperationPage { limit: arguments.limit, before: arguments.after };
    let found = operations.list(&arguments.filter(), page).await;
    let found = found.context("the operations can't be listed")?;
    if settings.json {
        output::json(&found.iter().map(super::json_of).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no operations")?;
        return Ok(ExitCode::SUCCESS);
    }
    super::tell(&found)?;
    if found.len() == arguments.limit as usize
        && let Some(last) = found.last()
    {
        let shown = counted(found.len() as u64, "operation");
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.id));
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_state(text: &str) -> Result<OperationState, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}

fn parse_tag(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() && !value.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a tag is a key and a value, like tenant=7".to_owned()),
    }
}
