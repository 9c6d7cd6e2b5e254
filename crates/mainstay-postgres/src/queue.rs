//! A queue: each method is one call of one public SQL function, in one round trip.

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
use mainstay_core::store::{Capabilities, OutboxStore, QueueStore, StoreTransaction, WaitRequest, Wake};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::cursor::Cursors;
use crate::export::PostgresExport;
use crate::gathering::Gathering;
use crate::moment::Moment;
use crate::parameters::{Conditions, Settlements, claims};
use crate::pool::{Connections, Parameter};
use crate::provider::capabilities;
use crate::rows;
use crate::statements::QueueStatements;
use crate::transaction::PostgresTransaction;
use crate::waiting::Waiting;

/// Rows that one reap frees per transaction.
const REAP_BATCH: i32 = 1_000;

/// A queue in PostgreSQL.
pub struct PostgresQueue {
    identifier: String,
    connections: Connections,
    statements: Arc<QueueStatements>,
    /// Those of the outbox, for what a handler's transaction enqueues.
    outbox: Arc<QueueStatements>,
    keep_done_payloads: bool,
    waiting: Waiting,
    gathering: Gathering,
    cursors: Cursors,
}

impl PostgresQueue {
    pub(crate) fn new(
        identifier: String,
        connections: Connections,
        statements: Arc<QueueStatements>,
        outbox: Arc<QueueStatements>,
        keep_done_payloads: bool,
        waiting: Waiting,
    ) -> Self {
        let gathering = Gathering::new(connections.clone(), Arc::clone(&statements));
        Self {
            identifier,
            connections,
            statements,
            outbox,
            keep_done_payloads,
            waiting,
            gathering,
            cursors: Cursors::default(),
        }
    }

    /// The outbox behind a store, or what is wrong with using it in a transaction of PostgreSQL.
    pub(crate) fn of(store: &dyn OutboxStore) -> Result<&Self> {
        store.as_any().downcast_ref().ok_or_else(|| {
            let message = format!(
                "this is a transaction of PostgreSQL, but the outbox is {}; enqueue in a transaction of the outbox's own database",
                store.identifier()
            );
            Error::new(ErrorKind::Unsupported, "outbox.enqueue", message)
        })
    }

    /// Ends what listens.
    pub(crate) async fn close(&self) {
        self.waiting.close().await;
    }

    /// Whether statements are prepared once per connection.
    pub(crate) fn prepared(&self) -> bool {
        self.connections.prepared()
    }

    pub(crate) fn statements(&self) -> &QueueStatements {
        &self.statements
    }

    async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.connections.query(operation, sql, parameters).await
    }

    async fn ids_of(
        &self,
        operation: &'static str,
        sql: &str,
        ids: &[WorkItemId],
        by: &Actor,
    ) -> Result<Vec<WorkItemId>> {
        let ids: Vec<Uuid> = ids.iter().map(WorkItemId::as_uuid).collect();
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] =
            [(&ids, Type::UUID_ARRAY), (&by, Type::TEXT), (&about, Type::TEXT)];
        rows::ids(operation, &self.query(operation, sql, &parameters).await?)
    }
}

/// An empty list of topics means all of them, which SQL writes as null.
pub(crate) fn topics(topics: &[String]) -> Option<&[String]> {
    Some(topics).filter(|topics| !topics.is_empty())
}

