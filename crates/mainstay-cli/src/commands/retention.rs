//! `mainstay retention`: what `mainstay serve` and applications delete by themselves, now and by hand.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use mainstay::audit::{AuditFilter, AuditPage};
use mainstay::outbox::{MessageFilter, Page, Retention};
use mainstay::queue::Status;
use mainstay::store::{Provider, Queue};
use serde_json::{Value, json};

use crate::attempt::Attempt;
use crate::output::{self, number};
use crate::progress::Progress;
use crate::retention::{Kept, Policy, RetentionFile};
use crate::settings::Settings;
use crate::text::{count, counted};

use super::outbox::Opened;

const EXAMPLES: &str = "\
Examples:
  mainstay retention run --dry-run
  mainstay retention run --keep failed=90d --only outbox
  mainstay retention run --keep audit=365d --only audit
  mainstay retention run --json | jq -r '.results[] | \"\\(.what): \\(.deleted)\"'

Deletes what is over and past its age, in batches that are each a transaction and leave a record
in the audit trail. How long things are kept is said by the section [serve.retention] of the
configuration file and by --keep, with the same keys: done and failed of the outbox, inbox_done,
inbox_dead, inbox_at_least, timers_done, timers_failed, runs_done, runs_failed, joins, operations,
audit. Each is a duration (30d, 12h) or forever. Unless told otherwise: 30 days for what is done,
90 for runs of jobs, and what has failed, or died, and the audit trail for ever. `mainstay serve`
does the same by itself. A run that was stopped midway is simply run again.";

/// Delete what is over and past its age
#[derive(Debug, Subcommand)]
pub(crate) enum RetentionCommand {
    /// Delete what is over and past its age, now
    Run(RunArgs),
}

/// Delete what is over and past its age, now
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    /// Only this; may be repeated [default: all]
    #[arg(long, value_enum, value_name = "WHAT", value_delimiter = ',')]
    only: Vec<What>,
    /// How long something is kept, over what the configuration says: failed=90d; may be repeated
    #[arg(long, value_name = "KEY=AGE", value_parser = parse_keep)]
    keep: Vec<(String, Kept)>,
    /// Rows deleted in one transaction, 1 to 100,000 [default: 1000]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: Option<u32>,
    /// Only say how long things are kept and count what would go, where that can be counted; delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// What there is to delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Messages that are done or have failed
    Outbox,
    /// Received messages that are done or dead: one that comes again is new
    Inbox,
    /// Timers that have fired, or failed
    Timers,
    /// Runs of jobs that have ended
    Runs,
    /// Joins that have ended, with their members
    Joins,
    /// Operations that have ended, with their events
    Operations,
    /// Records of the audit trail
    Audit,
}

impl What {
    const ALL: [Self; 7] =
        [Self::Outbox, Self::Inbox, Self::Timers, Self::Runs, Self::Joins, Self::Operations, Self::Audit];

    fn name(self) -> &'static str {
        match self {
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
            Self::Timers => "timers",
            Self::Runs => "runs",
            Self::Joins => "joins",
            Self::Operations => "operations",
            Self::Audit => "audit",
        }
    }

    /// How long it is kept, by how it ended.
    fn kept(self, policy: &Policy) -> Vec<(&'static str, Kept)> {
        let queue =
            |retention: &Retention| vec![("done", Kept(retention.done)), ("failed", Kept(retention.failed))];
        match self {
            Self::Outbox => queue(&policy.outbox),
            Self::Inbox => vec![("done", Kept(policy.inbox.done)), ("dead", Kept(policy.inbox.dead))],
            Self::Timers => queue(&policy.timers),
            Self::Runs => queue(&policy.runs),
            Self::Joins => vec![("ended", Kept(policy.joins.ended))],
            Self::Operations => vec![("ended", Kept(policy.operations.ended))],
            Self::Audit => vec![("records", Kept(policy.audit.age))],
        }
    }
}

fn parse_keep(text: &str) -> Result<(String, Kept), String> {
    let (key, age) = text.split_once('=').ok_or("it is written as KEY=AGE, like failed=90d")?;
    if !RetentionFile::AGES.contains(&key) {
        return Err(format!("there is no {key:?}; there are {}", RetentionFile::AGES.join(", ")));
    }
    Ok((key.to_owned(), Kept::parse(age)?))
}

