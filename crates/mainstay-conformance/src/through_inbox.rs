//! The outbox's cases over the inbox: a fixture whose "outbox" is the inbox's queue, and whose enqueues are received under a key of
//! their own. So what the engine promises is shown for the inbox by the very cases that show it for the outbox.

#![allow(clippy::expect_used, reason = "a case fails by panicking")]

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Actor, Audit, AuditEvent, AuditId};
use mainstay_core::fanout::{Fanout, FanoutSlice, Slice};
use mainstay_core::fleet::Connect;
use mainstay_core::inbox::{ContentHash, Guard, Inbox, InboxKey, Incoming, PreparedIncoming, Received};
use mainstay_core::join::{Joins, NewJoin};
use mainstay_core::lease::Lease;
use mainstay_core::operation::{NewOperation, OperationId, Operations};
use mainstay_core::outbox::{
    Enqueued, Message, MessageExport, MessageFilter, Outbox, OutboxMessage, OutboxStats, Page, PausedTopic,
    PreparedMessage, Retention,
};
use mainstay_core::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Context, Settled, Settlement};
use mainstay_core::store::{
    Agenda, AuditStore, Capabilities, FanoutStore, HealthStore, InboxStore, JobStore, JoinStore, LeaseStore,
    Names, OperationStore, OutboxStore, Provider, Queue, QueueStore, SchemaStore, StoreTransaction,
    TimerStore, WaitRequest, Wake,
};
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{JoinId, OwnerToken, Result, WorkItemId};

use crate::fixture::{Affliction, End, Fixture, Lacking, Metered, Tenant};
use crate::session::Session;

/// Where the messages of these cases come from.
const SOURCE: &str = "conformance";

/// A fixture whose outbox is the inbox.
pub(crate) struct ThroughInbox<'a>(pub(crate) &'a dyn Fixture);

fn over(provider: Arc<dyn Provider>) -> Arc<dyn Provider> {
    Arc::new(InboxProvider(provider))
}

