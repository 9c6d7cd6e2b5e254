//! Jobs whose promotions are recorded.

use std::sync::Arc;

use async_trait::async_trait;
use mainstay::id::{OwnerToken, WorkItemId};
use mainstay::job::{Expected, Job, JobRun, PreparedJob, Registered, RunFilter};
use mainstay::outbox::{Page, Retention};
use mainstay::store::{
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, JobStore, RunPlace, WaitRequest, Wake,
};
use mainstay::{Actor, Result};

use crate::history::{Answer, Call, QueueName, Recorder};

use super::trouble::record;

/// Jobs whose runs and promotions are recorded.
pub(crate) struct RecordedJobs {
    inner: Arc<dyn JobStore>,
    recorder: Arc<Recorder>,
}

impl RecordedJobs {
    pub(crate) fn new(inner: Arc<dyn JobStore>, recorder: Arc<Recorder>) -> Self {
        Self { inner, recorder }
    }
}

#[async_trait]
impl JobStore for RecordedJobs {
    fn identifier(&self) -> &str {
        self.inner.identifier()
    }
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }
    async fn upsert(&self, job: &PreparedJob, expected: Expected, by: &Actor) -> Result<Registered> {
        self.inner.upsert(job, expected, by).await
    }
    async fn delete(&self, name: &str, by: &Actor) -> Result<Option<u64>> {
        self.inner.delete(name, by).await
    }
    async fn set_enabled(&self, name: &str, enabled: bool, by: &Actor) -> Result<bool> {
        self.inner.set_enabled(name, enabled, by).await
    }
    async fn get(&self, name: &str) -> Result<Option<Job>> {
        self.inner.get(name).await
    }
    async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>> {
        self.inner.list(after, limit).await
    }
    async fn due(&self, owner: OwnerToken, after: Option<&Job>, limit: u32) -> Result<DueJobs> {
        self.inner.due(owner, after, limit).await
    }
    async fn advance(&self, advance: &Advance) -> Result<Option<Advanced>> {
        let invoked = self.recorder.invoke(Call::Materialise);
        let result = self.inner.advance(advance).await;
        record(invoked, &result, |made| {
            Answer::Runs(made.as_ref().map_or(0, |advanced| advanced.made.len() as u64))
        });
        result
    }
    async fn reject(&self, name: &str, version: i64, problem: &str) -> Result<bool> {
        self.inner.reject(name, version, problem).await
    }
    async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>> {
        let invoked = self.recorder.invoke(Call::Forward { queue: QueueName::Runs, owner: owner.as_uuid() });
        let result = self.inner.dispatch(owner, batch).await;
        record(invoked, &result, |runs| Answer::Changed {
            changed: runs.iter().map(|run| run.id.as_uuid()).collect(),
            stale: Vec::new(),
        });
        result
    }
    async fn collect(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        self.inner.collect(runs).await
    }
    async fn ended(&self, after: Option<&RunPlace>, batch: u32) -> Result<mainstay::store::RunsLookedAt> {
        self.inner.ended(after, batch).await
    }
    async fn trigger(&self, name: &str, by: &Actor) -> Result<JobRun> {
        self.inner.trigger(name, by).await
    }
    async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>> {
        self.inner.runs(filter, page).await
    }
    async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>> {
        self.inner.run(id).await
    }
    async fn started(&self, id: WorkItemId) -> Result<bool> {
        self.inner.started(id).await
    }
    async fn record_output(&self, id: WorkItemId, output: &str) -> Result<bool> {
        self.inner.record_output(id, output).await
    }
    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        self.inner.purge(retention, by).await
    }
    async fn next_nominal(&self) -> Result<Option<jiff::Timestamp>> {
        self.inner.next_nominal().await
    }
    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.inner.wait(request).await
    }
    async fn leave(&self, consumer: OwnerToken) {
        self.inner.leave(consumer).await;
    }
}
