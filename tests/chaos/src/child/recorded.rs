//! A provider that records every call.
//!
//! It stands between the library and a real provider, so that the history has the calls that the library's own loops make:
//! claims, settles, renewals, promotions.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay::Actor;
use mainstay::Result;
use mainstay::id::{OwnerToken, WorkItemId};
use mainstay::outbox::{
    Enqueued, MessageExport, MessageFilter, OutboxMessage, OutboxStats, Page, PausedTopic, PreparedMessage,
    Retention,
};
use mainstay::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Outcome, Settled, Settlement};
use mainstay::store::{
    Agenda, AuditStore, Capabilities, DiagnosisStore, FanoutStore, HealthStore, InboxStore, JobStore,
    JoinStore, LeaseStore, OperationStore, OutboxStore, Provider, Queue, QueueStore, SchemaStore,
    StoreTransaction, TimerStore, WaitRequest, Wake,
};
use uuid::Uuid;

use crate::history::{
    Answer, Call, Claim, Ending, Item, Outcome as RecordedOutcome, QueueName, Recorder, Rejection, Sent,
    Within,
};

use super::payload::Payload;
use super::recorded_jobs::RecordedJobs;
use super::recorded_leases::RecordedLeases;
use super::trouble::record;

/// A provider that records every call.
pub(crate) struct Recorded {
    inner: Arc<dyn Provider>,
    recorder: Arc<Recorder>,
    owners: Owners,
}

/// Who claimed last from which queue. A process has one dispatcher for each, with one owner.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners(Arc<Mutex<HashMap<QueueName, Uuid>>>);

impl Owners {
    fn note(&self, queue: QueueName, owner: Uuid) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(queue, owner);
    }

    /// The owner of this process's claims.
    pub(crate) fn of(&self, queue: QueueName) -> Uuid {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&queue).copied().unwrap_or_default()
    }
}

impl Recorded {
    /// Records the calls of a provider.
    pub(crate) fn new(inner: Arc<dyn Provider>, recorder: Arc<Recorder>) -> Self {
        Self { inner, recorder, owners: Owners::default() }
    }

    /// Who claims.
    pub(crate) fn owners(&self) -> Owners {
        self.owners.clone()
    }
}

/// A queue as a history names it.
fn queue_name(queue: Queue) -> QueueName {
    match queue {
        Queue::Outbox => QueueName::Outbox,
        Queue::Inbox => QueueName::Inbox,
        Queue::Timers => QueueName::Timers,
        Queue::JobRuns => QueueName::Runs,
    }
}

#[async_trait]
impl Provider for Recorded {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::new(RecordedQueue {
            inner: self.inner.queue(queue),
            recorder: Arc::clone(&self.recorder),
            queue: queue_name(queue),
            owners: self.owners.clone(),
        })
    }
    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::new(RecordedLeases::new(self.inner.leases(), Arc::clone(&self.recorder)))
    }
    fn timers(&self) -> Arc<dyn TimerStore> {
        self.inner.timers()
    }
    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::new(RecordedJobs::new(self.inner.jobs(), Arc::clone(&self.recorder)))
    }
    fn joins(&self) -> Arc<dyn JoinStore> {
        self.inner.joins()
    }
    fn fanout(&self) -> Arc<dyn FanoutStore> {
        self.inner.fanout()
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
    fn diagnosis(&self) -> Option<Arc<dyn DiagnosisStore>> {
        self.inner.diagnosis()
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
    async fn sever_connections(&self) {
        self.inner.sever_connections().await;
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}

struct RecordedQueue {
    inner: Arc<dyn OutboxStore>,
    recorder: Arc<Recorder>,
    queue: QueueName,
    owners: Owners,
}

fn claims(handles: &[ClaimHandle]) -> Vec<Claim> {
    handles.iter().map(claim).collect()
}

/// A claim for the history.
pub(crate) fn claim(handle: &ClaimHandle) -> Claim {
    Claim { id: handle.id().as_uuid(), generation: handle.generation() }
}

fn outcome(outcome: &Outcome) -> RecordedOutcome {
    match outcome {
        Outcome::Ack => RecordedOutcome::Ack,
        Outcome::Abandon { .. } => RecordedOutcome::Abandon,
        Outcome::Release { .. } => RecordedOutcome::Release,
        Outcome::Reject { .. } => RecordedOutcome::Reject,
        Outcome::Fail { .. } => RecordedOutcome::Fail,
    }
}

fn uuids(ids: &[WorkItemId]) -> Vec<Uuid> {
    ids.iter().map(WorkItemId::as_uuid).collect()
}

fn changed(settled: &Settled) -> Answer {
    Answer::Changed { changed: uuids(&settled.changed), stale: uuids(&settled.stale) }
}

fn claimed(batch: &ClaimBatch) -> Answer {
    let item = |item: &mainstay::queue::Claimed| Item {
        id: item.id().as_uuid(),
        message: item.message_id.as_uuid(),
        generation: item.handle.generation(),
        attempt: item.attempt,
        topic: item.topic.clone(),
        key: item.ordering_key.clone(),
        marker: Payload::marker_of(&item.payload),
        claimed_at: Some(item.claimed_at.as_microsecond()),
        until: Some(item.locked_until.as_microsecond()),
    };
    let rejection = |rejected: &mainstay::queue::Rejected| Rejection {
        id: rejected.id.as_uuid(),
        reason: format!("{:?}", rejected.reason),
    };
    Answer::Claimed {
        items: batch.items.iter().map(item).collect(),
        rejected: batch.rejected.iter().map(rejection).collect(),
    }
}

/// A message for the history.
pub(crate) fn sent(message: &PreparedMessage) -> Sent {
    use mainstay::outbox::When;
    let delay_ms = match message.due() {
        Some(When::In(delay)) => delay.as_millis() as u64,
        _ => 0,
    };
    Sent {
        id: message.work_item().as_uuid(),
        topic: message.topic().to_owned(),
        key: message.ordering_key().map(str::to_owned),
        marker: Payload::marker_of(message.payload()),
        delay_ms,
        join: message.joins().first().map(mainstay::id::JoinId::as_uuid),
        idempotency_key: message.idempotency_key().map(str::to_owned),
    }
}

/// The answer to an enqueue.
pub(crate) fn enqueued(sent: &[Uuid], results: &[Enqueued]) -> Answer {
    let duplicates =
        sent.iter().zip(results).filter(|(_, result)| !result.added).map(|(id, _)| *id).collect();
    Answer::Enqueued { ids: results.iter().map(|result| result.work_item.as_uuid()).collect(), duplicates }
}

#[async_trait]
impl QueueStore for RecordedQueue {
    fn identifier(&self) -> &str {
        self.inner.identifier()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        let owner = request.owner.as_uuid();
        self.owners.note(self.queue, owner);
        let invoked = self.recorder.invoke(Call::Claim {
            queue: self.queue,
            owner,
            lease_ms: request.lease.as_millis() as u64,
            limit: request.delivery_limit,
        });
        let result = self.inner.claim(request).await;
        record(invoked, &result, claimed);
        result
    }
    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        let ending = |settlement: &Settlement| Ending {
            claim: claim(&settlement.claim),
            outcome: outcome(&settlement.outcome),
        };
        let ends = settlements.iter().map(ending).collect();
        let invoked = self.recorder.invoke(Call::Settle { queue: self.queue, owner: owner.as_uuid(), ends });
        let result = self.inner.settle(owner, settlements).await;
        record(invoked, &result, changed);
        result
    }
    async fn renew(&self, owner: OwnerToken, handles: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        let invoked = self.recorder.invoke(Call::Renew {
            queue: self.queue,
            owner: owner.as_uuid(),
            claims: claims(handles),
            lease_ms: lease.as_millis() as u64,
        });
        let result = self.inner.renew(owner, handles, lease).await;
        record(invoked, &result, changed);
        result
    }
    async fn reap_expired(&self) -> Result<u64> {
        let invoked = self.recorder.invoke(Call::Reap { queue: self.queue });
        let result = self.inner.reap_expired().await;
        record(invoked, &result, |count| Answer::Count(*count));
        result
    }
    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.inner.wait(request).await
    }
    async fn leave(&self, consumer: OwnerToken) {
        self.inner.leave(consumer).await;
    }
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        self.inner.begin().await
    }
}

