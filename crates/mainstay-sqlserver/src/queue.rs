//! A queue: each method is one call of one procedure, in one round trip.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage,
    Retention,
};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement, Status};
use mainstay_core::store::{
    Capabilities, OutboxStore, QueueStore, Step, StoreTransaction, WaitRequest, Wake,
};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};

use crate::adapter;
use crate::export::SqlServerExport;
use crate::pool::Connections;
use crate::procedures::QueueProcedures;
use crate::provider::capabilities;
use crate::rows::{self, Reader, Row};
use crate::transaction::SqlServerTransaction;
use crate::waiting::Waiting;

/// Rows that one reap frees per transaction.
const REAP_BATCH: u32 = 1_000;

/// Messages read at a time where their payloads are of no interest.
const FEW: u32 = 20;

/// A queue in SQL Server.
pub struct SqlServerQueue {
    identifier: String,
    connections: Connections,
    procedures: Arc<QueueProcedures>,
    /// Those of the outbox, for what a handler's transaction enqueues.
    outbox: Arc<QueueProcedures>,
    keep_done_payloads: bool,
    waiting: Waiting,
}

impl SqlServerQueue {
    pub(crate) fn new(
        identifier: String,
        connections: Connections,
        procedures: Arc<QueueProcedures>,
        outbox: Arc<QueueProcedures>,
        keep_done_payloads: bool,
        waiting: Waiting,
    ) -> Self {
        Self { identifier, connections, procedures, outbox, keep_done_payloads, waiting }
    }

    /// The queue behind a store, or what is wrong with using it in a transaction of SQL Server.
    pub(crate) fn of(store: &dyn OutboxStore) -> Result<&Self> {
        store.as_any().downcast_ref().ok_or_else(|| {
            let message = format!(
                "this is a transaction of SQL Server, but the outbox is {}; enqueue in a transaction of the outbox's own database",
                store.identifier()
            );
            Error::new(ErrorKind::Unsupported, "outbox.enqueue", message)
        })
    }

    pub(crate) fn connections(&self) -> &Connections {
        &self.connections
    }

    pub(crate) fn procedures(&self) -> &QueueProcedures {
        &self.procedures
    }

    /// What adds messages.
    pub(crate) fn enqueuing(&self, messages: &[PreparedMessage]) -> Step {
        self.procedures.enqueue(messages)
    }

    async fn run(&self, operation: &'static str, step: Step) -> Result<Vec<Row>> {
        self.connections.run(operation, &step).await
    }
}

#[async_trait]
impl QueueStore for SqlServerQueue {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        const CLAIM: &str = "outbox.claim";
        let rows = self.run(CLAIM, self.procedures.claim(request)).await?;
        // No await from here on: dropped now, the claim would be held by nobody until it lapses.
        let batch = rows::claim_batch(CLAIM, &rows)?;
        if !batch.rejected.is_empty() {
            joins_counted(&self.identifier, &rows::counted(CLAIM, &rows)?);
        }
        Ok(batch)
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        const SETTLE: &str = "outbox.settle";
        let rows =
            self.run(SETTLE, self.procedures.settle(owner, settlements, self.keep_done_payloads)).await?;
        joins_counted(&self.identifier, &rows::counted(SETTLE, &rows)?);
        self.waiting.signal();
        let asked = settlements.iter().map(|settlement| settlement.claim.id());
        Ok(Settled::from_changed(asked, rows::ids(SETTLE, &rows)?))
    }

    async fn renew(&self, owner: OwnerToken, handles: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        const RENEW: &str = "outbox.renew";
        let rows = self.run(RENEW, self.procedures.renew(owner, handles, lease)).await?;
        let held = rows.iter().map(|row| {
            let row = Reader::new(RENEW, row);
            Ok((WorkItemId::from_uuid(row.id("id")?), row.flag("extended")?))
        });
        Ok(Settled::from_renewed(handles.iter().map(ClaimHandle::id), held.collect::<Result<_>>()?))
    }

    async fn reap_expired(&self) -> Result<u64> {
        const REAP: &str = "outbox.reap";
        let mut reaped = 0;
        loop {
            let rows = self.run(REAP, self.procedures.reap(REAP_BATCH)).await?;
            let batch = rows::only(REAP, &rows)?.count("reaped")?;
            reaped += batch;
            if batch < u64::from(REAP_BATCH) {
                break;
            }
        }
        if reaped > 0 {
            self.waiting.signal();
        }
        Ok(reaped)
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.waiting.wait(request).await
    }

    async fn leave(&self, _consumer: OwnerToken) {
        // Nobody takes trouble to wake it.
    }

    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        let (procedures, outbox) = (Arc::clone(&self.procedures), Arc::clone(&self.outbox));
        let (identifier, keep) = (self.identifier.clone(), self.keep_done_payloads);
        let connections = self.connections.clone();
        Ok(Box::new(SqlServerTransaction::begin(identifier, connections, procedures, outbox, keep).await?))
    }
}