pub(crate) fn whole(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

#[async_trait]
impl QueueStore for PostgresQueue {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        const CLAIM: &str = "outbox.claim";
        self.waiting.before_claim(request.owner).await;
        let owner = request.owner.as_uuid();
        let lease = request.lease.as_secs_f64();
        let (batch, limit) = (whole(request.batch), whole(request.delivery_limit));
        let (only, except) = (topics(&request.only_topics), topics(&request.except_topics));
        let start = self.cursors.start(request);
        let (from_due, from_seq) = (start.map(|start| start.due_at), start.map(|start| start.seq));
        let parameters: [Parameter<'_>; 8] = [
            (&owner, Type::UUID),
            (&lease, Type::FLOAT8),
            (&batch, Type::INT4),
            (&limit, Type::INT4),
            (&only, Type::TEXT_ARRAY),
            (&except, Type::TEXT_ARRAY),
            (&from_due, Type::TIMESTAMPTZ),
            (&from_seq, Type::INT8),
        ];
        let rows = self.query(CLAIM, &self.statements.take, &parameters).await?;
        // No await from here on: dropped now, the claim would be held by nobody until it lapses.
        let (batch, end) = rows::claim_batch(&rows)?;
        if !batch.rejected.is_empty() {
            joins_counted(&self.identifier, &rows::counted(CLAIM, &rows, 20)?);
        }
        let full = batch.items.len() as u64 >= u64::from(request.batch);
        self.cursors.note(request, start, end.filter(|_| full));
        self.waiting.after_claim(request, &batch);
        Ok(batch)
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        const SETTLE: &str = "outbox.settle";
        let arrays = Settlements::new(owner, settlements, self.keep_done_payloads);
        let rows = self.query(SETTLE, &self.statements.settle, &arrays.parameters()).await?;
        joins_counted(&self.identifier, &rows::counted(SETTLE, &rows, 1)?);
        rows::settled(SETTLE, &rows, settlements)
    }

    async fn renew(&self, owner: OwnerToken, handles: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        const RENEW: &str = "outbox.renew";
        let (ids, generations) = claims(handles);
        let (owner, lease) = (owner.as_uuid(), lease.as_secs_f64());
        let parameters: [Parameter<'_>; 4] = [
            (&owner, Type::UUID),
            (&ids, Type::UUID_ARRAY),
            (&generations, Type::INT8_ARRAY),
            (&lease, Type::FLOAT8),
        ];
        let rows = self.query(RENEW, &self.statements.renew, &parameters).await?;
        Ok(Settled::from_renewed(handles.iter().map(ClaimHandle::id), rows::renewed(RENEW, &rows)?))
    }

    async fn reap_expired(&self) -> Result<u64> {
        const REAP: &str = "outbox.reap";
        let mut reaped = 0;
        loop {
            let rows = self.query(REAP, &self.statements.reap, &[(&REAP_BATCH, Type::INT4)]).await?;
            let batch: i32 = rows::value(REAP, &rows)?;
            reaped += u64::from(batch.max(0).unsigned_abs());
            if batch < REAP_BATCH {
                return Ok(reaped);
            }
        }
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.waiting.wait(request).await
    }

    async fn leave(&self, consumer: OwnerToken) {
        self.waiting.leave(consumer).await;
    }

    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        let lease = self.connections.lease_for_transaction("outbox.begin").await?;
        let (statements, outbox) = (Arc::clone(&self.statements), Arc::clone(&self.outbox));
        let (identifier, keep) = (self.identifier.clone(), self.keep_done_payloads);
        Ok(Box::new(PostgresTransaction::begin(identifier, lease, statements, outbox, keep).await?))
    }
}

