//! A queue on SQLite: each method is one operation of the writer, or one job of a reader.

mod admin;
mod claim;
mod enqueue;
mod export;
mod forward;
mod pause;
pub(crate) mod read;
mod settle;

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::join::Counted;
use mainstay_core::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage,
    Retention,
};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement};
use mainstay_core::store::{Capabilities, OutboxStore, QueueStore, StoreTransaction, WaitRequest, Wake};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{OwnerToken, Result, WorkItemId};

use crate::database::Database;
use crate::transaction::SqliteTransaction;
use crate::wake;
use crate::writer::Ticket;
use admin::Recorder;

pub(crate) use admin::{Verb, cancel, purge_told, requeue};
pub(crate) use claim::Topics;
#[cfg(feature = "sqlx")]
pub(crate) use enqueue::{ENQUEUE, id_used, is_used_code, known_as, steps_of_joins};
pub(crate) use enqueue::{enqueue, when};
pub(crate) use forward::forward;
pub(crate) use settle::{SettleResult, settle};

/// A queue in one SQLite database.
pub struct SqliteQueue {
    database: Arc<Database>,
    /// Where the messages of a handler's transaction go.
    outbox: Arc<Database>,
}

impl SqliteQueue {
    pub(crate) fn new(database: Arc<Database>, outbox: Arc<Database>) -> Self {
        Self { database, outbox }
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }
}

impl fmt::Debug for SqliteQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteQueue").field("identifier", &self.database.identifier).finish_non_exhaustive()
    }
}

#[async_trait]
impl QueueStore for SqliteQueue {
    fn identifier(&self) -> &str {
        &self.database.identifier
    }

    fn capabilities(&self) -> Capabilities {
        self.database.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        let (request, ticket) = (request.clone(), Ticket::new("outbox.claim", request.batch as usize));
        let claim = move |connection: &_, sql: &_| claim::claim(connection, sql, &request);
        // What was counted may have ended a join, and so added its continuation.
        let wakes = |(_, counted): &(ClaimBatch, Vec<Counted>)| !counted.is_empty();
        let (batch, counted) = self.database.write_and_wake(ticket, claim, wakes).await?;
        joins_counted(&self.database.identifier, &counted);
        Ok(batch)
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        let ticket = Ticket::new("outbox.settle", settlements.len());
        let settlements = settlements.to_vec();
        let keep = self.database.keep_done_payloads;
        let settle = move |connection: &_, sql: &_| settle(connection, sql, owner, &settlements, keep);
        let wakes = |result: &SettleResult| result.may_wake;
        let result = self.database.write_and_wake(ticket, settle, wakes).await?;
        joins_counted(&self.database.identifier, &result.counted);
        Ok(result.settled)
    }

    async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        let ticket = Ticket::new("outbox.renew", claims.len());
        let claims = claims.to_vec();
        let renew = move |connection: &_, sql: &_| settle::renew(connection, sql, owner, &claims, lease);
        self.database.write(ticket, renew).await
    }

    async fn reap_expired(&self) -> Result<u64> {
        self.database.write("outbox.reap", settle::reap).await
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        let sql = Arc::clone(&self.database.statements);
        let next = move |connection: &_, topics: &_, now| wake::next_due(connection, &sql, topics, now);
        wake::wait(&self.database, request, Arc::new(next)).await
    }

    async fn leave(&self, _consumer: OwnerToken) {
        // Nobody is told of waiters: signals and looks at the file find them.
    }

    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        Ok(Box::new(SqliteTransaction::begin(&self.database, &self.outbox.statements).await?))
    }
}

