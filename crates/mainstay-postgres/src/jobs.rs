//! Jobs: each method is one call of one SQL function, or one reading, in one round trip.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::Actor;
use mainstay_core::job::{
    Expected, Job, JobChange, JobDefinition, JobRun, Misfire, Overlap, PreparedJob, Registered, RunFilter,
    RunState,
};
use mainstay_core::outbox::{Page, Retention};
use mainstay_core::store::{
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, JobStore, RunPlace, RunsLookedAt,
    WaitRequest, Wake,
};
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::moment::Moment;
use crate::pool::{Connections, Parameter};
use crate::provider::capabilities;
use crate::queue::whole;
use crate::rows::{self, Reader};
use crate::statements::JobStatements;
use crate::waiting::Waiting;

/// Jobs in PostgreSQL.
pub struct PostgresJobs {
    identifier: String,
    connections: Connections,
    statements: Arc<JobStatements>,
    keep_done_payloads: bool,
    /// For a run that is due, or a job whose time has come.
    waiting: Waiting,
}

impl PostgresJobs {
    pub(crate) fn new(
        identifier: String,
        connections: Connections,
        statements: Arc<JobStatements>,
        keep_done_payloads: bool,
        waiting: Waiting,
    ) -> Self {
        Self { identifier, connections, statements, keep_done_payloads, waiting }
    }

    async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.connections.query(operation, sql, parameters).await
    }
}

#[async_trait]
impl JobStore for PostgresJobs {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn upsert(&self, job: &PreparedJob, expected: Expected, by: &Actor) -> Result<Registered> {
        const UPSERT: &str = "job.create_or_update";
        let (misfire, by, about) = (job.misfire().as_str(), by.as_str(), by.correlation_id());
        let (cap, window) = (job.misfire().cap().map(whole), job.misfire().window().map(seconds));
        let (overlap, jitter) = (job.overlap().as_str(), seconds(job.jitter()));
        let priority = i32::from(job.priority());
        let enabled = job.enabled();
        let (version, created_at) = match expected {
            Expected::Anything => (None, None),
            Expected::Nothing => (Some(0), None),
            Expected::Unchanged { version, created_at } => (Some(version), Some(Moment(created_at))),
        };
        let parameters: [Parameter<'_>; 16] = [
            (&job.name(), Type::TEXT),
            (&job.topic(), Type::TEXT),
            (&job.cron(), Type::TEXT),
            (&job.payload(), Type::TEXT),
            (&job.time_zone(), Type::TEXT),
            (&enabled, Type::BOOL),
            (&misfire, Type::TEXT),
            (&cap, Type::INT4),
            (&window, Type::INT4),
            (&overlap, Type::TEXT),
            (&jitter, Type::INT4),
            (&priority, Type::INT4),
            (&by, Type::TEXT),
            (&about, Type::TEXT),
            (&version, Type::INT8),
            (&created_at, Type::TIMESTAMPTZ),
        ];
        let rows = self.query(UPSERT, &self.statements.register, &parameters).await?;
        let none = || Error::new(ErrorKind::Internal, UPSERT, "the database returned no row");
        let row = rows.first().ok_or_else(none)?;
        let there = Reader::new(UPSERT, row).get::<Option<&str>>(0)?.is_some();
        let found = there.then(|| self::job(UPSERT, row)).transpose()?;
        let change = match Reader::new(UPSERT, row).get(18)? {
            "created" => JobChange::Created,
            "updated" => JobChange::Updated,
            "unchanged" => JobChange::Unchanged,
            _ => return Err(expected.refusal(job.name(), found.as_ref())),
        };
        found.map(|job| Registered { job, change }).ok_or_else(none)
    }

