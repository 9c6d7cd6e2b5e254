//! A store that hands out so many messages, takes everything, and keeps nothing: what is left is Mainstay's own work.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay::audit::Actor;
use mainstay::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseRecord, LeaseRequest, LeasesRequest,
};
use mainstay::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage, Retention, When,
};
use mainstay::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Claimed, Settled, Settlement};
use mainstay::store::{
    Agenda, AuditStore, Capabilities, FanoutStore, HealthStore, InboxStore, JobStore, JoinStore,
    LeaseStore, OperationStore, OutboxStore, Provider, Queue, QueueStore, SchemaStatus, SchemaStore, StoreTransaction,
    TimerStore, WaitRequest, Wake,
};
use mainstay::{Error, ErrorKind, MessageId, OwnerToken, Result, WorkItemId};
use tokio::sync::Notify;

use super::audit::NoAudit;
use super::fanout::NoFanout;
use super::health::NoHealth;
use super::inbox::NoInbox;
use super::jobs::NoJobs;
use super::joins::NoJoins;
use super::operations::NoOperations;

pub(crate) const TOPIC: &str = "noop";

/// A database without one.
pub(crate) struct Nothing(Arc<Store>);

struct Store {
    /// Messages that can still be claimed, and that are not settled.
    left: AtomicU64,
    unsettled: AtomicU64,
    settled: Notify,
}

impl Nothing {
    pub(crate) fn with(messages: u64) -> Self {
        let (left, unsettled) = (AtomicU64::new(messages), AtomicU64::new(messages));
        Self(Arc::new(Store { left, unsettled, settled: Notify::new() }))
    }

    pub(crate) async fn until_settled(&self) {
        while self.0.unsettled.load(Ordering::Relaxed) > 0 {
            self.0.settled.notified().await;
        }
    }
}

pub(crate) fn unsupported<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "nothing", "there is no database"))
}

#[async_trait]
impl Provider for Nothing {
    fn kind(&self) -> &'static str {
        "nothing"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    fn queue(&self, _queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.0) as _
    }
    fn inbox(&self) -> Arc<dyn InboxStore> {
        Arc::new(NoInbox)
    }
    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.0) as _
    }
    fn fanout(&self) -> Arc<dyn FanoutStore> {
        Arc::new(NoFanout)
    }
    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::new(NoJobs)
    }
    fn joins(&self) -> Arc<dyn JoinStore> {
        Arc::new(NoJoins)
    }
    fn timers(&self) -> Arc<dyn TimerStore> {
        Arc::clone(&self.0) as _
    }
    fn audit(&self) -> Arc<dyn AuditStore> {
        Arc::new(NoAudit)
    }
    fn operations(&self) -> Arc<dyn OperationStore> {
        Arc::new(NoOperations)
    }
    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::new(NoHealth)
    }
    fn schema(&self) -> Arc<dyn SchemaStore> {
        Arc::clone(&self.0) as _
    }
    async fn now(&self) -> Result<Timestamp> {
        Ok(Timestamp::UNIX_EPOCH)
    }
    async fn agenda(&self) -> Result<Agenda> {
        Ok(Agenda::empty())
    }
    async fn allow_connections(&self, _: usize) {}

    fn open_connections(&self) -> usize {
        0
    }
    async fn close(&self) {}
}

#[async_trait]
impl TimerStore for Store {
    async fn reschedule(&self, _: WorkItemId, _: When, _: Option<&Actor>) -> Result<bool> {
        unsupported()
    }
    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        unsupported()
    }
}

#[async_trait]
impl SchemaStore for Store {
    async fn status(&self) -> Result<SchemaStatus> {
        Ok(SchemaStatus::Current { version: 1 })
    }
    async fn deploy_by(&self, _: &Actor) -> Result<SchemaStatus> {
        self.status().await
    }
    fn script(&self) -> String {
        String::new()
    }
}

