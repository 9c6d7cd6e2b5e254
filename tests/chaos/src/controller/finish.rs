//! The end of a run: everything must end, and what stands in the database then is recorded.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use mainstay::Jobs;
use mainstay::audit::{AuditFilter, AuditPage};
use mainstay::inbox::{InboxFilter, InboxPage};
use mainstay::join::{JoinFilter, JoinPage};
use mainstay::outbox::{MessageFilter, Outbox};
use mainstay::queue::Status;
use mainstay::sqlserver::tiberius::Row;
use mainstay::store::{Provider, Queue};
use uuid::Uuid;

use crate::child::{Dialects, Engine, Recorded};
use crate::history::{Action, Condition, Event, MessageState, QueueName};

use super::sample::Sampling;
use super::{Controller, works};

/// After how long without progress the open messages are stuck. Fifteen leases: those of dead processes lapse in one.
const STUCK: Duration = Duration::from_secs(30);

/// How many messages continue each join.
const CONTINUED: Dialects = Dialects {
    postgres: "select headers->>'mainstay-join', count(*) from infra.outbox_message
        where headers ? 'mainstay-join' group by 1",
    // Settled messages are in a table of their own.
    sqlite: "select json_extract(headers, '$.mainstay-join'), count(*)
        from (select headers from infra_outbox union all select headers from infra_outbox_history)
        where json_extract(headers, '$.mainstay-join') is not null group by 1",
    sql_server: "SELECT j.Id, COUNT(*)
        FROM (SELECT JSON_VALUE(Headers, '$.\"mainstay-join\"') AS Id FROM infra.Outbox_message) j
        WHERE j.Id IS NOT NULL GROUP BY j.Id",
};

/// How many runs each job has. Those asked for by hand have no occurrence.
const RUNS: Dialects = Dialects {
    postgres: "select job, count(*) from infra.jobs_ledger where trigger = 'cron' group by job",
    sqlite: "select job, count(*) from infra_jobs_ledger where \"trigger\" = 'cron' group by job",
    sql_server: "SELECT Job, COUNT(*) FROM infra.Jobs_ledger WHERE [Trigger] = N'cron' GROUP BY Job",
};

/// For how many times each job has a run.
const OCCURRENCES: Dialects = Dialects {
    postgres: "select job, count(distinct nominal_at) from infra.jobs_ledger
        where trigger = 'cron' group by job",
    sqlite: "select job, count(distinct nominal_at) from infra_jobs_ledger
        where \"trigger\" = 'cron' group by job",
    sql_server: "SELECT Job, COUNT(DISTINCT NominalAt) FROM infra.Jobs_ledger
        WHERE [Trigger] = N'cron' GROUP BY Job",
};

/// Ordering keys that a failed message holds.
const HOLDS: Dialects = Dialects {
    postgres: "select ordering_key, 1::bigint from infra.outbox_hold",
    sqlite: "select ordering_key, 1 from infra_outbox_hold",
    sql_server: "SELECT OrderingKey, 1 FROM infra.Outbox_hold",
};

const EFFECTS: Dialects = Dialects::same("select id, count(*) from chaos_effect group by id");
const RECEIVED: Dialects = Dialects::same("select id, count(*) from chaos_received group by id");
const BUSINESS: Dialects = Dialects::same("select id, count(*) from chaos_business group by id");
const GUARDED: Dialects =
    Dialects::same("select concat(name, ' ', value, ' ', seen), epoch from chaos_guarded order by n");

/// The first and the last of these times, in microseconds since 1970.
const FIRST: Dialects = Dialects {
    postgres: "select job, (extract(epoch from min(nominal_at)) * 1000000)::bigint from infra.jobs_ledger
        where trigger = 'cron' group by job",
    sqlite: "select job, min(nominal_at) from infra_jobs_ledger where \"trigger\" = 'cron' group by job",
    sql_server: "SELECT Job, CAST(DATEDIFF(SECOND, '1970-01-01', MIN(NominalAt)) AS BIGINT) * 1000000
        FROM infra.Jobs_ledger WHERE [Trigger] = N'cron' GROUP BY Job",
};
const LAST: Dialects = Dialects {
    postgres: "select job, (extract(epoch from max(nominal_at)) * 1000000)::bigint from infra.jobs_ledger
        where trigger = 'cron' group by job",
    sqlite: "select job, max(nominal_at) from infra_jobs_ledger where \"trigger\" = 'cron' group by job",
    sql_server: "SELECT Job, CAST(DATEDIFF(SECOND, '1970-01-01', MAX(NominalAt)) AS BIGINT) * 1000000
        FROM infra.Jobs_ledger WHERE [Trigger] = N'cron' GROUP BY Job",
};