    async fn delete(&self, name: &str, by: &Actor) -> Result<Option<u64>> {
        const DELETE: &str = "job.delete";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] = [(&name, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        let rows = self.query(DELETE, &self.statements.delete, &parameters).await?;
        let cancelled: Option<i32> = rows::value(DELETE, &rows)?;
        Ok(cancelled.map(|count| u64::from(count.max(0).unsigned_abs())))
    }

    async fn set_enabled(&self, name: &str, enabled: bool, by: &Actor) -> Result<bool> {
        const ENABLE: &str = "job.set_enabled";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 4] =
            [(&name, Type::TEXT), (&enabled, Type::BOOL), (&by, Type::TEXT), (&about, Type::TEXT)];
        rows::value(ENABLE, &self.query(ENABLE, &self.statements.set_enabled, &parameters).await?)
    }

    async fn get(&self, name: &str) -> Result<Option<Job>> {
        const GET: &str = "job.get";
        let rows = self.query(GET, &self.statements.get, &[(&name, Type::TEXT)]).await?;
        rows.first().map(|row| job(GET, row)).transpose()
    }

    async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>> {
        const LIST: &str = "job.list";
        let limit = i64::from(limit);
        let parameters: [Parameter<'_>; 2] = [(&after, Type::TEXT), (&limit, Type::INT8)];
        let rows = self.query(LIST, &self.statements.list, &parameters).await?;
        rows.iter().map(|row| job(LIST, row)).collect()
    }

    async fn due(&self, owner: OwnerToken, after: Option<&Job>, limit: u32) -> Result<DueJobs> {
        const DUE: &str = "job.due";
        let limit = whole(limit);
        let after_at = after.and_then(|job| job.next_nominal_at).map(Moment);
        let after_name = after.map(|job| job.name.as_str());
        let parameters: [Parameter<'_>; 3] =
            [(&after_at, Type::TIMESTAMPTZ), (&after_name, Type::TEXT), (&limit, Type::INT4)];
        let rows = self.query(DUE, &self.statements.due, &parameters).await?;
        let found = rows.iter().map(|row| job(DUE, row)).collect::<Result<Vec<_>>>()?;
        let (troubled, jobs): (Vec<_>, Vec<_>) = found.into_iter().partition(|job| job.problem.is_some());
        // Without a job there is nothing to plan, and no time to plan it for.
        let now = rows.first().map(|row| Reader::new(DUE, row).time(18)).transpose()?;
        if !jobs.is_empty() {
            self.waiting.found_something(owner);
        }
        Ok(DueJobs { now: now.unwrap_or(Timestamp::UNIX_EPOCH), jobs, troubled })
    }

    async fn advance(&self, advance: &Advance) -> Result<Option<Advanced>> {
        const ADVANCE: &str = "job.advance";
        let (expected, next) = (advance.expected.map(Moment), Moment(advance.next));
        let last = advance.last.map(Moment);
        let nominals: Vec<Moment> = advance.occurrences.iter().map(|each| Moment(each.nominal_at)).collect();
        let dues: Vec<Moment> = advance.occurrences.iter().map(|each| Moment(each.due_at)).collect();
        let parameters: [Parameter<'_>; 7] = [
            (&advance.job, Type::TEXT),
            (&advance.version, Type::INT8),
            (&expected, Type::TIMESTAMPTZ),
            (&next, Type::TIMESTAMPTZ),
            (&last, Type::TIMESTAMPTZ),
            (&nominals, Type::TIMESTAMPTZ_ARRAY),
            (&dues, Type::TIMESTAMPTZ_ARRAY),
        ];
        let rows = self.query(ADVANCE, &self.statements.advance, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let row = Reader::new(ADVANCE, row);
        let made: Vec<Uuid> = row.get(0)?;
        let skipped: Vec<Moment> = row.get(1)?;
        Ok(Some(Advanced {
            made: made.into_iter().map(WorkItemId::from_uuid).collect(),
            skipped: skipped.into_iter().map(|moment| moment.0).collect(),
        }))
    }

    async fn reject(&self, name: &str, version: i64, problem: &str) -> Result<bool> {
        const REJECT: &str = "job.reject";
        let parameters: [Parameter<'_>; 3] =
            [(&name, Type::TEXT), (&version, Type::INT8), (&problem, Type::TEXT)];
        rows::value(REJECT, &self.query(REJECT, &self.statements.reject, &parameters).await?)
    }

    async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>> {
        const DISPATCH: &str = "job.dispatch";
        self.waiting.before_claim(owner).await;
        let (token, limit) = (owner.as_uuid(), whole(batch));
        let parameters: [Parameter<'_>; 3] =
            [(&token, Type::UUID), (&limit, Type::INT4), (&self.keep_done_payloads, Type::BOOL)];
        let rows = self.query(DISPATCH, &self.statements.dispatch, &parameters).await?;
        let read = |row| {
            let row = Reader::new(DISPATCH, row);
            let late = row.get::<Option<f64>>(2)?.and_then(rows::seconds).unwrap_or_default();
            Ok(Dispatched { id: WorkItemId::from_uuid(row.get(0)?), job: row.get(1)?, late })
        };
        let dispatched = rows.iter().map(read).collect::<Result<Vec<_>>>()?;
        let full = dispatched.len() as u64 >= u64::from(batch);
        self.waiting.after_forward(owner, full, !dispatched.is_empty());
        Ok(dispatched)
    }

    async fn collect(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        const COLLECT: &str = "job.collect";
        let ids: Vec<Uuid> = runs.iter().map(|id| id.as_uuid()).collect();
        let rows = self.query(COLLECT, &self.statements.collect, &[(&ids, Type::UUID_ARRAY)]).await?;
        let read = |row| {
            let row = Reader::new(COLLECT, row);
            Ok(EndedRun {
                id: WorkItemId::from_uuid(row.get(0)?),
                job: row.get(1)?,
                outcome: RunState::from_outcome(row.get(2)?)?,
                ran: row.get::<Option<f64>>(3)?.and_then(rows::seconds),
            })
        };
        rows.iter().map(read).collect()
    }

    async fn ended(&self, after: Option<&RunPlace>, batch: u32) -> Result<RunsLookedAt> {
        const ENDED: &str = "job.ended";
        let limit = whole(batch);
        let (job, id) = (after.map(|place| place.job.as_str()), after.map(|place| place.id.as_uuid()));
        let parameters: [Parameter<'_>; 3] = [(&job, Type::TEXT), (&id, Type::UUID), (&limit, Type::INT4)];
        let rows = self.query(ENDED, &self.statements.ended, &parameters).await?;
        let mut found = RunsLookedAt::default();
        for row in &rows {
            let row = Reader::new(ENDED, row);
            let id = WorkItemId::from_uuid(row.get(0)?);
            if row.get(2)? {
                found.over.push(id);
            }
            if row.get(3)? {
                found.next = Some(RunPlace { job: row.get(1)?, id });
            }
        }
        Ok(found)
    }

    async fn trigger(&self, name: &str, by: &Actor) -> Result<JobRun> {
        const TRIGGER: &str = "job.trigger";
        let (by, about) = (by.as_str(), by.correlation_id());
        let parameters: [Parameter<'_>; 3] = [(&name, Type::TEXT), (&by, Type::TEXT), (&about, Type::TEXT)];
        let rows = self.query(TRIGGER, &self.statements.trigger, &parameters).await?;
        let none = || Error::new(ErrorKind::Internal, TRIGGER, "the database has made no run");
        run(TRIGGER, rows.first().ok_or_else(none)?)
    }

    async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>> {
        const RUNS: &str = "job.runs";
        let state = filter.state.map(RunState::as_str);
        let trigger = filter.trigger.map(|trigger| trigger.as_str());
        let before = page.before.map(|id| id.as_uuid());
        let limit = i64::from(page.limit);
        let parameters: [Parameter<'_>; 5] = [
            (&filter.job, Type::TEXT),
            (&state, Type::TEXT),
            (&trigger, Type::TEXT),
            (&before, Type::UUID),
            (&limit, Type::INT8),
        ];
        let rows = self.query(RUNS, &self.statements.runs, &parameters).await?;
        rows.iter().map(|row| run(RUNS, row)).collect()
    }

    async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>> {
        const RUN: &str = "job.run";
        let rows = self.query(RUN, &self.statements.run, &[(&id.as_uuid(), Type::UUID)]).await?;
        rows.first().map(|row| run(RUN, row)).transpose()
    }

    async fn started(&self, id: WorkItemId) -> Result<bool> {
        const STARTED: &str = "job.started";
        let rows = self.query(STARTED, &self.statements.started, &[(&id.as_uuid(), Type::UUID)]).await?;
        rows::value(STARTED, &rows)
    }

    async fn record_output(&self, id: WorkItemId, output: &str) -> Result<bool> {
        const OUTPUT: &str = "job.record_output";
        let id = id.as_uuid();
        let parameters: [Parameter<'_>; 2] = [(&id, Type::UUID), (&output, Type::TEXT)];
        rows::value(OUTPUT, &self.query(OUTPUT, &self.statements.record_output, &parameters).await?)
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "job.purge";
        let age = |age: Option<Duration>| age.map(|age| age.as_secs_f64());
        let (done, failed, batch) = (age(retention.done), age(retention.failed), whole(retention.batch));
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

    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        const NEXT: &str = "job.next_nominal";
        let rows = self.query(NEXT, &self.statements.next_nominal, &[]).await?;
        Ok(rows::value::<Option<Moment>>(NEXT, &rows)?.map(|moment| moment.0))
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.waiting.wait(request).await
    }

    async fn leave(&self, consumer: OwnerToken) {
        self.waiting.leave(consumer).await;
    }
}

/// Whole seconds; the bounds of what is stored in them are far below what fits.
fn seconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_secs()).unwrap_or(i32::MAX)
}

/// A job, from the columns in the order of `queries/jobs.sql`.
fn job(operation: &'static str, row: &Row) -> Result<Job> {
    let row = Reader::new(operation, row);
    let seconds = |column| -> Result<Option<Duration>> {
        let seconds: Option<i32> = row.get(column)?;
        Ok(seconds.map(|seconds| Duration::from_secs(u64::from(seconds.max(0).unsigned_abs()))))
    };
    let cap = row.get::<Option<i32>>(7)?.map(|cap| cap.max(0).unsigned_abs());
    let definition = JobDefinition::new(row.get::<&str>(0)?, row.get::<&str>(1)?, row.get::<&str>(3)?)
        .payload(row.get::<&str>(2)?)
        .time_zone(row.get::<&str>(4)?)
        .enabled(row.get(5)?)
        .misfire(Misfire::from_code(row.get(6)?, cap, seconds(8)?)?)
        .overlap(Overlap::from_code(row.get(9)?)?)
        .jitter(seconds(10)?.unwrap_or_default())
        .priority(row.get(11)?);
    let mut job = Job::new(definition, row.time(13)?);
    job.version = row.get(12)?;
    job.updated_at = row.time(14)?;
    job.next_nominal_at = row.optional_time(15)?;
    job.last_nominal_at = row.optional_time(16)?;
    job.problem = row.get(17)?;
    Ok(job)
}

/// A run, from the columns in the order of `queries/jobs.sql`.
fn run(operation: &'static str, row: &Row) -> Result<JobRun> {
    let row = Reader::new(operation, row);
    let trigger = row.get::<&str>(2)?.parse()?;
    let id = WorkItemId::from_uuid(row.get(0)?);
    let mut run = JobRun::new(id, row.get(1)?, trigger, row.time(3)?, row.time(4)?, row.time(6)?);
    run.state = row.get::<&str>(5)?.parse()?;
    run.dispatched_at = row.optional_time(7)?;
    run.started_at = row.optional_time(8)?;
    run.ended_at = row.optional_time(9)?;
    run.attempts = row.small_count(10)?;
    run.error = row.get(11)?;
    run.output = row.get(12)?;
    Ok(run)
}

impl std::fmt::Debug for PostgresJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresJobs").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
