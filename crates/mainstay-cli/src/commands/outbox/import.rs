//! `mainstay outbox import`.
//!
//! Lines are enqueued in their order, in batches that are there as a whole or not at all. What is there already is passed over by its id, so
//! whoever is interrupted runs it again.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use futures_util::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use mainstay::audit::{Audit, AuditEvent};
use mainstay::outbox::{Message, PreparedMessage};
use mainstay::queue::Status;
use mainstay::{ErrorKind, MessageId, Outbox, WorkItemId};
use serde_json::json;

use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::text::{count, counted};

use super::Opened;
use super::carried::{Carried, LeftBehind};
use super::list::parse_status;

const EXAMPLES: &str = "\
Examples:
  mainstay outbox import outbox.ndjson
  mainstay outbox import --dry-run outbox.ndjson
  mainstay outbox import --status failed failed.ndjson
  mainstay outbox export --status ready | mainstay --database new.db outbox import

Enqueues messages from lines of JSON, as `outbox export` writes them, in their order and under the
same ids. One that is there already, whatever became of it, is passed over: after an interruption,
or a line that had to be mended, run it again. Messages begin with all their attempts. Those that
are done or have failed are left out unless --status asks for them. An expiry that has passed is
kept only by what is ready. What an export does not have is not there either: steps of joins, held
ordering keys, paused topics. Nor are the idempotency keys of messages that are left out: the same
key is taken for new again. A line needs a topic, a payload, and an id or an idempotency_key. The
first line that is wrong ends it, named by its number; with --dry-run all of them are told, and
nothing is written. Each batch that is imported leaves a record in the audit trail.";

/// What the audit trail calls it.
const NAME: &str = "outbox.import";

/// Messages of one transaction, and the bytes of payload from which on there are fewer.
const BATCH: usize = 500;
const BATCH_BYTES: usize = 8 << 20;
/// Lookups under way at once.
const AT_ONCE: usize = 8;
/// Wrong lines that are told.
const TOLD: u64 = 20;

/// Enqueue messages from lines of JSON
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ImportArgs {
    /// The file [default: standard input]
    file: Option<PathBuf>,
    /// Only messages that stood so: ready, in-progress, done or failed; may be repeated [default: ready and in-progress]
    #[arg(long, value_parser = parse_status)]
    status: Vec<Status>,
    /// Only check and count; write nothing
    #[arg(long)]
    dry_run: bool,
}

impl ImportArgs {
    /// What is recorded if it fails; a rehearsal is not.
    pub(super) fn attempt(&self) -> Option<Attempt> {
        (!self.dry_run).then(|| Attempt::new(NAME))
    }
}

/// A message and the line it is from.
struct Line {
    number: u64,
    /// As the line has it, if it has one.
    message_id: Option<MessageId>,
    message: Message,
    prepared: PreparedMessage,
}

#[derive(Default)]
struct Counts {
    imported: u64,
    known: u64,
    left_out: u64,
    left_behind: LeftBehind,
    wrong: u64,
}

struct Import<'a> {
    outbox: &'a Outbox,
    audit: Audit,
    /// By the database's clock, when it began.
    now: Timestamp,
    dry_run: bool,
    batch: Vec<Line>,
    bytes: usize,
    counts: Counts,
}

pub(super) async fn run(
    arguments: ImportArgs,
    store: &Opened,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let (mut reader, size): (Box<dyn BufRead + Send>, _) = match &arguments.file {
        Some(path) => {
            let opened = File::open(path).map_err(|error| {
                Failure::usage(format!("{} can't be read", path.display())).because(error)
            })?;
            let size = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|about| about.len());
            (Box::new(BufReader::with_capacity(1 << 18, opened)), size)
        }
        None => (Box::new(BufReader::new(std::io::stdin())), None),
    };
    let wanted = match arguments.status.as_slice() {
        [] => vec![Status::Ready, Status::InProgress],
        named => named.to_vec(),
    };
    let mut import = Import {
        outbox: &store.outbox,
        audit: Audit::new(store.provider.audit()).by(&settings.actor),
        now: store.provider.now().await.context("the database does not tell the time")?,
        dry_run: arguments.dry_run,
        batch: Vec::new(),
        bytes: 0,
        counts: Counts::default(),
    };
    let mut progress = Progress::new("bytes read", size, settings);
    let (mut text, mut number) = (Vec::new(), 0);
    loop {
        text.clear();
        let read = reader.read_until(b'\n', &mut text).context("the lines can't be read")?;
        if read == 0 {
            break;
        }
        number += 1;
        match import.take(number, &text, &wanted) {
            Ok(()) => {}
            Err(wrong) if arguments.dry_run => import.tell(number, &wrong),
            Err(wrong) => {
                drop(progress);
                import.flush().await?;
                return Err(import.refused(number, wrong).into());
            }
        }
        if import.batch.len() >= BATCH || import.bytes >= BATCH_BYTES {
            import.flush().await?;
        }
        progress.add(read as u64);
    }
    drop(progress);
    import.flush().await?;
    import.counts.tell(arguments.dry_run, settings)
}