/// The queues, as histories name them.
const QUEUES: [(Queue, QueueName); 4] = [
    (Queue::Outbox, QueueName::Outbox),
    (Queue::Inbox, QueueName::Inbox),
    (Queue::Timers, QueueName::Timers),
    (Queue::JobRuns, QueueName::Runs),
];

impl Controller {
    /// Lets all work end, and records what stands in the database then.
    pub(super) async fn finish(mut self) -> Result<()> {
        self.stop(|kind| !works(kind)).await?;
        let provider = self.scene.database().provider_at_last().await;
        let provider = Arc::new(Recorded::new(provider, Arc::clone(&self.recorder)));
        self.recorder.note(Event::Quiet);
        self.children.quiet();
        println!("the faults are over; waiting until all work has ended");
        let open = self.quiesce(provider.as_ref()).await?;
        self.recorder.note(Event::Settled { open });
        self.stop(works).await?;
        self.scene.keep_logs().await?;
        self.messages(provider.as_ref()).await?;
        self.audited(provider.as_ref()).await?;
        self.rows().await?;
        self.ledgers(provider.as_ref()).await?;
        self.checks().await
    }

    fn end_with(&self, condition: Condition) {
        self.recorder.note(Event::End(Box::new(condition)));
    }

    fn check(&self, name: &str, found: Vec<String>) {
        self.end_with(Condition::Check { name: name.to_owned(), found });
    }

    /// Waits until all work has ended. Returns what is left when the time is over.
    async fn quiesce(&mut self, provider: &dyn Provider) -> Result<u64> {
        let mut sampling = Sampling::start(&self.scene, &self.recorder);
        let mut shown = Instant::now();
        let (mut fewest, mut progress) = (u64::MAX, Instant::now());
        loop {
            // A loop with several turns between two looks at the database.
            for _ in 0..30 {
                self.turn(&mut sampling).await?;
            }
            self.unblock(provider).await?;
            let open = self.open(provider).await?;
            if open < fewest {
                (fewest, progress) = (open, Instant::now());
            }
            if open == 0 || progress.elapsed() > STUCK {
                return Ok(open);
            }
            if shown.elapsed() > Duration::from_secs(5) {
                shown = Instant::now();
                println!("{open} open messages");
            }
        }
    }

    async fn open(&self, provider: &dyn Provider) -> Result<u64> {
        let mut open = 0;
        for (queue, _) in QUEUES {
            open += provider.queue(queue).backlog().await?.open();
        }
        Ok(open)
    }

    /// Does what an operator would: disables the jobs, resumes paused topics, and releases held keys.
    async fn unblock(&self, provider: &dyn Provider) -> Result<()> {
        let outbox = Outbox::new(provider.outbox());
        for paused in outbox.paused().await? {
            outbox.resume(&paused.topic).await?;
        }
        let jobs = Jobs::new(provider.jobs());
        for job in jobs.list(None, 100).await?.into_iter().filter(|job| job.enabled) {
            jobs.disable(&job.name).await?;
        }
        for (key, _) in self.rows_of(HOLDS).await? {
            outbox.release_key(&key).await?;
        }
        Ok(())
    }

    /// Records every row of every queue.
    async fn messages(&self, provider: &dyn Provider) -> Result<()> {
        for (queue, name) in QUEUES {
            let store = provider.queue(queue);
            let mut export = store.export(&MessageFilter::all().without_payloads()).await?;
            let mut stuck = Vec::new();
            loop {
                let page = export.next().await?;
                if page.is_empty() {
                    break;
                }
                for row in page {
                    let message = row.message;
                    let status = match message.status {
                        Status::Ready => "ready",
                        Status::InProgress => "in_progress",
                        Status::Done => "done",
                        Status::Failed => "failed",
                    };
                    if !message.status.is_terminal() {
                        stuck.push(message.id.as_uuid());
                    }
                    self.end_with(Condition::Message(MessageState {
                        queue: name,
                        id: message.id.as_uuid(),
                        status: status.to_owned(),
                        attempts: message.attempts,
                        generation: Some(message.generation),
                        seq: Some(row.seq),
                        key: message.ordering_key,
                        reason: message.reason.map(|reason| reason.as_str().to_owned()),
                    }));
                }
            }
            if !stuck.is_empty() {
                let why = "open although everything had the time to end".to_owned();
                self.end_with(Condition::Stuck { queue: name, ids: stuck, why });
            }
        }
        Ok(())
    }

