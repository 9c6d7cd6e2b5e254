//! The process that is recorded: it uses Mainstay on a SQLite file, and marks what it asks for and
//! what was answered.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use mainstay::OwnerToken;
use mainstay::lease::{Acquired, LeaseOptions, Leases};
use mainstay::outbox::{Limits, Message, Outbox};
use mainstay::queue::{ClaimRequest, Claimed, Outcome, Settlement};
use mainstay::sqlite::{Sqlite, SqliteTransaction};
use mainstay::store::Provider;
use tokio::task::JoinSet;

use super::{DATABASE, MARKS};
use crate::random::Random;

/// Callers at once.
const CALLERS: u64 = 6;
/// Calls of each caller in each of two rounds. Between them, the database is closed.
const CALLS: u64 = 40;
/// Longer than a recording takes.
const LEASE: Duration = Duration::from_secs(3_600);

/// Does the work in a directory that is empty.
pub(super) fn run(directory: &Path, seed: u64) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        for round in 0..2 {
            work(directory, seed, round).await?;
        }
        Ok(())
    })
}

async fn work(directory: &Path, seed: u64, round: u64) -> Result<()> {
    let path = directory.join(DATABASE);
    let sqlite = Sqlite::open(&path).await?;
    let marks = Arc::new(Marks::open(directory, round)?);
    let deployment = marks.ask("deploy", &[])?;
    sqlite.schema().deploy().await?;
    note(&sqlite, |connection| {
        connection.execute_batch("CREATE TABLE IF NOT EXISTS note (label TEXT NOT NULL)")
    })
    .await?;
    marks.ok(deployment, &[])?;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let random = Random::of(seed, round * CALLERS + caller);
        let (outbox, leases) = (Outbox::new(sqlite.outbox()), Leases::new(sqlite.leases()));
        let (marks, path) = (Arc::clone(&marks), path.clone());
        callers.spawn(async move { Caller { outbox, leases, marks, random, path }.call_all().await });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    sqlite.close().await;
    Ok(())
}

/// Runs a statement in a handler's transaction.
async fn note(sqlite: &Sqlite, work: fn(&rusqlite::Connection) -> rusqlite::Result<()>) -> Result<()> {
    let mut transaction = sqlite.outbox().begin().await?;
    let own = transaction.as_any_mut().downcast_mut::<SqliteTransaction>().context("not of SQLite")?;
    own.run(work).await?;
    Ok(transaction.commit().await?)
}

/// The file of marks. A line is one write, so it stands in the recording before or after everything
/// else.
struct Marks {
    file: File,
    next: AtomicU64,
}

impl Marks {
    fn open(directory: &Path, round: u64) -> Result<Self> {
        let file = File::options().create(true).append(true).open(directory.join(MARKS))?;
        Ok(Self { file, next: AtomicU64::new(round * 1_000_000) })
    }

    /// Marks that a call is about to be made. Its number.
    fn ask(&self, what: &str, labels: &[String]) -> Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.write(format!("{number} ask {what} {}", labels.join(" ")))?;
        Ok(number)
    }

    /// Marks that a call was answered; for a settle with the labels of what it settled, for a claim and a lease with
    /// the numbers that it gave.
    fn ok(&self, number: u64, labels: &[String]) -> Result<()> {
        self.write(format!("{number} ok {}", labels.join(" ")))
    }

    fn write(&self, line: String) -> Result<()> {
        let line = line.trim_end().to_owned() + "\n";
        Ok((&self.file).write_all(line.as_bytes())?)
    }
}

struct Caller {
    outbox: Outbox,
    leases: Leases,
    marks: Arc<Marks>,
    random: Random,
    path: PathBuf,
}

impl Caller {
    async fn call_all(&mut self) -> Result<()> {
        for _ in 0..CALLS {
            match self.random.below(11) {
                10 => self.hold().await?,
                0..4 => self.enqueue().await?,
                4 | 5 => self.settle().await?,
                6 | 7 => self.handle().await?,
                8 => self.discard().await?,
                _ => self.checkpoint().await?,
            }
        }
        Ok(())
    }

    /// Messages whose payloads begin with a label of their own.
    fn messages(&mut self) -> (Vec<String>, Vec<Message>) {
        let count = if self.random.once_in(5) { 20 } else { 1 + self.random.below(3) };
        let labels: Vec<_> = (0..count).map(|_| format!("m{:016x}", self.random.next())).collect();
        let filler = "x".repeat(self.random.below(600));
        let messages = labels.iter().map(|label| Message::new("t", format!("{label} {filler}"))).collect();
        (labels, messages)
    }

