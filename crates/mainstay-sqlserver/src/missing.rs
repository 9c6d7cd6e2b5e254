//! What this provider has not yet: each call says so, and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use mainstay_core::audit::Actor;
use mainstay_core::fanout::{FanoutCursor, FanoutKey, FanoutPolicy, PlannedSlice, PreparedFanout};
use mainstay_core::health::{LaneSeen, LeasesSeen, Patience, ScheduleSeen, WorkSeen};
use mainstay_core::job::{Expected, Job, JobRun, PreparedJob, Registered, RunFilter};
use mainstay_core::join::{
    Attached, CancelledJoin, Counted, Join, JoinFilter, JoinMember, JoinPage, JoinStats, MemberPage,
    PreparedJoin, Reported, Step,
};
use mainstay_core::outbox::{Page, Retention};
use mainstay_core::store::{
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, FanoutStore, HealthStore, JobStore,
    JoinStore, Queue, RunPlace, RunsLookedAt, StoreCall, WaitRequest, Wake,
};
use mainstay_core::{Error, ErrorKind, JoinId, OwnerToken, Result, WorkItemId};

/// A store that is not there.
pub(crate) struct Missing {
    pub(crate) identifier: &'static str,
}

pub(crate) fn missing(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unsupported, operation, "the SQL Server provider does not have this yet")
}

/// One that no transaction runs.
fn call(operation: &'static str) -> StoreCall {
    StoreCall {
        operation,
        store: "SQL Server (not there yet)".to_owned(),
        origin: Arc::new(()),
        steps: Vec::new(),
    }
}

#[async_trait]
impl JobStore for Missing {
    fn identifier(&self) -> &str {
        self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        crate::provider::capabilities()
    }

    async fn upsert(&self, _job: &PreparedJob, _expected: Expected, _by: &Actor) -> Result<Registered> {
        Err(missing("job.upsert"))
    }

    async fn delete(&self, _name: &str, _by: &Actor) -> Result<Option<u64>> {
        Err(missing("job.delete"))
    }

    async fn set_enabled(&self, _name: &str, _enabled: bool, _by: &Actor) -> Result<bool> {
        Err(missing("job.set_enabled"))
    }

    async fn get(&self, _name: &str) -> Result<Option<Job>> {
        Err(missing("job.get"))
    }

    async fn list(&self, _after: Option<&str>, _limit: u32) -> Result<Vec<Job>> {
        Err(missing("job.list"))
    }

    async fn due(&self, _owner: OwnerToken, _after: Option<&Job>, _limit: u32) -> Result<DueJobs> {
        Err(missing("job.due"))
    }

    async fn advance(&self, _advance: &Advance) -> Result<Option<Advanced>> {
        Err(missing("job.advance"))
    }

    async fn reject(&self, _name: &str, _version: i64, _problem: &str) -> Result<bool> {
        Err(missing("job.reject"))
    }

    async fn dispatch(&self, _owner: OwnerToken, _batch: u32) -> Result<Vec<Dispatched>> {
        Err(missing("job.dispatch"))
    }

    async fn collect(&self, _runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        Err(missing("job.collect"))
    }

    async fn ended(&self, _after: Option<&RunPlace>, _batch: u32) -> Result<RunsLookedAt> {
        Err(missing("job.ended"))
    }

    async fn trigger(&self, _name: &str, _by: &Actor) -> Result<JobRun> {
        Err(missing("job.trigger"))
    }

    async fn runs(&self, _filter: &RunFilter, _page: Page) -> Result<Vec<JobRun>> {
        Err(missing("job.runs"))
    }

    async fn run(&self, _id: WorkItemId) -> Result<Option<JobRun>> {
        Err(missing("job.run"))
    }

    async fn started(&self, _id: WorkItemId) -> Result<bool> {
        Err(missing("job.started"))
    }

    async fn record_output(&self, _id: WorkItemId, _output: &str) -> Result<bool> {
        Err(missing("job.record_output"))
    }

    async fn purge(&self, _retention: &Retention, _by: Option<&Actor>) -> Result<u64> {
        Err(missing("job.purge"))
    }

    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        Err(missing("job.next_nominal"))
    }

    async fn wait(&self, _request: &WaitRequest) -> Result<Wake> {
        Err(missing("job.wait"))
    }

    async fn leave(&self, _consumer: OwnerToken) {}
}

#[async_trait]
impl JoinStore for Missing {
    fn identifier(&self) -> &str {
        self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        crate::provider::capabilities()
    }

    fn starting(&self, _join: &PreparedJoin, _by: Option<&Actor>) -> StoreCall {
        call("join.starting")
    }

    fn started(&self, _join: JoinId, _answers: &[String]) -> Result<()> {
        Err(missing("join.started"))
    }

    fn attaching(&self, _join: JoinId, _items: &[WorkItemId], _by: Option<&Actor>) -> StoreCall {
        call("join.attaching")
    }

    fn attached(&self, _join: JoinId, _answers: &[String]) -> Result<Attached> {
        Err(missing("join.attached"))
    }

    fn reporting(&self, _join: JoinId, _item: WorkItemId, _step: Step, _by: Option<&Actor>) -> StoreCall {
        call("join.reporting")
    }