#[async_trait]
impl OutboxStore for SqlServerQueue {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        const ENQUEUE: &str = "outbox.enqueue";
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.run(ENQUEUE, self.procedures.enqueue(messages)).await?;
        self.waiting.signal();
        joins_counted(&self.identifier, &rows::counted(ENQUEUE, &rows)?);
        adapter::enqueued(ENQUEUE, &rows)
    }

    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        const GET: &str = "outbox.get";
        let rows = self.run(GET, self.procedures.get(id)).await?;
        rows.first().map(|row| rows::message(GET, row)).transpose()
    }

    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        const LIST: &str = "outbox.list";
        if !filter.without_payloads {
            let rows = self.run(LIST, self.procedures.list(filter, &page)).await?;
            return rows.iter().map(|row| rows::message(LIST, row)).collect();
        }
        // The procedure tells all of a message, so it is asked for few at a time, and no payload is kept.
        let mut found: Vec<OutboxMessage> = Vec::new();
        loop {
            let left = page.limit - found.len() as u32;
            let few = Page { limit: left.min(FEW), before: found.last().map(|last| last.id).or(page.before) };
            let rows = self.run(LIST, self.procedures.list(filter, &few)).await?;
            for row in &rows {
                let mut message = rows::message(LIST, row)?;
                message.payload = None;
                found.push(message);
            }
            if left == few.limit || rows.len() < few.limit as usize {
                return Ok(found);
            }
        }
    }

    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        Ok(Box::new(SqlServerExport::new(&self.connections, &self.procedures, filter)))
    }

    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        const CANCEL: &str = "outbox.cancel";
        let rows = self.run(CANCEL, self.procedures.cancel(ids, by)).await?;
        joins_counted(&self.identifier, &rows::counted(CANCEL, &rows)?);
        self.waiting.signal();
        rows::ids(CANCEL, &rows)
    }

    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        const REQUEUE: &str = "outbox.requeue";
        let rows = self.run(REQUEUE, self.procedures.requeue(ids, by)).await?;
        self.waiting.signal();
        rows::ids(REQUEUE, &rows)
    }

    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        const REQUEUE: &str = "outbox.requeue";
        if filter.status.is_some_and(|status| status != Status::Failed) {
            return Ok(Vec::new());
        }
        let rows = self.run(REQUEUE, self.procedures.requeue_where(filter, limit, by)).await?;
        self.waiting.signal();
        rows::ids(REQUEUE, &rows)
    }

    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        const RELEASE: &str = "outbox.release_key";
        let rows = self.run(RELEASE, self.procedures.release_key(key, by)).await?;
        self.waiting.signal();
        rows::only(RELEASE, &rows)?.flag("released")
    }

    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        const PAUSE: &str = "outbox.pause";
        let rows = self.run(PAUSE, self.procedures.pause(topic, reason, by)).await?;
        rows::only(PAUSE, &rows)?.flag("changed")
    }

    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        const RESUME: &str = "outbox.resume";
        let rows = self.run(RESUME, self.procedures.resume(topic, by)).await?;
        self.waiting.signal();
        rows::only(RESUME, &rows)?.flag("changed")
    }

    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        const PAUSED: &str = "outbox.paused";
        let rows = self.run(PAUSED, self.procedures.paused()).await?;
        rows.iter().map(|row| rows::paused(PAUSED, row)).collect()
    }

    async fn stats(&self) -> Result<OutboxStats> {
        const STATS: &str = "outbox.stats";
        rows::stats(STATS, &self.run(STATS, self.procedures.stats(true)).await?)
    }

    async fn backlog(&self) -> Result<OutboxStats> {
        const BACKLOG: &str = "outbox.backlog";
        rows::stats(BACKLOG, &self.run(BACKLOG, self.procedures.stats(false)).await?)
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "outbox.purge";
        let rows = self.run(PURGE, self.procedures.purge(retention, by)).await?;
        rows::only(PURGE, &rows)?.count("purged")
    }

    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        const FORWARD: &str = "queue.forward";
        let step = self.procedures.forward(owner, batch, self.keep_done_payloads);
        let forwarded = rows::ids(FORWARD, &self.run(FORWARD, step).await?)?;
        if !forwarded.is_empty() {
            self.waiting.signal_outbox();
        }
        Ok(forwarded)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for SqlServerQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerQueue").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