/// What came of one of them.
struct Outcome {
    what: What,
    kept: Vec<(&'static str, Kept)>,
    /// None where it was not counted.
    rows: Option<u64>,
}

pub(crate) async fn run(command: RetentionCommand, settings: &Settings) -> anyhow::Result<ExitCode> {
    let RetentionCommand::Run(arguments) = command;
    let mut file = settings.serve.retention.clone();
    for (key, kept) in &arguments.keep {
        if let Some(age) = file.age_mut(key) {
            *age = Some(*kept);
        }
    }
    let policy = Policy::collect(&file.with_batch(arguments.batch))?;
    let whats =
        What::ALL.into_iter().filter(|what| arguments.only.is_empty() || arguments.only.contains(what));
    let whats: Vec<_> = whats.collect();
    let provider = Opened::open(settings).await?.provider;
    let result = if arguments.dry_run {
        rehearse(provider.as_ref(), &policy, &whats).await
    } else {
        delete(provider.as_ref(), &policy, &whats, settings).await
    };
    let told = result.and_then(|outcomes| tell(&outcomes, arguments.dry_run, settings));
    if !arguments.dry_run {
        Attempt::new("retention.run").ended(provider.as_ref(), settings, &told).await;
    }
    provider.close().await;
    told
}

async fn delete(
    provider: &dyn Provider,
    policy: &Policy,
    whats: &[What],
    settings: &Settings,
) -> anyhow::Result<Vec<Outcome>> {
    let mut progress = Progress::new("deleting", None, settings);
    let mut outcomes = Vec::new();
    for what in whats {
        let mut rows = 0;
        let mut purge = Purge { provider, policy, settings, what: *what, rest: false };
        while let Some(batch) = purge.next().await.with_context(|| {
            format!("what is over can't be deleted from {}, after {}", what.name(), counted(rows, "row"))
        })? {
            rows += batch;
            progress.add(batch);
        }
        outcomes.push(Outcome { what: *what, kept: what.kept(policy), rows: Some(rows) });
    }
    Ok(outcomes)
}

/// Deletes of one kind, a batch at a time.
struct Purge<'a> {
    provider: &'a dyn Provider,
    policy: &'a Policy,
    settings: &'a Settings,
    what: What,
    /// Of what has a ledger beside its queue: the ledger is done, and what the queue has without it is left.
    rest: bool,
}

impl Purge<'_> {
    /// One batch; none when nothing is left.
    async fn next(&mut self) -> mainstay::Result<Option<u64>> {
        let rows = self.batch().await?;
        if rows > 0 {
            return Ok(Some(rows));
        }
        let beside = matches!(self.what, What::Inbox | What::Runs) && !self.rest;
        self.rest |= beside;
        Ok(beside.then_some(0))
    }

    async fn batch(&self) -> mainstay::Result<u64> {
        let (provider, policy) = (self.provider, self.policy);
        let by = Some(&self.settings.actor);
        let queue = async |queue, retention: &Retention| provider.queue(queue).purge(retention, by).await;
        match (self.what, self.rest) {
            (What::Outbox, _) => provider.outbox().purge(&policy.outbox, by).await,
            (What::Inbox, false) => provider.inbox().forget(&policy.inbox, by).await,
            (What::Inbox, true) => {
                let rest = Retention::default().done(policy.inbox.done).failed(policy.inbox.dead);
                queue(Queue::Inbox, &rest.batch(policy.inbox.batch)).await
            }
            (What::Timers, _) => queue(Queue::Timers, &policy.timers).await,
            (What::Runs, false) => provider.jobs().purge(&policy.runs, by).await,
            (What::Runs, true) => queue(Queue::JobRuns, &policy.runs).await,
            (What::Joins, _) => match policy.joins.ended {
                Some(age) => provider.joins().purge(age, policy.joins.batch, by).await,
                None => Ok(0),
            },
            (What::Operations, _) => match policy.operations.ended {
                Some(age) => provider.operations().purge(age, policy.operations.batch, by).await,
                None => Ok(0),
            },
            (What::Audit, _) => match policy.audit.age {
                Some(age) => provider.audit().purge(age, policy.audit.batch, by).await,
                None => Ok(0),
            },
        }
    }
}