    /// Records what the audit trail tells of the outbox and of leases.
    async fn audited(&self, provider: &dyn Provider) -> Result<()> {
        let records =
            self.audited_as(provider, "outbox.").await? + self.audited_as(provider, "lease.").await?;
        self.end_with(Condition::Trail { records });
        Ok(())
    }

    /// Records what the audit trail tells of what begins with a name. Returns how many records there are.
    async fn audited_as(&self, provider: &dyn Provider, prefix: &str) -> Result<u64> {
        let (audit, filter) = (provider.audit(), AuditFilter::all().name(prefix));
        let mut records = 0;
        let mut page = AuditPage { limit: 1_000, ..AuditPage::default() };
        loop {
            let found = audit.list(&filter, page).await?;
            let Some(last) = found.last() else { return Ok(records) };
            page.before = Some(last.id);
            records += found.len() as u64;
            for record in found {
                if record.name == "lease.force_release" {
                    let epoch =
                        record.data.as_ref().and_then(|data| data.get("before")?.get("epoch")?.as_i64());
                    let name = record.anchors.into_iter().find(|anchor| anchor.kind == "lease");
                    self.end_with(Condition::Released {
                        name: name.context("an audit record without its lease")?.value,
                        epoch: epoch.context("an audit record without an epoch")?,
                    });
                    continue;
                }
                let action = match record.name.as_str() {
                    "outbox.cancel" => Action::Cancel,
                    "outbox.requeue" => Action::Requeue,
                    "outbox.purge" => Action::Purge,
                    _ => continue,
                };
                let count = record.data.as_ref().and_then(|data| data.get("count")?.as_u64());
                let ids = record.anchors.iter().filter(|anchor| anchor.kind == "outbox");
                let ids = ids.map(|anchor| anchor.value.parse()).collect::<Result<Vec<Uuid>, _>>();
                self.end_with(Condition::Audited {
                    action,
                    ids: ids.context("an anchor without an id")?,
                    count: count.context("an audit record without a count")?,
                });
            }
        }
    }

    /// Records the rows of the application's own tables.
    async fn rows(&self) -> Result<()> {
        for (id, rows) in self.rows_of(EFFECTS).await? {
            let id: Uuid = id.parse().context("an effect without an id")?;
            self.end_with(Condition::Effect { id, rows: rows.unsigned_abs() });
        }
        let mut ids = Vec::new();
        for (id, rows) in self.rows_of(BUSINESS).await? {
            let id: Uuid = id.parse().context("a business row without an id")?;
            ids.extend((0..rows).map(|_| id));
        }
        self.end_with(Condition::Business { ids });
        for (row, epoch) in self.rows_of(GUARDED).await? {
            let mut parts = row.split(' ');
            let (Some(name), Some(value), Some(seen)) = (parts.next(), parts.next(), parts.next()) else {
                bail!("a guarded row without a value")
            };
            let value = value.parse().context("a guarded row without a value")?;
            let seen = Some(seen.parse().context("a guarded row that does not tell what it saw")?);
            self.end_with(Condition::Guarded { name: name.to_owned(), epoch, value, seen });
        }
        Ok(())
    }

    /// Records joins, jobs and the ledger of received messages.
    async fn ledgers(&self, provider: &dyn Provider) -> Result<()> {
        let continued: HashMap<String, i64> = self.rows_of(CONTINUED).await?.into_iter().collect();
        let (joins, mut page) = (provider.joins(), JoinPage::first(1_000));
        loop {
            let found = joins.list(&JoinFilter::default(), page).await?;
            let Some(last) = found.last() else { break };
            page = page.after(last.id);
            for join in &found {
                let continuations = continued.get(&join.id.to_string()).copied().unwrap_or(0);
                self.end_with(Condition::Join {
                    id: join.id.as_uuid(),
                    total: u64::from(join.expected),
                    ended: u64::from(join.completed) + u64::from(join.failed),
                    closed: join.has_ended(),
                    continuations: continuations.unsigned_abs(),
                });
            }
        }
        let occurrences: HashMap<String, i64> = self.rows_of(OCCURRENCES).await?.into_iter().collect();
        let first: HashMap<String, i64> = self.rows_of(FIRST).await?.into_iter().collect();
        let last: HashMap<String, i64> = self.rows_of(LAST).await?.into_iter().collect();
        for (name, runs) in self.rows_of(RUNS).await? {
            let occurrences = occurrences.get(&name).copied().unwrap_or(0).unsigned_abs();
            let span = first.get(&name).copied().zip(last.get(&name).copied());
            self.end_with(Condition::Job { name, runs: runs.unsigned_abs(), occurrences, span });
        }
        self.received(provider).await
    }