impl Import<'_> {
    fn take(&mut self, number: u64, text: &[u8], wanted: &[Status]) -> Result<(), String> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        // Where it is wrong, and not what stands there: that may be a payload.
        let carried: Carried = serde_json::from_slice(text).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                let told = error.to_string();
                let told = told.split(" at line ").next().unwrap_or_default();
                let value = ["invalid type", "invalid value"].iter().any(|wrong| told.starts_with(wrong));
                match value {
                    true => format!(
                        "a field has a value of another kind than it needs (column {})",
                        error.column()
                    ),
                    false => told.to_owned(),
                }
            }
            _ => format!("it is no JSON object (column {})", error.column()),
        })?;
        if !wanted.contains(&carried.status()?) {
            self.counts.left_out += 1;
            return Ok(());
        }
        let message_id = carried.message_id;
        let (message, left) = carried.into_message(self.now)?;
        let prepared =
            message.clone().prepare(self.outbox.limits()).map_err(|error| error.message().to_owned())?;
        self.counts.left_behind.headers += left.headers;
        self.counts.left_behind.expiries += left.expiries;
        self.bytes += prepared.payload().len();
        self.batch.push(Line { number, message_id, message, prepared });
        Ok(())
    }

    /// Enqueues what has been gathered, but for what is there.
    async fn flush(&mut self) -> anyhow::Result<()> {
        self.bytes = 0;
        let mut lines = std::mem::take(&mut self.batch);
        let mut seen = HashSet::new();
        let before = lines.len();
        // One that is in the file twice is the same.
        lines.retain(|line| seen.insert(line.prepared.work_item()));
        self.counts.known += (before - lines.len()) as u64;
        for attempt in 1.. {
            let found = self.known(&lines).await?;
            self.counts.known += found.len() as u64;
            lines.retain(|line| !found.contains(&line.prepared.work_item()));
            let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return Ok(()) };
            if self.dry_run {
                self.counts.imported += lines.len() as u64;
                return Ok(());
            }
            let messages = lines.iter().map(|line| line.message.clone()).collect();
            match self.outbox.enqueue_many(messages).await {
                Ok(enqueued) => {
                    let added = enqueued.iter().filter(|message| message.added).count();
                    let (from, to) = (first.number, last.number);
                    self.counts.imported += added as u64;
                    self.counts.known += (enqueued.len() - added) as u64;
                    return self.record(added, from, to).await;
                }
                // Another program enqueues the same messages at this moment.
                Err(error)
                    if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::Conflict)
                        && attempt < 5 => {}
                Err(error) => {
                    return Err(anyhow::Error::new(error)
                        .context(format!("lines {} to {} were not imported", first.number, last.number)));
                }
            }
        }
        Ok(())
    }

    /// Leaves a record of a batch that was imported. Not in the transaction that enqueues it: whoever is killed between the two leaves one
    /// batch without.
    async fn record(&self, imported: usize, from: u64, to: u64) -> anyhow::Result<()> {
        if imported > 0 {
            let data = json!({ "imported": imported, "from_line": from, "to_line": to });
            let written = self.audit.write(AuditEvent::new(NAME).data(data)).await;
            written
                .context("the messages were imported, and that could not be recorded in the audit trail")?;
        }
        Ok(())
    }

    /// Those that are there already, whatever became of them.
    async fn known(&self, lines: &[Line]) -> anyhow::Result<HashSet<WorkItemId>> {
        let lookups = futures_util::stream::iter(lines.iter().map(|line| self.lookup(line)));
        let found: Vec<_> = lookups.buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn lookup(&self, line: &Line) -> anyhow::Result<Option<WorkItemId>> {
        let id = line.prepared.work_item();
        let found = self.outbox.get(id).await.context("what is there can't be looked up")?;
        match found {
            Some(found) if line.message_id.is_some_and(|given| given != found.message_id) => {
                let wrong = format!("the id {id} is that of another message, {}", found.message_id);
                Err(self.refused(line.number, wrong).into())
            }
            found => Ok(found.map(|found| found.id)),
        }
    }

    /// What ends an import.
    fn refused(&self, number: u64, wrong: impl std::fmt::Display) -> Failure {
        let Counts { imported, known, .. } = self.counts;
        let before =
            format!("{} of the lines before it imported, {} there already", count(imported), count(known));
        Failure::new(format!("line {number} can't be imported")).because(wrong).hint(format!(
            "{before}; mend the line and run it again: what is there is passed over.\n`--dry-run` tells all lines that are wrong"
        ))
    }

    /// One of several wrong lines.
    fn tell(&mut self, number: u64, wrong: &str) {
        self.counts.wrong += 1;
        match self.counts.wrong {
            told if told <= TOLD => output::note(format_args!("line {number}: {wrong}")),
            told if told == TOLD + 1 => output::note("more lines are wrong"),
            _ => {}
        }
    }
}

impl Counts {
    fn tell(&self, dry_run: bool, settings: &Settings) -> anyhow::Result<ExitCode> {
        if settings.json {
            output::json(&json!({
                "imported": self.imported,
                "known": self.known,
                "left_out": self.left_out,
                "wrong": self.wrong,
                "dry_run": dry_run,
            }))?;
        } else {
            let done = if dry_run { "would be imported" } else { "imported" };
            let mut told = format!("{} {done}", counted(self.imported, "message"));
            for (number, what) in [
                (self.known, "there already"),
                (self.left_out, "left out by their status"),
                (self.wrong, "wrong"),
            ] {
                if number > 0 {
                    told.push_str(&format!(", {} {what}", count(number)));
                }
            }
            output::line(told)?;
        }
        let LeftBehind { headers, expiries } = self.left_behind;
        if headers > 0 {
            output::note(format_args!(
                "{} of timers and jobs left behind: they are of the database that the messages come from",
                counted(headers, "header")
            ));
        }
        if expiries > 0 {
            let without = if dry_run { "would be" } else { "were" };
            output::note(format_args!(
                "{} that had expired {without} imported without an expiry",
                counted(expiries, "message")
            ));
        }
        Ok(if self.wrong > 0 { ExitCode::from(crate::failure::FAILED) } else { ExitCode::SUCCESS })
    }
}
