//! `mainstay joins list`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use mainstay::join::{JoinFilter, JoinPage, JoinState};
use mainstay::{JoinId, Joins};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{count, counted, moment, shorten};

const EXAMPLES: &str = "\
Examples:
  mainstay joins list --state pending
  mainstay joins list --key order-7
  mainstay joins list --after 0190a5c4-…          The page after that id
  mainstay joins list --json | jq -r '.[].id'

Times are UTC.";

/// List joins, newest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only this grouping key
    #[arg(long)]
    key: Option<String>,
    /// Only this state: pending, completed, failed or cancelled
    #[arg(long, value_parser = parse_state)]
    state: Option<JoinState>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those that come after this id: the last one of the page before
    #[arg(long, alias = "before", value_name = "ID", value_parser = super::parse_id)]
    after: Option<JoinId>,
}

impl ListArgs {
    fn filter(&self) -> JoinFilter {
        let mut filter = JoinFilter::default();
        filter.grouping_key = self.key.clone();
        filter.state = self.state;
        filter
    }

    fn page(&self) -> JoinPage {
        let page = JoinPage::first(self.limit);
        self.after.into_iter().fold(page, JoinPage::after)
    }
}

pub(super) async fn run(
    arguments: &ListArgs,
    joins: &Joins,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.after {
        let known = joins.get(id).await.context("the joins can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("join", id))?;
    }
    let found = joins.list(&arguments.filter(), arguments.page()).await;
    let found = found.context("the joins can't be listed")?;
    if settings.json {
        output::json(&found.iter().map(super::json_of).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no joins")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["id", "key", "mode", "steps", "state", "started", "deadline", "ended"]);
    for join in &found {
        let ended = u64::from(join.completed) + u64::from(join.failed);
        table.add_row([
            join.id.to_string(),
            join.grouping_key.as_deref().map(|key| shorten(key, 40)).unwrap_or_default(),
            super::mode_of(join),
            format!("{} of {}", count(ended), count(join.expected.into())),
            super::standing(join),
            moment(join.created_at),
            join.deadline_at.map(moment).unwrap_or_default(),
            join.ended_at.map(moment).unwrap_or_default(),
        ]);
    }
    output::print(&table)?;
    if found.len() == arguments.limit as usize
        && let Some(last) = found.last()
    {
        output::note(format_args!(
            "{} shown; there may be more: --after {}",
            counted(found.len() as u64, "join"),
            last.id
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_state(text: &str) -> Result<JoinState, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}