#[async_trait]
impl OutboxStore for SqliteQueue {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let ticket = Ticket::new("outbox.enqueue", messages.len());
        let messages = messages.to_vec();
        let enqueue = move |connection: &_, sql: &_| enqueue(connection, sql, &messages);
        let wakes = |enqueued: &Vec<Enqueued>| enqueued.iter().any(|message| message.added);
        self.database.write_and_wake(ticket, enqueue, wakes).await
    }

    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        self.database.read("outbox.get", move |connection, sql| read::get(connection, sql, id)).await
    }

    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        let filter = filter.clone();
        self.database
            .read("outbox.list", move |connection, sql| read::list(connection, sql, &filter, page))
            .await
    }

    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        Ok(Box::new(export::SqliteExport::new(&self.database, filter)))
    }

    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        let ticket = Ticket::new("outbox.cancel", ids.len());
        let (ids, recorder) = (ids.to_vec(), Recorder::new(&self.database, by));
        let cancel = move |connection: &_, sql: &_| {
            let (changed, counted) = admin::cancel(connection, sql, &ids)?;
            Ok((recorder.changed(connection, Verb::Cancel, &changed, None)?, counted))
        };
        // What stood behind a cancelled message in its ordering key may be ready now.
        let wakes = |(changed, _): &(Vec<WorkItemId>, _)| !changed.is_empty();
        let (changed, counted) = self.database.write_and_wake(ticket, cancel, wakes).await?;
        joins_counted(&self.database.identifier, &counted);
        Ok(changed)
    }

    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        let ticket = Ticket::new("outbox.requeue", ids.len());
        let (ids, recorder) = (ids.to_vec(), Recorder::new(&self.database, Some(by)));
        let requeue = move |connection: &_, sql: &_| {
            let changed = admin::requeue(connection, sql, &ids)?;
            recorder.changed(connection, Verb::Requeue, &changed, None)
        };
        self.database.write_and_wake(ticket, requeue, any).await
    }

    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        let ticket = Ticket::new("outbox.requeue", limit as usize);
        let (filter, recorder) = (filter.clone(), Recorder::new(&self.database, Some(by)));
        let requeue = move |connection: &_, sql: &_| {
            let changed = admin::requeue_where(connection, sql, &filter, limit)?;
            recorder.changed(connection, Verb::Requeue, &changed, Some(admin::told(&filter, limit)))
        };
        self.database.write_and_wake(ticket, requeue, any).await
    }

    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        let (key, recorder) = (key.to_owned(), Recorder::new(&self.database, Some(by)));
        let release = move |connection: &_, sql: &_| admin::release_key(connection, sql, &key, &recorder);
        self.database.write_and_wake("outbox.release_key", release, |released| *released).await
    }

    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        let recorder = Recorder::new(&self.database, Some(by));
        let (topic, reason, by) = (topic.to_owned(), reason.map(str::to_owned), by.clone());
        let pause = move |connection: &_, sql: &_| {
            pause::pause(connection, sql, &topic, reason.as_deref(), &by, &recorder)
        };
        self.database.write("outbox.pause", pause).await
    }

    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        let (topic, recorder) = (topic.to_owned(), Recorder::new(&self.database, Some(by)));
        let resume = move |connection: &_, sql: &_| pause::resume(connection, sql, &topic, &recorder);
        self.database.write_and_wake("outbox.resume", resume, |resumed| *resumed).await
    }

    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.database.read("outbox.paused", pause::paused).await
    }

    async fn stats(&self) -> Result<OutboxStats> {
        self.database.read("outbox.stats", read::stats).await
    }

    async fn backlog(&self) -> Result<OutboxStats> {
        let stats = self.database.read("outbox.backlog", read::backlog).await?;
        Ok(stats.without_topics())
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        let ticket = Ticket::new("outbox.purge", retention.batch as usize);
        let (retention, recorder) = (*retention, Recorder::new(&self.database, by));
        let purge = move |connection: &_, sql: &_| admin::purge(connection, sql, &retention, &recorder);
        self.database.write(ticket, purge).await
    }

    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        let ticket = Ticket::new("queue.forward", batch as usize);
        let keep = self.database.keep_done_payloads;
        let forward = move |connection: &_, sql: &_| forward::forward(connection, sql, owner, batch, keep);
        self.database.write_and_wake(ticket, forward, any).await
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[allow(clippy::ptr_arg, reason = "the type of the operation's result")]
fn any(changed: &Vec<WorkItemId>) -> bool {
    !changed.is_empty()
}
