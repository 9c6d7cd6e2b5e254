//! A provider that passes everything on and keeps what a worker asks for: its waits, with how they ended, and its settles.
//!
//! The worker under it works on the real database. It changes no answer, unless a test makes it refuse to settle a message. It can hold up a
//! purge between two pages.

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage,
    Retention,
};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement};
use mainstay_core::store::{
    Agenda, AuditStore, Capabilities, FanoutStore, HealthStore, InboxStore, JobStore, JoinStore, LeaseStore,
    OperationStore, OutboxStore, Provider, Queue, QueueStore, SchemaStore, StoreTransaction, TimerStore,
    WaitRequest, Wake,
};
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};
use tokio::sync::Semaphore;

/// A wait that has ended: how long it was to be at most, and why it ended.
pub(crate) type Waited = (Duration, Wake);

/// What was heard so far, each in its order.
#[derive(Default)]
struct Heard {
    waits: Vec<Waited>,
    left_out: Vec<Vec<String>>,
    settles: Vec<Vec<WorkItemId>>,
    refused: Option<(WorkItemId, ErrorKind)>,
}

/// Holds up purges between two pages.
struct Pages {
    deleted: Semaphore,
    next: Semaphore,
}

/// The provider.
pub(crate) struct Overheard {
    inner: Arc<dyn Provider>,
    heard: Arc<Mutex<Heard>>,
    pages: Arc<OnceLock<Pages>>,
}

impl Overheard {
    pub(crate) fn new(inner: Arc<dyn Provider>) -> Self {
        Self { inner, heard: Arc::default(), pages: Arc::default() }
    }

    /// Holds up every purge of a queue after each page from now on. Returns once one has deleted a page.
    pub(crate) async fn page_deleted(&self) {
        let none = || Pages { deleted: Semaphore::new(0), next: Semaphore::new(0) };
        // Never closed.
        if let Ok(deleted) = self.pages.get_or_init(none).deleted.acquire().await {
            deleted.forget();
        }
    }

    /// Lets purges go on, for good.
    pub(crate) fn delete_the_rest(&self) {
        if let Some(pages) = self.pages.get() {
            pages.next.close();
        }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The waits that have ended.
    pub(crate) fn waits(&self) -> Vec<Waited> {
        self.heard().waits.clone()
    }

    /// The topics that each wait left out, from its beginning.
    pub(crate) fn left_out(&self) -> Vec<Vec<String>> {
        self.heard().left_out.clone()
    }

    /// The messages of each settle.
    pub(crate) fn settles(&self) -> Vec<Vec<WorkItemId>> {
        self.heard().settles.clone()
    }

    /// From now on fails every settle with this message in it, as a whole and with such an error.
    pub(crate) fn refuse(&self, refused: Option<(WorkItemId, ErrorKind)>) {
        self.heard().refused = refused;
    }
}

#[async_trait]
impl Provider for Overheard {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        let (heard, pages) = (Arc::clone(&self.heard), Arc::clone(&self.pages));
        Arc::new(OverheardStore { inner: self.inner.queue(queue), heard, pages })
    }
    fn leases(&self) -> Arc<dyn LeaseStore> {
        self.inner.leases()
    }

    fn timers(&self) -> Arc<dyn TimerStore> {
        self.inner.timers()
    }
    fn fanout(&self) -> Arc<dyn FanoutStore> {
        self.inner.fanout()
    }
    fn jobs(&self) -> Arc<dyn JobStore> {
        self.inner.jobs()
    }
    fn joins(&self) -> Arc<dyn JoinStore> {
        self.inner.joins()
    }
    fn inbox(&self) -> Arc<dyn InboxStore> {
        self.inner.inbox()
    }
    fn audit(&self) -> Arc<dyn AuditStore> {
        self.inner.audit()
    }

    fn operations(&self) -> Arc<dyn OperationStore> {
        self.inner.operations()
    }
    fn health(&self) -> Arc<dyn HealthStore> {
        self.inner.health()
    }

    fn schema(&self) -> Arc<dyn SchemaStore> {
        self.inner.schema()
    }
    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }
    async fn agenda(&self) -> Result<Agenda> {
        self.inner.agenda().await
    }

    async fn allow_connections(&self, connections: usize) {
        self.inner.allow_connections(connections).await;
    }

    fn open_connections(&self) -> usize {
        self.inner.open_connections()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

struct OverheardStore {
    inner: Arc<dyn OutboxStore>,
    heard: Arc<Mutex<Heard>>,
    pages: Arc<OnceLock<Pages>>,
}

impl OverheardStore {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a settle. Fails when it is to be refused.
    fn hear(&self, settlements: &[Settlement]) -> Result<()> {
        let ids: Vec<_> = settlements.iter().map(|settlement| settlement.claim.id()).collect();
        let mut heard = self.heard();
        let refused = heard.refused.filter(|(refused, _)| ids.contains(refused));
        heard.settles.push(ids);
        let error = |(_, kind)| Error::new(kind, "outbox.settle", "this store refuses it");
        refused.map_or(Ok(()), |refused| Err(error(refused)))
    }
}

#[async_trait]
impl QueueStore for OverheardStore {
    fn identifier(&self) -> &str {
        self.inner.identifier()
    }
    fn capabilities(&self) -> Capabilities {
        QueueStore::capabilities(self.inner.as_ref())
    }
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        self.inner.claim(request).await
    }
    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        self.hear(settlements)?;
        self.inner.settle(owner, settlements).await
    }
    async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        self.inner.renew(owner, claims, lease).await
    }
    async fn reap_expired(&self) -> Result<u64> {
        self.inner.reap_expired().await
    }
    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.heard().left_out.push(request.except_topics.clone());
        let wake = self.inner.wait(request).await?;
        self.heard().waits.push((request.timeout, wake));
        Ok(wake)
    }
    async fn leave(&self, consumer: OwnerToken) {
        self.inner.leave(consumer).await;
    }
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        self.inner.begin().await
    }
}

#[async_trait]
impl OutboxStore for OverheardStore {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        self.inner.enqueue(messages).await
    }
    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        self.inner.get(id).await
    }
    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        self.inner.list(filter, page).await
    }
    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        self.inner.export(filter).await
    }
    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        self.inner.cancel(ids, by).await
    }
    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        self.inner.requeue(ids, by).await
    }
    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        self.inner.requeue_where(filter, limit, by).await
    }
    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        self.inner.release_key(key, by).await
    }
    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        self.inner.pause(topic, reason, by).await
    }
    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        self.inner.resume(topic, by).await
    }
    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.inner.paused().await
    }
    async fn stats(&self) -> Result<OutboxStats> {
        self.inner.stats().await
    }
    async fn backlog(&self) -> Result<OutboxStats> {
        self.inner.backlog().await
    }
    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        let purged = self.inner.purge(retention, by).await?;
        if let Some(pages) = self.pages.get() {
            pages.deleted.add_permits(1);
            // Closed once purges may go on.
            let _ = pages.next.acquire().await;
        }
        Ok(purged)
    }
    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        self.inner.forward(owner, batch).await
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