#[async_trait]
impl OutboxStore for RecordedQueue {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let sent: Vec<Sent> = messages.iter().map(sent).collect();
        let ids: Vec<Uuid> = sent.iter().map(|sent| sent.id).collect();
        let invoked = self.recorder.invoke(match self.queue {
            QueueName::Timers => Call::Schedule { messages: sent },
            _ => Call::Enqueue { messages: sent, within: Within::Alone },
        });
        let result = self.inner.enqueue(messages).await;
        record(invoked, &result, |results| enqueued(&ids, results));
        result
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
        let invoked = self.recorder.invoke(match self.queue {
            QueueName::Timers => Call::CancelTimers { ids: uuids(ids) },
            _ => Call::Cancel { ids: uuids(ids) },
        });
        let result = self.inner.cancel(ids, by).await;
        record(invoked, &result, |ids| Answer::Changed { changed: uuids(ids), stale: Vec::new() });
        result
    }
    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        let invoked = self.recorder.invoke(Call::Requeue { ids: uuids(ids) });
        let result = self.inner.requeue(ids, by).await;
        record(invoked, &result, |ids| Answer::Changed { changed: uuids(ids), stale: Vec::new() });
        result
    }
    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        let invoked = self.recorder.invoke(Call::Requeue { ids: Vec::new() });
        let result = self.inner.requeue_where(filter, limit, by).await;
        record(invoked, &result, |ids| Answer::Changed { changed: uuids(ids), stale: Vec::new() });
        result
    }
    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        let invoked = self.recorder.invoke(Call::ReleaseKey { key: key.to_owned() });
        let result = self.inner.release_key(key, by).await;
        record(invoked, &result, |released| Answer::Flag(*released));
        result
    }
    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        let invoked = self.recorder.invoke(Call::Pause { topic: topic.to_owned() });
        let result = self.inner.pause(topic, reason, by).await;
        record(invoked, &result, |paused| Answer::Flag(*paused));
        result
    }
    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        let invoked = self.recorder.invoke(Call::Resume { topic: topic.to_owned() });
        let result = self.inner.resume(topic, by).await;
        record(invoked, &result, |resumed| Answer::Flag(*resumed));
        result
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
        let (QueueName::Outbox, Some(age)) = (self.queue, retention.done) else {
            return self.inner.purge(retention, by).await;
        };
        let invoked = self.recorder.invoke(Call::Purge { age_ms: age.as_millis() as u64 });
        let result = self.inner.purge(retention, by).await;
        record(invoked, &result, |count| Answer::Count(*count));
        result
    }
    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        let invoked = self.recorder.invoke(Call::Forward { queue: self.queue, owner: owner.as_uuid() });
        let result = self.inner.forward(owner, batch).await;
        record(invoked, &result, |ids| Answer::Changed { changed: uuids(ids), stale: Vec::new() });
        result
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