#[async_trait]
impl OutboxStore for PostgresQueue {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        match messages {
            [] => Ok(Vec::new()),
            messages => self.gathering.enqueue(messages).await,
        }
    }

    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        const GET: &str = "outbox.get";
        let rows = self.query(GET, &self.statements.get, &[(&id.as_uuid(), Type::UUID)]).await?;
        rows.first().map(|row| rows::message(GET, row)).transpose()
    }

    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        const LIST: &str = "outbox.list";
        let conditions = Conditions::new(filter);
        let (last, limit) = (page.before.map(|id| id.as_uuid()), i64::from(page.limit));
        let page_of: [Parameter<'_>; 3] =
            [(&last, Type::UUID), (&limit, Type::INT8), (&filter.without_payloads, Type::BOOL)];
        let parameters: Vec<_> = conditions.parameters().into_iter().chain(page_of).collect();
        let rows = self.query(LIST, &self.statements.list, &parameters).await?;
        rows.iter().map(|row| rows::message(LIST, row)).collect()
    }

    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        Ok(Box::new(PostgresExport::begin(&self.connections, &self.statements, filter).await?))
    }

    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        const CANCEL: &str = "outbox.cancel";
        let ids: Vec<Uuid> = ids.iter().map(WorkItemId::as_uuid).collect();
        let (by, about) = (by.map(Actor::as_str), by.and_then(Actor::correlation_id));
        let parameters: [Parameter<'_>; 3] =
            [(&ids, Type::UUID_ARRAY), (&by, Type::TEXT), (&about, Type::TEXT)];
        let rows = self.query(CANCEL, &self.statements.cancel, &parameters).await?;
        joins_counted(&self.identifier, &rows::counted(CANCEL, &rows, 1)?);
        rows::ids(CANCEL, &rows)
    }

    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        self.ids_of("outbox.requeue", &self.statements.requeue, ids, by).await
    }

    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        const REQUEUE: &str = "outbox.requeue";
        if filter.status.is_some_and(|status| status != Status::Failed) {
            return Ok(Vec::new());
        }
        let reason = filter.reason.map(|reason| reason.as_str());
        let (after, before) = (filter.settled_after.map(Moment), filter.settled_before.map(Moment));
        let (limit, by, about) = (whole(limit), by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 8] = [
            (&filter.topic, Type::TEXT),
            (&reason, Type::TEXT),
            (&after, Type::TIMESTAMPTZ),
            (&before, Type::TIMESTAMPTZ),
            (&limit, Type::INT4),
            (&filter.correlation_id, Type::TEXT),
            (&by, Type::TEXT),
            (&about, Type::TEXT),
        ];
        rows::ids(REQUEUE, &self.query(REQUEUE, &self.statements.requeue_where, &parameters).await?)
    }

    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        const RELEASE: &str = "outbox.release_key";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] = [(&key, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        let rows = self.query(RELEASE, &self.statements.release_key, &parameters).await?;
        rows::value(RELEASE, &rows)
    }

    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        const PAUSE: &str = "outbox.pause";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 4] =
            [(&topic, Type::TEXT), (&reason, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        rows::value(PAUSE, &self.query(PAUSE, &self.statements.pause, &parameters).await?)
    }

    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        const RESUME: &str = "outbox.resume";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] = [(&topic, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        rows::value(RESUME, &self.query(RESUME, &self.statements.resume, &parameters).await?)
    }

    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        const PAUSED: &str = "outbox.paused";
        let rows = self.query(PAUSED, &self.statements.paused, &[]).await?;
        rows.iter().map(|row| rows::paused(PAUSED, row)).collect()
    }

    async fn stats(&self) -> Result<OutboxStats> {
        const STATS: &str = "outbox.stats";
        let totals = self.query(STATS, &self.statements.stats, &[]).await?;
        let topics = self.query(STATS, &self.statements.stats_by_topic, &[]).await?;
        rows::stats(&totals, &topics)
    }

    async fn backlog(&self) -> Result<OutboxStats> {
        let totals = self.query("outbox.backlog", &self.statements.backlog, &[]).await?;
        rows::stats(&totals, &[])
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "outbox.purge";
        let seconds = |age: Option<Duration>| age.map(|age| age.as_secs_f64());
        let (done, failed) = (seconds(retention.done), seconds(retention.failed));
        let batch = whole(retention.batch);
        let (by, about) = (by.map(Actor::as_str), by.and_then(Actor::correlation_id));
        let parameters: [Parameter<'_>; 5] = [
            (&done, Type::FLOAT8),
            (&failed, Type::FLOAT8),
            (&batch, Type::INT4),
            (&by, Type::TEXT),
            (&about, Type::TEXT),
        ];
        let rows = self.query(PURGE, &self.statements.purge, &parameters).await?;
        Ok(u64::from(rows::value::<i32>(PURGE, &rows)?.max(0).unsigned_abs()))
    }

    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        const FORWARD: &str = "queue.forward";
        self.waiting.before_claim(owner).await;
        let (token, rows) = (owner.as_uuid(), whole(batch));
        let parameters: [Parameter<'_>; 3] =
            [(&token, Type::UUID), (&rows, Type::INT4), (&self.keep_done_payloads, Type::BOOL)];
        let forwarded =
            rows::ids(FORWARD, &self.query(FORWARD, &self.statements.forward, &parameters).await?)?;
        let full = forwarded.len() as u64 >= u64::from(batch);
        self.waiting.after_forward(owner, full, !forwarded.is_empty());
        Ok(forwarded)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for PostgresQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresQueue").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
