//! What jobs need of a database.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::audit::Actor;
use crate::error::Result;
use crate::id::{OwnerToken, WorkItemId};
use crate::job::{Expected, Job, JobRun, PreparedJob, Registered, RunFilter, RunState};
use crate::outbox::{Page, Retention};

use super::{Capabilities, WaitRequest, Wake};

/// Jobs whose time has come.
#[derive(Debug, Clone)]
pub struct DueJobs {
    /// The database's clock.
    pub now: Timestamp,
    /// The jobs, most overdue first, without their payloads. Those without a next nominal time are to be given one.
    pub jobs: Vec<Job>,
    /// Jobs that a scheduler had a problem with, whatever their time, without their payloads. Another scheduler may have none.
    pub troubled: Vec<Job>,
}

/// One time a job is to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occurrence {
    /// The time it is for.
    pub nominal_at: Timestamp,
    /// When it may start.
    pub due_at: Timestamp,
}

/// A job's step to its next nominal time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// The job.
    pub job: String,
    /// The version it was planned with.
    pub version: i64,
    /// The next nominal time it was planned with.
    pub expected: Option<Timestamp>,
    /// The next nominal time from now on.
    pub next: Timestamp,
    /// The last nominal time that was looked at, if one was.
    pub last: Option<Timestamp>,
    /// What is to run, in order.
    pub occurrences: Vec<Occurrence>,
}

/// What a step has made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advanced {
    /// The new runs.
    pub made: Vec<WorkItemId>,
    /// The occurrences that were recorded as skipped, because an earlier run was not over.
    pub skipped: Vec<Timestamp>,
}

/// A run whose message is in the outbox now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatched {
    /// The run, and its message.
    pub id: WorkItemId,
    /// Its job; none if somebody put it into the queue by other ways.
    pub job: Option<String>,
    /// How long after its due time that was.
    pub late: Duration,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRun {
    /// The run.
    pub id: WorkItemId,
    /// Its job.
    pub job: String,
    /// How it ended.
    pub outcome: RunState,
    /// How long it ran, from its first start.
    pub ran: Option<Duration>,
}

/// How far a look through the runs whose end is not noted has come: the last one it looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPlace {
    /// Its job.
    pub job: String,
    /// The run.
    pub id: WorkItemId,
}

/// What a look through some of the runs whose end is not noted has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunsLookedAt {
    /// Those that are over.
    pub over: Vec<WorkItemId>,
    /// Where to go on from; none if there are no more.
    pub next: Option<RunPlace>,
}

/// Jobs and their runs in a database. The queue the runs wait in is [`super::Queue::JobRuns`]. What is done by hand is recorded as
/// in [`super::OutboxStore`].
#[async_trait]
pub trait JobStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// What the provider can do.
    fn capabilities(&self) -> Capabilities;

    /// Registers a job, or changes the one of its name, and wakes schedulers if that changed anything. Its next nominal time
    /// becomes none, to be calculated as from now, if expression or zone changed, or if it was or is disabled.
    ///
    /// If what is there is not what is `expected`, nothing is written, and [`Expected::refusal`] is the error. Whatever changes a
    /// job's definition or switches it raises its version, and comparing and writing are one step: nobody comes in between.
    async fn upsert(&self, job: &PreparedJob, expected: Expected, by: &Actor) -> Result<Registered>;

    /// Deletes a job and cancels those of its runs that are not dispatched. How many that were; none if there is no such job.
    async fn delete(&self, name: &str, by: &Actor) -> Result<Option<u64>>;

    /// Enables or disables a job. Whether that changed anything; `NotFound` if there is no such job.
    async fn set_enabled(&self, name: &str, enabled: bool, by: &Actor) -> Result<bool>;

    /// One job.
    async fn get(&self, name: &str) -> Result<Option<Job>>;

    /// Up to `limit` jobs whose names come after `after`, in order of their names.
    async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>>;

    /// Up to `limit` enabled jobs whose next nominal time has come or is none, for `owner` to look after: those that come after
    /// `after`. From the start also up to `limit` of those that have a problem.
    async fn due(&self, owner: OwnerToken, after: Option<&Job>, limit: u32) -> Result<DueJobs>;

    /// Makes the runs of a job's occurrences and moves the job on: one transaction, and only if the job still is what it was
    /// planned with. None if it is not, or if somebody else holds it just now: nobody waits for one job. An occurrence that has
    /// its run already gets no other. Whatever problem was noted is gone.
    async fn advance(&self, advance: &Advance) -> Result<Option<Advanced>>;

    /// Notes why a scheduler can't work with this version of a job. Whether that is news. Nobody waits for its time from then on;
    /// a scheduler that can read it takes the note back with [`Self::advance`].
    async fn reject(&self, name: &str, version: i64, problem: &str) -> Result<bool>;

    /// Makes a message in the outbox of each run that is due, up to `batch`, under the run's id, and notes when: one transaction.
    async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>>;

    /// Notes the end of those of these runs that are over. One that somebody else is busy with is left out.
    async fn collect(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>>;

    /// Looks at up to `batch` runs whose end is not noted, after `after`. Reads only.
    async fn ended(&self, after: Option<&RunPlace>, batch: u32) -> Result<RunsLookedAt>;

    /// Makes a run now, and tells where it stands in the same call. `NotFound` if there is no such job.
    async fn trigger(&self, name: &str, by: &Actor) -> Result<JobRun>;

    /// Runs that match, newest nominal time first.
    async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>>;

    /// One run.
    async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>>;

    /// Notes that a handler has begun with a run. Whether it is the first one, and the run is known.
    async fn started(&self, id: WorkItemId) -> Result<bool>;

    /// Keeps a text with a run. False if there is no such run.
    async fn record_output(&self, id: WorkItemId, output: &str) -> Result<bool>;

    /// Forgets one batch of runs that ended longer ago than they are kept. Returns how many.
    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64>;

    /// The nearest nominal time of all enabled jobs; now, if one is still to be calculated.
    async fn next_nominal(&self) -> Result<Option<Timestamp>>;

    /// Waits until a run or a job may be due: until the nearest of them is, or somebody has registered or changed a job or made a
    /// run. Nothing that came between the last look and this call is missed.
    async fn wait(&self, request: &WaitRequest) -> Result<Wake>;

    /// Tells that a scheduler will not wait again; see [`super::QueueStore::leave`].
    async fn leave(&self, consumer: OwnerToken);
}
