//! A provider for tests whose database answers only what a test sets. All other calls hang.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::audit::Actor;
use crate::error::{Error, Result};
use crate::fanout::*;
use crate::id::*;
use crate::job::*;
use crate::join::*;
use crate::lease::*;
use crate::outbox::*;
use crate::queue::*;
use crate::store::*;

/// The stores of such a provider. Leases are granted to every caller; all other calls hang.
#[derive(Default)]
pub(crate) struct Silent {
    calls: Mutex<Vec<&'static str>>,
    /// Wakes those that wait for a call.
    made: Notify,
    /// The answer to a fan-out's first call: its policy, or an error. Hangs without it.
    pub(crate) standing: Mutex<Option<Result<FanoutPolicy, &'static str>>>,
    /// What the next claim brings. Hangs without it.
    pub(crate) claimable: Mutex<Vec<Claimed>>,
    /// Claims and forwards are answered that bring nothing.
    pub(crate) idle: AtomicBool,
}

impl Silent {
    fn note(&self, call: &'static str) {
        self.calls.lock().unwrap().push(call);
        self.made.notify_waiters();
    }

    async fn asked<T>(&self, call: &'static str) -> T {
        self.note(call);
        std::future::pending().await
    }

    fn grant(&self, duration: Duration) -> LeaseGrant {
        let now = Timestamp::now();
        LeaseGrant { epoch: 1, fencing_token: 1, expires_at: now + duration, now }
    }

    /// How often a call was made.
    pub(crate) fn count(&self, call: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|made| **made == call).count()
    }

    /// Waits until a call was made so often. With a paused clock the time passes until it is.
    pub(crate) async fn reaches(&self, call: &str, count: usize) {
        loop {
            let made = self.made.notified();
            if self.count(call) >= count {
                return;
            }
            made.await;
        }
    }
}

/// The provider.
pub(crate) struct SilentProvider(pub(crate) Arc<Silent>);

#[async_trait]
impl QueueStore for Silent {
    fn identifier(&self) -> &str {
        "test"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    async fn claim(&self, _: &ClaimRequest) -> Result<ClaimBatch> {
        self.note("queue.claim");
        let items = std::mem::take(&mut *self.claimable.lock().unwrap());
        match items.is_empty() {
            true if !self.idle.load(Ordering::SeqCst) => std::future::pending().await,
            _ => Ok(ClaimBatch { items, rejected: Vec::new() }),
        }
    }
    async fn settle(&self, _owner: OwnerToken, _settlements: &[Settlement]) -> Result<Settled> {
        self.asked("queue.settle").await
    }
    async fn renew(&self, _owner: OwnerToken, _claims: &[ClaimHandle], _lease: Duration) -> Result<Settled> {
        self.asked("queue.renew").await
    }
    async fn reap_expired(&self) -> Result<u64> {
        self.asked("queue.reap_expired").await
    }
    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        request.within_limit("queue.wait", self.asked("queue.wait")).await
    }
    async fn leave(&self, _consumer: OwnerToken) {
        self.asked("queue.leave").await
    }
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>> {
        self.asked("queue.begin").await
    }
}