#[async_trait]
impl QueueStore for Store {
    fn identifier(&self) -> &str {
        "nothing"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        // One thread: nobody comes between.
        let size = self.left.load(Ordering::Relaxed).min(u64::from(request.batch));
        self.left.fetch_sub(size, Ordering::Relaxed);
        let (now, until) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let claimed = |_| {
            let handle = ClaimHandle::new(WorkItemId::new(), 1);
            Claimed::new(handle, MessageId::new(), TOPIC.to_owned(), "x".repeat(200), 1, now, until)
        };
        Ok(ClaimBatch { items: (0..size).map(claimed).collect(), ..ClaimBatch::default() })
    }

    async fn settle(&self, _owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        self.unsettled.fetch_sub(settlements.len() as u64, Ordering::Relaxed);
        self.settled.notify_one();
        let changed = settlements.iter().map(|settlement| settlement.claim.id()).collect();
        Ok(Settled { changed, ..Settled::default() })
    }

    async fn renew(&self, _owner: OwnerToken, claims: &[ClaimHandle], _lease: Duration) -> Result<Settled> {
        Ok(Settled { changed: claims.iter().map(ClaimHandle::id).collect(), ..Settled::default() })
    }

    async fn reap_expired(&self) -> Result<u64> {
        Ok(0)
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        tokio::time::sleep(request.timeout).await;
        Ok(Wake::TimedOut)
    }

    async fn leave(&self, _consumer: OwnerToken) {}

    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        unsupported()
    }
}

#[async_trait]
impl OutboxStore for Store {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let taken = |message: &PreparedMessage| Enqueued {
            work_item: message.work_item(),
            message: message.message(),
            added: true,
        };
        Ok(messages.iter().map(taken).collect())
    }
    async fn get(&self, _id: WorkItemId) -> Result<Option<OutboxMessage>> {
        unsupported()
    }
    async fn list(&self, _filter: &MessageFilter, _page: Page) -> Result<Vec<OutboxMessage>> {
        unsupported()
    }
    async fn export(&self, _filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        unsupported()
    }
    async fn cancel(&self, _ids: &[WorkItemId], _by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        unsupported()
    }
    async fn requeue(&self, _ids: &[WorkItemId], _by: &Actor) -> Result<Vec<WorkItemId>> {
        unsupported()
    }
    async fn requeue_where(
        &self,
        _filter: &MessageFilter,
        _limit: u32,
        _by: &Actor,
    ) -> Result<Vec<WorkItemId>> {
        unsupported()
    }
    async fn release_key(&self, _key: &str, _by: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn pause(&self, _topic: &str, _reason: Option<&str>, _by: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn resume(&self, _topic: &str, _by: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        unsupported()
    }
    async fn stats(&self) -> Result<OutboxStats> {
        unsupported()
    }
    async fn backlog(&self) -> Result<OutboxStats> {
        unsupported()
    }
    async fn purge(&self, _retention: &Retention, _by: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
    async fn forward(&self, _owner: OwnerToken, _batch: u32) -> Result<Vec<WorkItemId>> {
        unsupported()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[async_trait]
impl LeaseStore for Store {
    fn identifier(&self) -> &str {
        QueueStore::identifier(self)
    }
    async fn acquire(&self, _: &LeaseRequest) -> Result<LeaseAnswer> {
        unsupported()
    }
    async fn renew(&self, _: &LeaseClaim, _: Duration) -> Result<Option<LeaseGrant>> {
        unsupported()
    }
    async fn release(&self, _: &LeaseClaim) -> Result<bool> {
        unsupported()
    }
    async fn acquire_many(&self, _: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        unsupported()
    }
    async fn renew_many(&self, _: &[LeaseClaim], _: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        unsupported()
    }
    async fn release_many(&self, _: &[LeaseClaim]) -> Result<Vec<bool>> {
        unsupported()
    }
    async fn get(&self, _: &str) -> Result<Option<LeaseRecord>> {
        unsupported()
    }
    async fn list(&self, _: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        unsupported()
    }
    async fn force_release(&self, _: &str, _: &Actor) -> Result<Option<String>> {
        unsupported()
    }
    async fn active(&self) -> Result<u64> {
        unsupported()
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}