    async fn enqueue(&mut self) -> Result<()> {
        let (labels, messages) = self.messages();
        let call = self.marks.ask("enqueue", &labels)?;
        self.outbox.enqueue_many(messages).await?;
        self.marks.ok(call, &[])
    }

    async fn claim(&mut self, batch: u32) -> Result<(OwnerToken, Vec<Claimed>)> {
        let owner = OwnerToken::new();
        let request = ClaimRequest::new(owner).batch(batch).lease(LEASE);
        let call = self.marks.ask("claim", &[])?;
        let items = self.outbox.claim(&request).await?.items;
        let given = items.iter().map(|item| format!("{}:{}", label(item), item.handle.generation()));
        self.marks.ok(call, &given.collect::<Vec<_>>())?;
        Ok((owner, items))
    }

    /// Acquires a lease, and gives it up.
    async fn hold(&mut self) -> Result<()> {
        let name = format!("lease-{}", self.random.below(3));
        let call = self.marks.ask("lease", std::slice::from_ref(&name))?;
        let options = LeaseOptions::default().duration(LEASE);
        let Acquired::Lease(lease) = self.leases.acquire_with(&name, options).await? else {
            return self.marks.ok(call, &[]);
        };
        self.marks.ok(call, &[format!("{name}:{}", lease.fencing_token())])?;
        lease.close().await?;
        Ok(())
    }

    async fn settle(&mut self) -> Result<()> {
        let batch = 1 + self.random.below(8) as u32;
        let (owner, items) = self.claim(batch).await?;
        let handles: Vec<_> = items.iter().map(|item| item.handle).collect();
        let call = self.marks.ask("settle", &items.iter().map(label).collect::<Vec<_>>())?;
        let settled = self.outbox.ack(owner, &handles).await?;
        let changed = items.iter().filter(|item| settled.changed.contains(&item.id()));
        self.marks.ok(call, &changed.map(label).collect::<Vec<_>>())
    }

    /// A handler's transaction: a row of its own, another message, and the completion.
    async fn handle(&mut self) -> Result<()> {
        let (owner, items) = self.claim(1).await?;
        let [item] = &items[..] else { return Ok(()) };
        let (handled, next) = (label(item), format!("m{:016x}", self.random.next()));
        let call = self.marks.ask("handle", &[handled.clone(), next.clone()])?;
        let mut transaction = self.outbox.store().begin().await?;
        let own = transaction.as_any_mut().downcast_mut::<SqliteTransaction>().context("not of SQLite")?;
        let insert = move |connection: &rusqlite::Connection| {
            connection.execute("INSERT INTO note (label) VALUES (?1)", [handled]).map(drop)
        };
        own.run(insert).await?;
        transaction.enqueue(&[Message::new("t", next).prepare(&Limits::default())?]).await?;
        let settlement = Settlement { claim: item.handle, outcome: Outcome::Ack };
        transaction.settle(owner, &[settlement]).await?;
        transaction.commit().await?;
        self.marks.ok(call, &[])
    }

    /// A transaction that is rolled back.
    async fn discard(&mut self) -> Result<()> {
        let (labels, messages) = self.messages();
        let call = self.marks.ask("discard", &labels)?;
        let mut transaction = self.outbox.store().begin().await?;
        let prepared = messages.into_iter().map(|message| message.prepare(&Limits::default()));
        transaction.enqueue(&prepared.collect::<Result<Vec<_>, _>>()?).await?;
        transaction.rollback().await?;
        self.marks.ok(call, &[])
    }

    /// Another connection brings the log into the database, as other programs do.
    async fn checkpoint(&mut self) -> Result<()> {
        let mode = if self.random.once_in(3) { "TRUNCATE" } else { "PASSIVE" };
        let path = self.path.clone();
        let checkpoint = move || -> rusqlite::Result<()> {
            let connection = rusqlite::Connection::open(path)?;
            connection.busy_timeout(Duration::from_secs(30))?;
            // One that others kept from ending is as good.
            connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |_| Ok(()))
        };
        Ok(tokio::task::spawn_blocking(checkpoint).await??)
    }
}

/// What a message's payload begins with.
fn label(item: &Claimed) -> String {
    item.payload.split(' ').next().unwrap_or_default().to_owned()
}
