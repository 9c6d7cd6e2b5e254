//! No jobs: the measurements are about messages.

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay::audit::Actor;
use mainstay::job::{Expected, Job, JobRun, PreparedJob, Registered, RunFilter};
use mainstay::outbox::{Page, Retention};
use mainstay::store::{
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, JobStore, RunPlace, RunsLookedAt,
    WaitRequest, Wake,
};
use mainstay::{OwnerToken, Result, WorkItemId};

use super::store::unsupported;

/// A store of jobs that has none and takes none.
pub(crate) struct NoJobs;

#[async_trait]
impl JobStore for NoJobs {
    fn identifier(&self) -> &str {
        "nothing"
    }
    fn capabilities(&self) -> Capabilities {
        Capabilities::none()
    }
    async fn upsert(&self, _: &PreparedJob, _: Expected, _: &Actor) -> Result<Registered> {
        unsupported()
    }
    async fn delete(&self, _: &str, _: &Actor) -> Result<Option<u64>> {
        unsupported()
    }
    async fn set_enabled(&self, _: &str, _: bool, _: &Actor) -> Result<bool> {
        unsupported()
    }
    async fn get(&self, _: &str) -> Result<Option<Job>> {
        unsupported()
    }
    async fn list(&self, _: Option<&str>, _: u32) -> Result<Vec<Job>> {
        unsupported()
    }
    async fn due(&self, _: OwnerToken, _: Option<&Job>, _: u32) -> Result<DueJobs> {
        unsupported()
    }
    async fn advance(&self, _: &Advance) -> Result<Option<Advanced>> {
        unsupported()
    }
    async fn reject(&self, _: &str, _: i64, _: &str) -> Result<bool> {
        unsupported()
    }
    async fn dispatch(&self, _: OwnerToken, _: u32) -> Result<Vec<Dispatched>> {
        unsupported()
    }
    async fn collect(&self, _: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        unsupported()
    }
    async fn ended(&self, _: Option<&RunPlace>, _: u32) -> Result<RunsLookedAt> {
        unsupported()
    }
    async fn trigger(&self, _: &str, _: &Actor) -> Result<JobRun> {
        unsupported()
    }
    async fn runs(&self, _: &RunFilter, _: Page) -> Result<Vec<JobRun>> {
        unsupported()
    }
    async fn run(&self, _: WorkItemId) -> Result<Option<JobRun>> {
        unsupported()
    }
    async fn started(&self, _: WorkItemId) -> Result<bool> {
        unsupported()
    }
    async fn record_output(&self, _: WorkItemId, _: &str) -> Result<bool> {
        unsupported()
    }
    async fn purge(&self, _: &Retention, _: Option<&Actor>) -> Result<u64> {
        unsupported()
    }
    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        unsupported()
    }
    async fn wait(&self, _: &WaitRequest) -> Result<Wake> {
        std::future::pending().await
    }
    async fn leave(&self, _: OwnerToken) {}
}