/// Rows of a page, and pages after which it is enough to know that there are so many or more.
const PAGE: u32 = 1_000;
const PAGES: u64 = 10;
const MOST: u64 = PAGES * PAGE as u64;

async fn rehearse(provider: &dyn Provider, policy: &Policy, whats: &[What]) -> anyhow::Result<Vec<Outcome>> {
    let now = provider.now().await.context("the database does not tell the time")?;
    let mut outcomes = Vec::new();
    for what in whats {
        let rows = match what {
            What::Outbox => Some(settled(provider, Queue::Outbox, &policy.outbox, now).await),
            What::Timers => Some(settled(provider, Queue::Timers, &policy.timers, now).await),
            What::Audit => Some(records(provider, policy.audit.age, now).await),
            // Their lists don't know by when something ended.
            What::Inbox | What::Runs | What::Joins | What::Operations => None,
        };
        let rows = rows.transpose().with_context(|| format!("{} can't be counted", what.name()))?;
        outcomes.push(Outcome { what: *what, kept: what.kept(policy), rows });
    }
    Ok(outcomes)
}

/// The moment before which something is too old. None where nothing is.
fn limit(now: Timestamp, age: Option<Duration>) -> Option<Timestamp> {
    now.checked_sub(age?).ok()
}

async fn settled(
    provider: &dyn Provider,
    queue: Queue,
    retention: &Retention,
    now: Timestamp,
) -> mainstay::Result<u64> {
    let mut rows = 0;
    for (status, age) in [(Status::Done, retention.done), (Status::Failed, retention.failed)] {
        let Some(before) = limit(now, age) else { continue };
        let filter = MessageFilter::all().status(status).settled_before(before).without_payloads();
        let mut page = Page { limit: PAGE, before: None };
        while rows < MOST {
            let found = provider.queue(queue).list(&filter, page).await?;
            rows += found.len() as u64;
            page.before = found.last().map(|message| message.id);
            if found.len() < PAGE as usize {
                break;
            }
        }
    }
    Ok(rows)
}

async fn records(provider: &dyn Provider, age: Option<Duration>, now: Timestamp) -> mainstay::Result<u64> {
    let Some(before) = limit(now, age) else { return Ok(0) };
    let filter = AuditFilter::all().before(before);
    let (mut rows, mut page) = (0, AuditPage { limit: PAGE, ..AuditPage::default() });
    while rows < MOST {
        let found = provider.audit().list(&filter, page).await?;
        rows += found.len() as u64;
        page.before = found.last().map(|record| record.id);
        if found.len() < PAGE as usize {
            break;
        }
    }
    Ok(rows)
}

fn tell(outcomes: &[Outcome], dry_run: bool, settings: &Settings) -> anyhow::Result<ExitCode> {
    if settings.json {
        let results: Vec<_> = outcomes.iter().map(|outcome| outcome.as_json(dry_run)).collect();
        output::json(&json!({ "dry_run": dry_run, "results": results }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["what", "kept for", if dry_run { "would go" } else { "deleted" }]);
    for Outcome { what, kept, rows } in outcomes {
        let kept = kept.iter().map(|(end, kept)| format!("{end} {kept}")).collect::<Vec<_>>().join(", ");
        let rows = match rows {
            None => "not counted".to_owned(),
            Some(rows) if dry_run && *rows >= MOST => format!("{} or more", count(MOST)),
            Some(rows) => count(*rows),
        };
        table.add_row([what.name().into(), kept.into(), number(rows)]);
    }
    output::print(&table)?;
    Ok(ExitCode::SUCCESS)
}

impl Outcome {
    fn as_json(&self, dry_run: bool) -> Value {
        let kept = self.kept.iter().map(|(end, kept)| ((*end).to_owned(), kept.to_string().into()));
        let kept: serde_json::Map<_, Value> = kept.collect();
        let what = self.what.name();
        match dry_run {
            true => {
                let capped = self.rows.is_some_and(|rows| rows >= MOST);
                json!({ "what": what, "kept": kept, "would_delete": self.rows, "or_more": capped })
            }
            false => json!({ "what": what, "kept": kept, "deleted": self.rows }),
        }
    }
}
