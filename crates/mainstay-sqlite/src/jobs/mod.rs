//! Jobs on SQLite: each method is one operation of the writer, or one job of a reader.

mod define;
mod materialise;
mod read;
mod runs;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use mainstay_core::audit::{Actor, PreparedAudit};
use mainstay_core::job::{Expected, Job, JobChange, JobRun, PreparedJob, Registered, RunFilter};
use mainstay_core::outbox::{Page, Retention};
use mainstay_core::store::{
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, JobStore, Queue, RunPlace, RunsLookedAt,
    WaitRequest, Wake,
};
use mainstay_core::{OwnerToken, Result, WorkItemId};
use rusqlite::Connection;

use crate::audit::note;
use crate::database::Database;
use crate::error::Fault;
use crate::queue::purge_told;
use crate::statements::{AuditStatements, JobStatements, Statements};
use crate::value::{micros, moment};
use crate::wake;
use crate::writer::Ticket;

/// The statements an operation on jobs may need.
#[derive(Clone)]
pub(crate) struct Sql {
    jobs: Arc<JobStatements>,
    /// Of the queue the runs wait in.
    queue: Arc<Statements>,
    audit: Arc<AuditStatements>,
}

pub(crate) use read::next_nominal;

/// Jobs in one SQLite database.
pub struct SqliteJobs {
    identifier: String,
    /// For the queue the runs wait in.
    database: Database,
    sql: Sql,
}

impl SqliteJobs {
    pub(crate) fn new(database: &Database) -> Self {
        let runs = database.of(Queue::JobRuns);
        let jobs = JobStatements::shared(&runs.names);
        let sql = Sql { jobs, queue: Arc::clone(&runs.statements), audit: Arc::clone(&runs.audit) };
        Self {
            identifier: crate::database::jobs_identifier(&runs.location, &runs.names),
            database: runs,
            sql,
        }
    }

    pub(crate) fn statements(&self) -> &Arc<JobStatements> {
        &self.sql.jobs
    }

    async fn write<T, F>(&self, ticket: impl Into<Ticket>, mut work: F, wakes: fn(&T) -> bool) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Sql) -> Result<T, Fault> + Send + 'static,
    {
        let sql = self.sql.clone();
        self.database.write_and_wake(ticket, move |connection, _| work(connection, &sql), wakes).await
    }

    async fn read<T, F>(&self, operation: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Sql) -> Result<T, Fault> + Send + 'static,
    {
        let sql = self.sql.clone();
        self.database.read(operation, move |connection, _| work(connection, &sql)).await
    }
}