#[async_trait]
impl Fixture for ThroughInbox<'_> {
    fn provider_name(&self) -> &'static str {
        self.0.provider_name()
    }

    fn hears_of_enqueues(&self) -> bool {
        self.0.hears_of_enqueues()
    }

    async fn provider(&self) -> Arc<dyn Provider> {
        over(self.0.provider().await)
    }

    async fn second(&self) -> Arc<dyn Provider> {
        over(self.0.second().await)
    }

    async fn metered(&self) -> Metered {
        let Metered { provider, visits } = self.0.metered().await;
        Metered { provider: over(provider), visits }
    }

    async fn undeployed(&self) -> Arc<dyn Provider> {
        over(self.0.undeployed().await)
    }

    async fn with_names(&self, names: Names) -> Arc<dyn Provider> {
        over(self.0.with_names(names).await)
    }

    async fn advance(&self, names: &Names, by: Duration) {
        self.0.advance(names, by).await;
    }

    async fn set_back(&self, names: &Names, by: Duration) {
        self.0.set_back(names, by).await;
    }

    async fn contents(&self, names: &Names) -> String {
        self.0.contents(names).await
    }

    async fn objects(&self, names: &Names) -> BTreeSet<String> {
        self.0.objects(names).await
    }

    async fn session(&self, names: &Names, _: Queue) -> Result<Box<dyn Session>, Lacking> {
        self.0.session(names, Queue::Inbox).await
    }

    async fn scans_of_a_claim(&self, names: &Names, _: Queue) -> Result<Vec<String>, Lacking> {
        self.0.scans_of_a_claim(names, Queue::Inbox).await
    }

    async fn record_step(&self, names: &Names, version: i32, checksum: &str, oldest_program: i32) {
        self.0.record_step(names, version, checksum, oldest_program).await;
    }

    async fn transact(
        &self,
        outbox: &Outbox,
        note: &str,
        messages: Vec<Message>,
        end: End,
    ) -> Result<Vec<Enqueued>> {
        self.0.transact(outbox, note, messages, end).await
    }

    async fn guarded(&self, lease: &Lease, note: &str, end: End) -> Result<()> {
        self.0.guarded(lease, note, end).await
    }

    async fn complete_guarded(&self, context: &Context, lease: &Lease, note: &str) -> Result<()> {
        self.0.complete_guarded(context, lease, note).await
    }

    async fn columns(&self, names: &Names, table: &str) -> BTreeSet<String> {
        self.0.columns(names, table).await
    }

    async fn start_joined(
        &self,
        joins: &Joins,
        outbox: &Outbox,
        join: NewJoin,
        messages: Vec<Message>,
        end: End,
    ) -> Result<JoinId> {
        self.0.start_joined(joins, outbox, join, messages, end).await
    }

    async fn schedule(&self, timers: &Timers, note: &str, timer: NewTimer, end: End) -> Result<Enqueued> {
        self.0.schedule(timers, note, timer, end).await
    }

    async fn receive(
        &self,
        inbox: &Inbox,
        note: &str,
        incoming: Vec<Incoming>,
        end: End,
    ) -> Result<Vec<Received>> {
        self.0.receive(inbox, note, incoming, end).await
    }

    async fn complete_slice_in(
        &self,
        fanout: &Fanout,
        slice: &FanoutSlice,
        at: Timestamp,
        note: &str,
        end: End,
    ) -> Result<bool> {
        self.0.complete_slice_in(fanout, slice, at, note, end).await
    }

    async fn complete_slice(
        &self,
        context: &Context,
        slice: &Slice,
        at: Timestamp,
        note: &str,
        end: End,
    ) -> Result<()> {
        self.0.complete_slice(context, slice, at, note, end).await
    }

    async fn complete_guard(&self, guard: &Guard, note: &str, end: End) -> Result<()> {
        self.0.complete_guard(guard, note, end).await
    }

    async fn record(&self, audit: &Audit, note: &str, event: AuditEvent, end: End) -> Result<AuditId> {
        self.0.record(audit, note, event, end).await
    }

    async fn track(
        &self,
        operations: &Operations,
        note: &str,
        new: NewOperation,
        end: End,
    ) -> Result<OperationId> {
        self.0.track(operations, note, new, end).await
    }

    async fn tamper_with_audit(&self, names: &Names) -> Vec<Option<String>> {
        self.0.tamper_with_audit(names).await
    }

    async fn write_note(&self, transaction: &mut dyn StoreTransaction, note: &str) {
        self.0.write_note(transaction, note).await;
    }

    async fn complete(&self, context: &Context, note: &str, follow_up: Message) -> Result<()> {
        self.0.complete(context, note, follow_up).await
    }

    async fn notes(&self) -> Vec<String> {
        self.0.notes().await
    }

    async fn least_privilege(&self) -> Result<Arc<dyn Provider>, Lacking> {
        self.0.least_privilege().await.map(over)
    }

    async fn without_rights(&self) -> Result<Arc<dyn Provider>, Lacking> {
        self.0.without_rights().await.map(over)
    }

    async fn encrypted(&self) -> Result<(Arc<dyn Provider>, bool), Lacking> {
        self.0.encrypted().await.map(|(provider, encrypted)| (over(provider), encrypted))
    }

    async fn tenant(&self, id: &str) -> Tenant {
        self.0.tenant(id).await
    }

    async fn bare_tenant(&self, id: &str) -> Tenant {
        self.0.bare_tenant(id).await
    }

    fn connector(&self) -> Arc<dyn Connect> {
        self.0.connector()
    }

    async fn afflict(&self, tenant: &Tenant, affliction: Affliction) -> Result<(), Lacking> {
        self.0.afflict(tenant, affliction).await
    }

    async fn heal(&self, tenant: &Tenant) {
        self.0.heal(tenant).await;
    }

    async fn takes_any_name(&self) -> Result<(), Lacking> {
        self.0.takes_any_name().await
    }

    fn object_of(&self, function: &str) -> String {
        self.0.object_of(function)
    }

    fn can_say(&self, function: &str, arguments: &[Option<&str>]) -> bool {
        self.0.can_say(function, arguments)
    }

    async fn call(
        &self,
        names: &Names,
        function: &str,
        arguments: &[Option<&str>],
    ) -> Result<Vec<String>, String> {
        self.0.call(names, function, arguments).await
    }
}

struct InboxProvider(Arc<dyn Provider>);

#[async_trait]
impl Provider for InboxProvider {
    fn kind(&self) -> &'static str {
        self.0.kind()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore> {
        match queue {
            Queue::Outbox => Arc::new(Receiving { queue: self.0.queue(Queue::Inbox), inbox: self.0.inbox() }),
            other => self.0.queue(other),
        }
    }