    fn reported(&self, _join: JoinId, _item: WorkItemId, _answers: &[String]) -> Result<Reported> {
        Err(missing("join.reported"))
    }

    async fn run(&self, _call: StoreCall) -> Result<Vec<String>> {
        Err(missing("join.run"))
    }

    async fn get(&self, _id: JoinId) -> Result<Option<Join>> {
        Err(missing("join.get"))
    }

    async fn list(&self, _filter: &JoinFilter, _page: JoinPage) -> Result<Vec<Join>> {
        Err(missing("join.list"))
    }

    async fn members(&self, _id: JoinId, _page: MemberPage) -> Result<Vec<JoinMember>> {
        Err(missing("join.members"))
    }

    async fn of_item(&self, _item: WorkItemId) -> Result<Vec<JoinId>> {
        Err(missing("join.of_item"))
    }

    async fn cancel(&self, _id: JoinId, _by: &Actor) -> Result<CancelledJoin> {
        Err(missing("join.cancel"))
    }

    async fn expire(&self, _limit: u32) -> Result<Vec<Counted>> {
        Err(missing("join.expire"))
    }

    async fn next_deadline(&self) -> Result<Option<Duration>> {
        Err(missing("join.next_deadline"))
    }

    async fn stats(&self) -> Result<JoinStats> {
        Err(missing("join.stats"))
    }

    async fn purge(&self, _age: Duration, _batch: u32, _by: Option<&Actor>) -> Result<u64> {
        Err(missing("join.purge"))
    }
}

#[async_trait]
impl FanoutStore for Missing {
    fn identifier(&self) -> &str {
        self.identifier
    }

    async fn register(&self, _fanout: &PreparedFanout, _by: &Actor) -> Result<FanoutPolicy> {
        Err(missing("fanout.register"))
    }

    async fn delete(&self, _key: &FanoutKey, _by: &Actor) -> Result<Option<u64>> {
        Err(missing("fanout.delete"))
    }

    async fn standing(&self, _key: &FanoutKey) -> Result<Option<(FanoutPolicy, Timestamp)>> {
        Err(missing("fanout.standing"))
    }

    async fn list(&self, _after: Option<&FanoutKey>, _limit: u32) -> Result<Vec<FanoutPolicy>> {
        Err(missing("fanout.list"))
    }

    async fn set(&self, _policy: &FanoutPolicy, _by: &Actor) -> Result<Option<FanoutPolicy>> {
        Err(missing("fanout.set"))
    }

    async fn request_run(&self, _key: &FanoutKey, _by: &Actor) -> Result<bool> {
        Err(missing("fanout.request_run"))
    }

    async fn add_shards(&self, _key: &FanoutKey, _shards: &[String], _by: &Actor) -> Result<u64> {
        Err(missing("fanout.add_shards"))
    }

    async fn forget_shard(&self, _key: &FanoutKey, _shard: &str, _by: &Actor) -> Result<bool> {
        Err(missing("fanout.forget_shard"))
    }

    async fn look(&self, _key: &FanoutKey, _shards: &[String]) -> Result<Vec<FanoutCursor>> {
        Err(missing("fanout.look"))
    }

    async fn cursors(
        &self,
        _key: &FanoutKey,
        _after: Option<&str>,
        _limit: u32,
    ) -> Result<Vec<FanoutCursor>> {
        Err(missing("fanout.cursors"))
    }

    async fn complete(&self, _key: &FanoutKey, _shard: &str, _at: Timestamp) -> Result<bool> {
        Err(missing("fanout.complete"))
    }

    fn completion(&self, _key: &FanoutKey, _shard: &str, _at: Timestamp) -> StoreCall {
        call("fanout.completion")
    }

    fn completed(&self, _answers: &[String]) -> Result<bool> {
        Err(missing("fanout.completed"))
    }

    fn claim(&self, _key: &FanoutKey, _version: i64, _slices: &[PlannedSlice]) -> StoreCall {
        call("fanout.claim")
    }

    fn claimed(&self, _answers: &[String]) -> Result<Vec<String>> {
        Err(missing("fanout.claimed"))
    }

    fn ran(
        &self,
        _key: &FanoutKey,
        _version: i64,
        _nominal: Timestamp,
        _requested: Option<Timestamp>,
    ) -> StoreCall {
        call("fanout.ran")
    }

    async fn wait(&self, _key: &FanoutKey, _version: Option<i64>, _timeout: Duration) -> Result<Wake> {
        Err(missing("fanout.wait"))
    }
}

#[async_trait]
impl HealthStore for Missing {
    async fn work(&self, _queue: Queue, _patience: &Patience) -> Result<WorkSeen> {
        Err(missing("health.work"))
    }

    async fn schedule(&self, _patience: &Patience) -> Result<ScheduleSeen> {
        Err(missing("health.schedule"))
    }

    async fn leases(&self, _patience: &Patience) -> Result<LeasesSeen> {
        Err(missing("health.leases"))
    }

    async fn lane(&self, _queue: Queue, _id: WorkItemId) -> Result<LaneSeen> {
        Err(missing("health.lane"))
    }
}