#[async_trait]
impl OutboxStore for Silent {
    async fn enqueue(&self, _messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        self.asked("outbox.enqueue").await
    }
    async fn get(&self, _id: WorkItemId) -> Result<Option<OutboxMessage>> {
        self.asked("outbox.get").await
    }
    async fn list(&self, _filter: &MessageFilter, _page: Page) -> Result<Vec<OutboxMessage>> {
        self.asked("outbox.list").await
    }
    async fn export(&self, _filter: &MessageFilter) -> Result<Box<dyn MessageExport>> {
        self.asked("outbox.export").await
    }
    async fn cancel(&self, _ids: &[WorkItemId], _by: Option<&Actor>) -> Result<Vec<WorkItemId>> {
        self.asked("outbox.cancel").await
    }
    async fn requeue(&self, _ids: &[WorkItemId], _by: &Actor) -> Result<Vec<WorkItemId>> {
        self.asked("outbox.requeue").await
    }
    async fn requeue_where(
        &self,
        _filter: &MessageFilter,
        _limit: u32,
        _by: &Actor,
    ) -> Result<Vec<WorkItemId>> {
        self.asked("outbox.requeue_where").await
    }
    async fn release_key(&self, _key: &str, _by: &Actor) -> Result<bool> {
        self.asked("outbox.release_key").await
    }
    async fn pause(&self, _topic: &str, _reason: Option<&str>, _by: &Actor) -> Result<bool> {
        self.asked("outbox.pause").await
    }
    async fn resume(&self, _topic: &str, _by: &Actor) -> Result<bool> {
        self.asked("outbox.resume").await
    }
    async fn paused(&self) -> Result<Vec<PausedTopic>> {
        self.asked("outbox.paused").await
    }
    async fn stats(&self) -> Result<OutboxStats> {
        self.asked("outbox.stats").await
    }
    async fn backlog(&self) -> Result<OutboxStats> {
        self.asked("outbox.backlog").await
    }
    async fn purge(&self, _retention: &Retention, _by: Option<&Actor>) -> Result<u64> {
        self.asked("outbox.purge").await
    }
    async fn forward(&self, _owner: OwnerToken, _batch: u32) -> Result<Vec<WorkItemId>> {
        if self.idle.load(Ordering::SeqCst) {
            self.note("outbox.forward");
            return Ok(Vec::new());
        }
        self.asked("outbox.forward").await
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[async_trait]
impl LeaseStore for Silent {
    fn identifier(&self) -> &str {
        "test"
    }
    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        self.note("lease.acquire");
        Ok(LeaseAnswer::Granted(self.grant(request.duration)))
    }
    async fn renew(&self, _: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        self.note("lease.renew");
        Ok(Some(self.grant(duration)))
    }
    async fn release(&self, _: &LeaseClaim) -> Result<bool> {
        self.note("lease.release");
        Ok(true)
    }
    async fn acquire_many(&self, _request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        self.asked("lease.acquire_many").await
    }
    async fn renew_many(
        &self,
        _claims: &[LeaseClaim],
        _duration: Duration,
    ) -> Result<Vec<Option<LeaseGrant>>> {
        self.asked("lease.renew_many").await
    }
    async fn release_many(&self, _claims: &[LeaseClaim]) -> Result<Vec<bool>> {
        self.asked("lease.release_many").await
    }
    async fn get(&self, _name: &str) -> Result<Option<LeaseRecord>> {
        self.asked("lease.get").await
    }
    async fn list(&self, _filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        self.asked("lease.list").await
    }
    async fn force_release(&self, _name: &str, _by: &Actor) -> Result<Option<String>> {
        self.asked("lease.force_release").await
    }
    async fn active(&self) -> Result<u64> {
        self.asked("lease.active").await
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

#[async_trait]
impl FanoutStore for Silent {
    fn identifier(&self) -> &str {
        "test"
    }
    async fn register(&self, _fanout: &PreparedFanout, _by: &Actor) -> Result<FanoutPolicy> {
        self.asked("fanout.register").await
    }
    async fn standing(&self, _: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        self.note("fanout.standing");
        let standing = self.standing.lock().unwrap().clone();
        match standing {
            None => std::future::pending().await,
            Some(Ok(policy)) => Ok(Some((policy, Timestamp::now()))),
            Some(Err(message)) => Err(Error::unanswered("fanout.standing", message)),
        }
    }
    async fn list(&self, _after: Option<&FanoutKey>, _limit: u32) -> Result<Vec<FanoutPolicy>> {
        self.asked("fanout.list").await
    }
    async fn set(&self, _policy: &FanoutPolicy, _by: &Actor) -> Result<Option<FanoutPolicy>> {
        self.asked("fanout.set").await
    }
    async fn request_run(&self, _key: &FanoutKey, _by: &Actor) -> Result<bool> {
        self.asked("fanout.request_run").await
    }
    async fn add_shards(&self, _key: &FanoutKey, _shards: &[String], _by: &Actor) -> Result<u64> {
        self.asked("fanout.add_shards").await
    }
    async fn forget_shard(&self, _key: &FanoutKey, _shard: &str, _by: &Actor) -> Result<bool> {
        self.asked("fanout.forget_shard").await
    }
    async fn delete(&self, _key: &FanoutKey, _by: &Actor) -> Result<Option<u64>> {
        self.asked("fanout.delete").await
    }
    async fn look(&self, _key: &FanoutKey, _shards: &[String]) -> Result<Vec<FanoutCursor>> {
        self.asked("fanout.look").await
    }
    async fn cursors(
        &self,
        _key: &FanoutKey,
        _after: Option<&str>,
        _limit: u32,
    ) -> Result<Vec<FanoutCursor>> {
        self.asked("fanout.cursors").await
    }
    async fn complete(&self, _key: &FanoutKey, _shard: &str, _at: Timestamp) -> Result<bool> {
        self.asked("fanout.complete").await
    }
    fn completion(&self, _key: &FanoutKey, _shard: &str, _at: Timestamp) -> StoreCall {
        unreachable!()
    }
    fn completed(&self, _answers: &[String]) -> Result<bool> {
        unreachable!()
    }
    fn claim(&self, _key: &FanoutKey, _version: i64, _slices: &[PlannedSlice]) -> StoreCall {
        unreachable!()
    }
    fn claimed(&self, _answers: &[String]) -> Result<Vec<String>> {
        unreachable!()
    }
    fn ran(
        &self,
        _key: &FanoutKey,
        _version: i64,
        _nominal: Timestamp,
        _requested: Option<Timestamp>,
    ) -> StoreCall {
        unreachable!()
    }
    async fn wait(&self, _key: &FanoutKey, _version: Option<i64>, _timeout: Duration) -> Result<Wake> {
        self.asked("fanout.wait").await
    }
}

#[async_trait]
impl JobStore for Silent {
    fn identifier(&self) -> &str {
        "test"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    async fn upsert(
        &self,
        _job: &PreparedJob,
        _expected: Expected,
        _by: &Actor,
    ) -> Result<crate::job::Registered> {
        self.asked("job.upsert").await
    }
    async fn delete(&self, _name: &str, _by: &Actor) -> Result<Option<u64>> {
        self.asked("job.delete").await
    }
    async fn set_enabled(&self, _name: &str, _enabled: bool, _by: &Actor) -> Result<bool> {
        self.asked("job.set_enabled").await
    }
    async fn get(&self, _name: &str) -> Result<Option<Job>> {
        self.asked("job.get").await
    }
    async fn list(&self, _after: Option<&str>, _limit: u32) -> Result<Vec<Job>> {
        self.asked("job.list").await
    }
    async fn due(&self, _owner: OwnerToken, _after: Option<&Job>, _limit: u32) -> Result<DueJobs> {
        self.asked("job.due").await
    }
    async fn advance(&self, _advance: &Advance) -> Result<Option<Advanced>> {
        self.asked("job.advance").await
    }
    async fn reject(&self, _name: &str, _version: i64, _problem: &str) -> Result<bool> {
        self.asked("job.reject").await
    }
    async fn dispatch(&self, _owner: OwnerToken, _batch: u32) -> Result<Vec<Dispatched>> {
        self.asked("job.dispatch").await
    }
    async fn collect(&self, _runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        self.asked("job.collect").await
    }
    async fn ended(&self, _after: Option<&RunPlace>, _batch: u32) -> Result<RunsLookedAt> {
        self.asked("job.ended").await
    }
    async fn trigger(&self, _name: &str, _by: &Actor) -> Result<JobRun> {
        self.asked("job.trigger").await
    }
    async fn runs(&self, _filter: &RunFilter, _page: Page) -> Result<Vec<JobRun>> {
        self.asked("job.runs").await
    }
    async fn run(&self, _id: WorkItemId) -> Result<Option<JobRun>> {
        self.asked("job.run").await
    }
    async fn started(&self, _id: WorkItemId) -> Result<bool> {
        self.asked("job.started").await
    }
    async fn record_output(&self, _id: WorkItemId, _output: &str) -> Result<bool> {
        self.asked("job.record_output").await
    }
    async fn purge(&self, _retention: &Retention, _by: Option<&Actor>) -> Result<u64> {
        self.asked("job.purge").await
    }
    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        self.asked("job.next_nominal").await
    }
    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        request.within_limit("job.wait", self.asked("job.wait")).await
    }
    async fn leave(&self, _consumer: OwnerToken) {
        self.asked("job.leave").await
    }
}

#[async_trait]
impl JoinStore for Silent {
    fn identifier(&self) -> &str {
        "test"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    fn starting(&self, _join: &PreparedJoin, _by: Option<&Actor>) -> StoreCall {
        unreachable!()
    }
    fn started(&self, _join: JoinId, _answers: &[String]) -> Result<()> {
        unreachable!()
    }
    fn attaching(&self, _join: JoinId, _items: &[WorkItemId], _by: Option<&Actor>) -> StoreCall {
        unreachable!()
    }
    fn attached(&self, _join: JoinId, _answers: &[String]) -> Result<Attached> {
        unreachable!()
    }
    fn reporting(
        &self,
        _join: JoinId,
        _item: WorkItemId,
        _step: crate::join::Step,
        _by: Option<&Actor>,
    ) -> StoreCall {
        unreachable!()
    }
    fn reported(&self, _join: JoinId, _item: WorkItemId, _answers: &[String]) -> Result<Reported> {
        unreachable!()
    }
    async fn run(&self, _call: StoreCall) -> Result<Vec<String>> {
        self.asked("join.run").await
    }
    async fn get(&self, _id: JoinId) -> Result<Option<Join>> {
        self.asked("join.get").await
    }
    async fn list(&self, _filter: &JoinFilter, _page: JoinPage) -> Result<Vec<Join>> {
        self.asked("join.list").await
    }
    async fn members(&self, _id: JoinId, _page: MemberPage) -> Result<Vec<JoinMember>> {
        self.asked("join.members").await
    }
    async fn of_item(&self, _item: WorkItemId) -> Result<Vec<JoinId>> {
        self.asked("join.of_item").await
    }
    async fn cancel(&self, _id: JoinId, _by: &Actor) -> Result<CancelledJoin> {
        self.asked("join.cancel").await
    }
    async fn expire(&self, _limit: u32) -> Result<Vec<Counted>> {
        self.asked("join.expire").await
    }
    async fn next_deadline(&self) -> Result<Option<Duration>> {
        self.asked("join.next_deadline").await
    }
    async fn stats(&self) -> Result<JoinStats> {
        self.asked("join.stats").await
    }
    async fn purge(&self, _age: Duration, _batch: u32, _by: Option<&Actor>) -> Result<u64> {
        self.asked("join.purge").await
    }
}

#[async_trait]
impl TimerStore for Silent {
    async fn reschedule(&self, _id: WorkItemId, _due: When, _by: Option<&Actor>) -> Result<bool> {
        self.asked("timer.reschedule").await
    }
    async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        self.asked("timer.next_event_time").await
    }
}

#[async_trait]
impl Provider for SilentProvider {
    fn kind(&self) -> &'static str {
        "test"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    fn queue(&self, _queue: Queue) -> Arc<dyn OutboxStore> {
        Arc::clone(&self.0) as Arc<dyn OutboxStore>
    }
    fn leases(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.0) as Arc<dyn LeaseStore>
    }
    fn timers(&self) -> Arc<dyn TimerStore> {
        Arc::clone(&self.0) as Arc<dyn TimerStore>
    }
    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::clone(&self.0) as Arc<dyn JobStore>
    }
    fn joins(&self) -> Arc<dyn JoinStore> {
        Arc::clone(&self.0) as Arc<dyn JoinStore>
    }
    fn fanout(&self) -> Arc<dyn FanoutStore> {
        Arc::clone(&self.0) as Arc<dyn FanoutStore>
    }
    fn inbox(&self) -> Arc<dyn InboxStore> {
        unreachable!()
    }
    fn audit(&self) -> Arc<dyn AuditStore> {
        unreachable!()
    }
    fn operations(&self) -> Arc<dyn OperationStore> {
        unreachable!()
    }
    fn health(&self) -> Arc<dyn HealthStore> {
        unreachable!()
    }
    fn schema(&self) -> Arc<dyn SchemaStore> {
        unreachable!()
    }
    async fn now(&self) -> Result<Timestamp> {
        self.0.asked("now").await
    }
    async fn agenda(&self) -> Result<Agenda> {
        self.0.asked("agenda").await
    }
    async fn allow_connections(&self, _connections: usize) {}
    fn open_connections(&self) -> usize {
        0
    }
    async fn close(&self) {}
}
