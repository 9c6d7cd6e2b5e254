//! `mainstay audit list`.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use jiff::Timestamp;
use mainstay::audit::{Anchor, Audit, AuditFilter, AuditId, AuditOutcome, AuditPage, AuditRecord};

use crate::failure::Failure;
use crate::output;
use crate::settings::Settings;
use crate::text::{counted, moment, parse_timestamp, shorten};

const EXAMPLES: &str = "\
Examples:
  mainstay audit list --name outbox.
  mainstay audit list --actor cli:alice --since 2027-01-31T09:00:00Z
  mainstay audit list --about job=nightly
  mainstay audit list --outcome failed --json | jq -r '.[].data.error'
  mainstay audit list --after 0190a5c4-…          The page after that id

Times are UTC.";

/// List the records of the audit trail, newest first
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ListArgs {
    /// Only names that begin with this: outbox., job.trigger
    #[arg(long, value_name = "PREFIX")]
    name: Option<String>,
    /// Only what is about this: outbox=ID, job=NAME, lease=NAME, join=ID, fanout=TOPIC:KEY, schema=NAME
    #[arg(long, value_name = "KIND=VALUE", value_parser = parse_anchor)]
    about: Option<Anchor>,
    /// Only of this actor
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only what belongs to this
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only this outcome: succeeded, failed or refused
    #[arg(long, value_parser = parse_outcome)]
    outcome: Option<AuditOutcome>,
    /// Only from this moment on, like 2027-01-31T09:00:00Z
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    since: Option<Timestamp>,
    /// Only before this moment
    #[arg(long, value_name = "MOMENT", value_parser = parse_timestamp)]
    until: Option<Timestamp>,
    /// Rows at most, 1 to 1,000
    #[arg(long, value_name = "ROWS", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    /// Only those that come after this record: the last one of the page before
    #[arg(long, alias = "before", value_name = "ID", value_parser = super::parse_id)]
    after: Option<AuditId>,
}

impl ListArgs {
    fn filter(&self) -> AuditFilter {
        let mut filter = AuditFilter::all();
        filter.name.clone_from(&self.name);
        filter.anchor.clone_from(&self.about);
        filter.actor.clone_from(&self.actor);
        filter.correlation_id.clone_from(&self.correlation_id);
        filter.outcome = self.outcome;
        filter.after = self.since;
        filter.before = self.until;
        filter
    }
}

pub(super) async fn run(
    arguments: &ListArgs,
    audit: &Audit,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    if let Some(id) = arguments.after {
        let known = audit.get(id).await.context("the audit trail can't be listed")?;
        known.ok_or_else(|| Failure::nothing_to_follow("record", id))?;
    }
    let page = AuditPage { limit: arguments.limit, before: arguments.after };
    let found = audit.list(&arguments.filter(), page).await.context("the audit trail can't be listed")?;
    if settings.json {
        output::json(&found)?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        output::line("no records")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["id", "when", "what", "actor", "outcome", "belongs to", "about"]);
    for record in &found {
        table.add_row([
            record.id.to_string(),
            moment(record.recorded_at),
            shorten(&record.name, 40),
            shorten(&record.actor, 40),
            record.outcome.to_string(),
            record.correlation_id.as_deref().map(|id| shorten(id, 40)).unwrap_or_default(),
            about(record),
        ]);
    }
    output::print(&table)?;
    if found.len() == arguments.limit as usize
        && let Some(last) = found.last()
    {
        let shown = counted(found.len() as u64, "record");
        output::note(format_args!("{shown} shown; there may be more: --after {}", last.id));
    }
    Ok(ExitCode::SUCCESS)
}

/// The first of what it is about, and how many more there are.
fn about(record: &AuditRecord) -> String {
    let Some(first) = record.anchors.first() else { return String::new() };
    let shown = shorten(&format!("{}={}", first.kind, first.value), 60);
    match record.anchors.len() {
        1 => shown,
        many => format!("{shown} +{}", many - 1),
    }
}

fn parse_anchor(text: &str) -> Result<Anchor, String> {
    let (kind, value) = text.split_once('=').ok_or("it is a kind and a value, like job=nightly")?;
    let anchor = Anchor::new(kind, value);
    anchor.validate("audit.list").map_err(|error| error.message().to_owned())?;
    Ok(anchor)
}

fn parse_outcome(text: &str) -> Result<AuditOutcome, String> {
    text.parse().map_err(|error: mainstay::Error| error.message().to_owned())
}