    /// Records the ledger of received messages.
    async fn received(&self, provider: &dyn Provider) -> Result<()> {
        let (queued, reserved) = (self.rows_of(EFFECTS).await?, self.rows_of(RECEIVED).await?);
        let effects: HashMap<String, i64> = queued.into_iter().chain(reserved).collect();
        let (inbox, mut page) = (provider.inbox(), InboxPage { limit: 1_000, ..InboxPage::default() });
        loop {
            let found = inbox.list(&InboxFilter::all(), &page).await?;
            let Some(last) = found.last() else { return Ok(()) };
            page.after = Some(last.key.clone());
            for entry in found {
                let id = entry.key.message_id().to_owned();
                let done_by = entry.work_item.map_or_else(|| id.clone(), |item| item.to_string());
                self.end_with(Condition::Received {
                    source: entry.key.source().to_owned(),
                    id,
                    status: format!("{:?}", entry.state).to_lowercase(),
                    effects: effects.get(&done_by).copied().unwrap_or(0).unsigned_abs(),
                });
            }
        }
    }

    /// Rows of a text and a number.
    async fn rows_of(&self, query: Dialects) -> Result<Vec<(String, i64)>> {
        self.scene.database().rows(query).await
    }

    /// Records what the database's own checks find.
    async fn checks(&self) -> Result<()> {
        self.check("children", self.wrong.clone());
        let database = self.scene.database();
        match database.engine() {
            Engine::Sqlite => {
                let check = "select integrity_check, 0 from pragma_integrity_check";
                let found = database.session().await?.rows(check).await?;
                let found = found.into_iter().map(|(line, _)| line).filter(|line| line != "ok");
                self.check("integrity_check", found.collect());
            }
            Engine::Postgres => self.check("amcheck", self.amcheck().await?),
            Engine::SqlServer => {
                if let Some(found) = self.checkdb().await? {
                    self.check("checkdb", found);
                }
            }
        }
        Ok(())
    }

    /// What `DBCC CHECKDB` finds. None on Babelfish, which has no such check.
    async fn checkdb(&self) -> Result<Option<Vec<String>>> {
        let babelfish = "SELECT N'babelfish', 1 WHERE SERVERPROPERTY(N'BabelfishVersion') IS NOT NULL";
        if !self.scene.database().session().await?.rows(babelfish).await?.is_empty() {
            return Ok(None);
        }
        let mut client = self.scene.database().sql_server_client().await?;
        let check = "DBCC CHECKDB WITH NO_INFOMSGS, ALL_ERRORMSGS, TABLERESULTS";
        let found = client.simple_query(check).await?.into_results().await?;
        let text = |row: &Row| Ok(row.try_get::<&str, _>("MessageText")?.unwrap_or_default().to_owned());
        found.iter().flatten().map(text).collect::<Result<_>>().map(Some)
    }

    /// What `amcheck` finds in the indexes of the schema.
    async fn amcheck(&self) -> Result<Vec<String>> {
        let client = self.scene.database().client().await?;
        client.batch_execute("create extension if not exists amcheck").await?;
        let indexes = "select c.oid::regclass::text from pg_class c join pg_am a on a.oid = c.relam
            where c.relkind = 'i' and a.amname = 'btree' and c.relnamespace = 'infra'::regnamespace";
        let mut found = Vec::new();
        for row in client.query_typed(indexes, &[]).await? {
            let index: String = row.get(0);
            let check = format!("select bt_index_parent_check('{}', true)", index.replace('\'', "''"));
            if let Err(error) = client.batch_execute(&check).await {
                found.push(format!("{index}: {error}"));
            }
        }
        Ok(found)
    }
}