#[async_trait]
impl JobStore for SqliteJobs {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        self.database.capabilities()
    }

    async fn upsert(&self, job: &PreparedJob, expected: Expected, by: &Actor) -> Result<Registered> {
        let (job, by) = (job.clone(), by.clone());
        let upsert = move |connection: &_, sql: &_| define::upsert(connection, sql, &job, expected, &by);
        let changed = |registered: &Registered| registered.change != JobChange::Unchanged;
        self.write("job.create_or_update", upsert, changed).await
    }

    async fn delete(&self, name: &str, by: &Actor) -> Result<Option<u64>> {
        let (name, by) = (name.to_owned(), by.clone());
        let delete = move |connection: &_, sql: &_| define::delete(connection, sql, &name, &by);
        self.write("job.delete", delete, |cancelled| cancelled.is_some()).await
    }

    async fn set_enabled(&self, name: &str, enabled: bool, by: &Actor) -> Result<bool> {
        let (name, by) = (name.to_owned(), by.clone());
        let set = move |connection: &_, sql: &_| define::set_enabled(connection, sql, &name, enabled, &by);
        self.write("job.set_enabled", set, |changed| *changed).await
    }

    async fn get(&self, name: &str) -> Result<Option<Job>> {
        let name = name.to_owned();
        self.read("job.get", move |connection, sql| read::get(connection, sql, &name)).await
    }

    async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>> {
        let after = after.unwrap_or_default().to_owned();
        self.read("job.list", move |connection, sql| read::list(connection, sql, &after, limit)).await
    }

    async fn due(&self, _owner: OwnerToken, after: Option<&Job>, limit: u32) -> Result<DueJobs> {
        let after = after.map(|job| (job.next_nominal_at.map(micros), job.name.clone()));
        self.read("job.due", move |connection, sql| read::due(connection, sql, after.as_ref(), limit)).await
    }

    async fn advance(&self, advance: &Advance) -> Result<Option<Advanced>> {
        let advance = advance.clone();
        let work = move |connection: &_, sql: &_| materialise::advance(connection, sql, &advance);
        self.write("job.advance", work, |advanced| advanced.is_some()).await
    }

    async fn reject(&self, name: &str, version: i64, problem: &str) -> Result<bool> {
        let (name, problem) = (name.to_owned(), problem.to_owned());
        let reject = move |connection: &Connection, sql: &Sql| {
            let mut statement = connection.prepare_cached(&sql.jobs.reject)?;
            Ok(statement.execute((&name, version, &problem))? > 0)
        };
        self.write("job.reject", reject, |_| false).await
    }

    async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>> {
        let ticket = Ticket::new("job.dispatch", batch as usize);
        let keep = self.database.keep_done_payloads;
        let dispatch = move |connection: &_, sql: &_| runs::dispatch(connection, sql, owner, batch, keep);
        self.write(ticket, dispatch, |dispatched| !dispatched.is_empty()).await
    }

    async fn collect(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        if runs.is_empty() {
            return Ok(Vec::new());
        }
        let ticket = Ticket::new("job.collect", runs.len());
        let ids = runs.to_vec();
        let collect = move |connection: &_, sql: &_| runs::collect(connection, sql, &ids);
        self.write(ticket, collect, |_| false).await
    }

    async fn ended(&self, after: Option<&RunPlace>, batch: u32) -> Result<RunsLookedAt> {
        let after = after.cloned();
        self.read("job.ended", move |connection, sql| read::ended(connection, sql, after.as_ref(), batch))
            .await
    }

    async fn trigger(&self, name: &str, by: &Actor) -> Result<JobRun> {
        let (name, by) = (name.to_owned(), by.clone());
        let trigger = move |connection: &_, sql: &_| materialise::trigger(connection, sql, &name, &by);
        self.write("job.trigger", trigger, |_| true).await
    }

    async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>> {
        let filter = filter.clone();
        self.read("job.runs", move |connection, sql| read::runs(connection, sql, &filter, page)).await
    }

    async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>> {
        self.read("job.run", move |connection, sql| read::run(connection, sql, id)).await
    }

    async fn started(&self, id: WorkItemId) -> Result<bool> {
        let started = move |connection: &_, sql: &_| runs::started(connection, sql, id);
        self.write("job.started", started, |_| false).await
    }

    async fn record_output(&self, id: WorkItemId, output: &str) -> Result<bool> {
        let output = output.to_owned();
        let record = move |connection: &Connection, sql: &Sql| {
            let mut statement = connection.prepare_cached(&sql.jobs.record_output)?;
            Ok(statement.execute((id.as_uuid().as_bytes(), &output))? > 0)
        };
        self.write("job.record_output", record, |_| false).await
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        let ticket = Ticket::new("job.purge", retention.batch as usize);
        let (retention, by) = (*retention, by.cloned());
        let purge = move |connection: &Connection, sql: &Sql| {
            let purged = runs::purge(connection, sql, &retention)?;
            if let Some(by) = by.as_ref().filter(|_| purged > 0) {
                let data = purge_told(purged, retention.done, retention.failed);
                note(connection, &sql.audit, &PreparedAudit::administrative("job.purge", by, data))?;
            }
            Ok(purged)
        };
        self.write(ticket, purge, |_| false).await
    }

    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        let next = self.read("job.next_nominal", |connection, sql| {
            Ok(read::next_nominal(connection, &sql.jobs, sql.queue.now(connection)?)?)
        });
        Ok(next.await?.map(moment))
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        let sql = self.sql.clone();
        // A run that is due, or a job whose time has come.
        let next = move |connection: &Connection, topics: &_, now: i64| {
            let run = wake::next_due(connection, &sql.queue, topics, now)?;
            let job = read::next_nominal(connection, &sql.jobs, now)?;
            Ok(run.into_iter().chain(job).min())
        };
        wake::wait(&self.database, request, Arc::new(next)).await
    }

    async fn leave(&self, _consumer: OwnerToken) {
        // Nobody is told of waiters: signals and looks at the file find them.
    }
}

impl fmt::Debug for SqliteJobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteJobs").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