    fn joins(&self) -> Arc<dyn JoinStore> {
        self.0.joins()
    }
    fn inbox(&self) -> Arc<dyn InboxStore> {
        self.0.inbox()
    }

    fn leases(&self) -> Arc<dyn LeaseStore> {
        self.0.leases()
    }

    fn timers(&self) -> Arc<dyn TimerStore> {
        self.0.timers()
    }

    fn fanout(&self) -> Arc<dyn FanoutStore> {
        self.0.fanout()
    }

    fn jobs(&self) -> Arc<dyn JobStore> {
        self.0.jobs()
    }

    fn audit(&self) -> Arc<dyn AuditStore> {
        self.0.audit()
    }

    fn operations(&self) -> Arc<dyn OperationStore> {
        self.0.operations()
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        self.0.health()
    }

    fn schema(&self) -> Arc<dyn SchemaStore> {
        self.0.schema()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.0.now().await
    }

    async fn agenda(&self) -> Result<Agenda> {
        self.0.agenda().await
    }

    async fn allow_connections(&self, connections: usize) {
        self.0.allow_connections(connections).await;
    }

    fn open_connections(&self) -> usize {
        self.0.open_connections()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}

/// The inbox's queue, with enqueues that go through the ledger.
struct Receiving {
    queue: Arc<dyn OutboxStore>,
    inbox: Arc<dyn InboxStore>,
}

#[async_trait]
impl QueueStore for Receiving {
    fn identifier(&self) -> &str {
        self.queue.identifier()
    }

    fn capabilities(&self) -> Capabilities {
        self.queue.capabilities()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        self.queue.claim(request).await
    }

    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        self.queue.settle(owner, settlements).await
    }

    async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        self.queue.renew(owner, claims, lease).await
    }

    async fn reap_expired(&self) -> Result<u64> {
        self.queue.reap_expired().await
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.queue.wait(request).await
    }

    async fn leave(&self, consumer: OwnerToken) {
        self.queue.leave(consumer).await;
    }

    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        self.queue.begin().await
    }
}

#[async_trait]
impl OutboxStore for Receiving {
    async fn enqueue(&self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let incoming = messages.iter().map(|message| {
            let key = InboxKey::new(SOURCE, message.message().to_string())?;
            Ok(PreparedIncoming::new(key, message.clone(), ContentHash::of(message.payload())))
        });
        let received = self.inbox.enqueue(&incoming.collect::<Result<Vec<_>>>()?).await?;
        let enqueued = messages.iter().zip(received).map(|(message, received)| Enqueued {
            work_item: received.work_item.expect("what was received has a row in the queue"),
            message: message.message(),
            added: !received.outcome.is_duplicate(),
        });
        Ok(enqueued.collect())
    }

    async fn get(&self, id: WorkItemId) -> Result<Option<OutboxMessage>> {
        self.queue.get(id).await
    }

    async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<OutboxMessage>> {
        self.queue.list(filter, page).await
    }

    async fn export(&self, filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        self.queue.export(filter).await
    }

    async fn cancel(&self, ids: &[WorkItemId], by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        self.queue.cancel(ids, by).await
    }

    async fn requeue(&self, ids: &[WorkItemId], by: &Actor) -> Result<Vec<WorkItemId>> {
        self.queue.requeue(ids, by).await
    }

    async fn requeue_where(&self, filter: &MessageFilter, limit: u32, by: &Actor) -> Result<Vec<WorkItemId>> {
        self.queue.requeue_where(filter, limit, by).await
    }

    async fn release_key(&self, key: &str, by: &Actor) -> Result<bool> {
        self.queue.release_key(key, by).await
    }

    async fn pause(&self, topic: &str, reason: Option<&str>, by: &Actor) -> Result<bool> {
        self.queue.pause(topic, reason, by).await
    }

    async fn resume(&self, topic: &str, by: &Actor) -> Result<bool> {
        self.queue.resume(topic, by).await
    }

    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.queue.paused().await
    }

    async fn stats(&self) -> Result<OutboxStats> {
        self.queue.stats().await
    }

    async fn backlog(&self) -> Result<OutboxStats> {
        self.queue.backlog().await
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        self.queue.purge(retention, by).await
    }

    async fn forward(&self, owner: OwnerToken, batch: u32) -> Result<Vec<WorkItemId>> {
        self.queue.forward(owner, batch).await
    }

    fn as_any(&self) -> &dyn Any {
        self.queue.as_any()
    }
}
