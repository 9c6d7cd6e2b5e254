//! Jobs: each method is one call of one procedure, in one round trip.

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
    Advance, Advanced, Capabilities, Dispatched, DueJobs, EndedRun, JobStore, Names, RunPlace, RunsLookedAt,
    WaitRequest, Wake,
};
use mainstay_core::{Error, ErrorKind, OwnerToken, Result, WorkItemId};
use serde_json::{Value, json};

use crate::parameters::{Call, ids, named, written};
use crate::pool::Connections;
use crate::provider::capabilities;
use crate::rows::{self, Reader, Row};
use crate::waiting::Waiting;

/// Jobs in SQL Server.
pub struct SqlServerJobs {
    identifier: String,
    connections: Connections,
    names: Names,
    keep_done_payloads: bool,
    /// For a run that is due, or a job whose time has come.
    waiting: Waiting,
}

impl SqlServerJobs {
    pub(crate) fn new(
        connections: Connections,
        names: &Names,
        keep_done_payloads: bool,
        waiting: Waiting,
    ) -> Self {
        let identifier = format!("{}/{}.{}", connections.store(), names.schema(), names.jobs());
        Self { identifier, connections, names: names.clone(), keep_done_payloads, waiting }
    }

    fn call(&self, verb: &str) -> Call {
        Call::new(&named(&self.names, &self.names.jobs(), verb))
    }

    async fn run(&self, operation: &'static str, call: Call) -> Result<Vec<Row>> {
        self.connections.run(operation, &call.step()).await
    }

    async fn jobs(&self, operation: &'static str, call: Call) -> Result<Vec<Job>> {
        let rows = self.run(operation, call).await?;
        rows.iter().map(|row| job(Reader::new(operation, row))).collect()
    }

    async fn all_runs(&self, operation: &'static str, call: Call) -> Result<Vec<JobRun>> {
        let rows = self.run(operation, call).await?;
        rows.iter().map(|row| run(Reader::new(operation, row))).collect()
    }

    async fn flag(&self, operation: &'static str, call: Call, label: &str) -> Result<bool> {
        rows::only(operation, &self.run(operation, call).await?)?.flag(label)
    }
}

#[async_trait]
impl JobStore for SqlServerJobs {
    fn identifier(&self) -> &str {
        &self.identifier
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    async fn upsert(&self, job: &PreparedJob, expected: Expected, by: &Actor) -> Result<Registered> {
        const UPSERT: &str = "job.create_or_update";
        let call = self.call("CreateOrUpdate").text("Name", job.name()).text("Topic", job.topic());
        let call = call.text("Cron", job.cron()).text("Payload", job.payload());
        let call = call.text("TimeZone", job.time_zone()).maybe_integer("Enabled", job.enabled());
        let call =
            call.text("Misfire", job.misfire().as_str()).maybe_integer("MisfireCap", job.misfire().cap());
        let call = call.maybe_integer("MisfireWindowSeconds", job.misfire().window().map(seconds));
        let call = call.text("Overlap", job.overlap().as_str());
        let call = call.integer("JitterSeconds", seconds(job.jitter())).integer("Priority", job.priority());
        let (version, created_at) = match expected {
            Expected::Anything => (None, None),
            Expected::Nothing => (Some(0), None),
            Expected::Unchanged { version, created_at } => (Some(version), Some(created_at)),
        };
        let call =
            call.maybe_integer("ExpectedVersion", version).maybe_moment("ExpectedCreatedAt", created_at);
        let rows = match self.run(UPSERT, call.actor(Some(by))).await {
            Err(error) if error.kind() == ErrorKind::Mismatch => {
                return Err(expected.refusal(job.name(), self.get(job.name()).await?.as_ref()));
            }
            answered => answered?,
        };
        let row = rows::only(UPSERT, &rows)?;
        let change = match row.text("change")?.as_str() {
            "created" => JobChange::Created,
            "updated" => JobChange::Updated,
            _ => JobChange::Unchanged,
        };
        self.waiting.signal();
        Ok(Registered { job: self::job(row)?, change })
    }

    async fn delete(&self, name: &str, by: &Actor) -> Result<Option<u64>> {
        const DELETE: &str = "job.delete";
        let rows = self.run(DELETE, self.call("Delete").text("Name", name).actor(Some(by))).await?;
        let cancelled = rows::only(DELETE, &rows)?.maybe_integer("cancelled")?;
        Ok(cancelled.map(|count| count.max(0).unsigned_abs()))
    }

    async fn set_enabled(&self, name: &str, enabled: bool, by: &Actor) -> Result<bool> {
        let call = self.call("SetEnabled").text("Name", name).flag("Enabled", enabled).actor(Some(by));
        let changed = self.flag("job.set_enabled", call, "changed").await?;
        self.waiting.signal();
        Ok(changed)
    }

    async fn get(&self, name: &str) -> Result<Option<Job>> {
        Ok(self.jobs("job.get", self.call("List").text("Name", name)).await?.pop())
    }

    async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>> {
        self.jobs("job.list", self.call("List").maybe_text("After", after).integer("MaxRows", limit)).await
    }

    async fn due(&self, _owner: OwnerToken, after: Option<&Job>, limit: u32) -> Result<DueJobs> {
        const DUE: &str = "job.due";
        let call = self.call("DueJobs").maybe_moment("AfterAt", after.and_then(|job| job.next_nominal_at));
        let call = call.maybe_text("AfterName", after.map(|job| job.name.as_str())).integer("MaxRows", limit);
        let rows = self.run(DUE, call).await?;
        // Without a job there is nothing to plan, and no time to plan it for.
        let now = rows.first().map(|row| Reader::new(DUE, row).moment("now")).transpose()?;
        let found = rows.iter().map(|row| job(Reader::new(DUE, row))).collect::<Result<Vec<_>>>()?;
        let (troubled, jobs): (Vec<_>, Vec<_>) = found.into_iter().partition(|job| job.problem.is_some());
        Ok(DueJobs { now: now.unwrap_or(Timestamp::UNIX_EPOCH), jobs, troubled })
    }

    async fn advance(&self, advance: &Advance) -> Result<Option<Advanced>> {
        const ADVANCE: &str = "job.advance";
        let object = |occurrence: &mainstay_core::store::Occurrence| {
            let (nominal, due) = (written(occurrence.nominal_at), written(occurrence.due_at));
            json!({ "id": WorkItemId::new(), "nominal": nominal, "due": due })
        };
        let occurrences = Value::Array(advance.occurrences.iter().map(object).collect()).to_string();
        let call = self.call("Advance").text("Name", &advance.job).integer("Version", advance.version);
        let call =
            call.maybe_moment("NextAt", Some(advance.next)).maybe_moment("ExpectedAt", advance.expected);
        let call = call.maybe_moment("LastAt", advance.last).text("Occurrences", occurrences);
        let rows = self.run(ADVANCE, call).await?;
        if !rows::only(ADVANCE, &rows)?.flag("advanced")? {
            return Ok(None);
        }
        let mut advanced = Advanced::default();
        for row in rows.iter().filter(|row| row.has("skipped")) {
            let row = Reader::new(ADVANCE, row);
            match row.flag("skipped")? {
                true => advanced.skipped.push(row.moment("nominal_at")?),
                false => advanced.made.push(WorkItemId::from_uuid(row.id("id")?)),
            }
        }
        Ok(Some(advanced))
    }

    async fn reject(&self, name: &str, version: i64, problem: &str) -> Result<bool> {
        let call =
            self.call("Reject").text("Name", name).integer("Version", version).text("Problem", problem);
        self.flag("job.reject", call, "rejected").await
    }

    async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>> {
        const DISPATCH: &str = "job.dispatch";
        let call = self.call("Dispatch").owner(owner).integer("BatchSize", batch);
        let rows = self.run(DISPATCH, call.flag("KeepPayload", self.keep_done_payloads)).await?;
        let read = |row| {
            let row = Reader::new(DISPATCH, row);
            let late = row.maybe_integer("late")?.map(rows::micros).unwrap_or_default();
            Ok(Dispatched { id: WorkItemId::from_uuid(row.id("run")?), job: row.maybe_text("job")?, late })
        };
        let dispatched = rows.iter().filter(|row| row.has("run")).map(read).collect::<Result<Vec<_>>>()?;
        if !dispatched.is_empty() {
            self.waiting.signal_outbox();
        }
        Ok(dispatched)
    }

    async fn collect(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        const COLLECT: &str = "job.collect";
        let rows = self.run(COLLECT, self.call("Collect").text("Ids", ids(runs))).await?;
        let read = |row| {
            let row = Reader::new(COLLECT, row);
            Ok(EndedRun {
                id: WorkItemId::from_uuid(row.id("id")?),
                job: row.text("job")?,
                outcome: RunState::from_outcome(row.small("outcome")?)?,
                ran: row.maybe_integer("ran")?.map(rows::micros),
            })
        };
        rows.iter().map(read).collect()
    }

    async fn ended(&self, after: Option<&RunPlace>, batch: u32) -> Result<RunsLookedAt> {
        const ENDED: &str = "job.ended";
        let call = self.call("Ended").maybe_text("AfterJob", after.map(|place| place.job.as_str()));
        let call = call.maybe_id("AfterId", after.map(|place| place.id.as_uuid())).integer("MaxRows", batch);
        let mut found = RunsLookedAt::default();
        for row in &self.run(ENDED, call).await? {
            let row = Reader::new(ENDED, row);
            let id = WorkItemId::from_uuid(row.id("id")?);
            if row.flag("is_over")? {
                found.over.push(id);
            }
            if row.flag("is_last")? {
                found.next = Some(RunPlace { job: row.text("job")?, id });
            }
        }
        Ok(found)
    }

    async fn trigger(&self, name: &str, by: &Actor) -> Result<JobRun> {
        const TRIGGER: &str = "job.trigger";
        let call = self.call("Trigger").text("Name", name).actor(Some(by));
        let run = self.all_runs(TRIGGER, call.id("Id", WorkItemId::new().as_uuid())).await?.pop();
        self.waiting.signal();
        run.ok_or_else(|| Error::new(ErrorKind::Internal, TRIGGER, "the database has made no run"))
    }

    async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>> {
        let call = self.call("Runs").maybe_text("Job", filter.job.as_deref());
        let call = call.maybe_text("State", filter.state.map(RunState::as_str));
        let call = call.maybe_text("Trigger", filter.trigger.map(|trigger| trigger.as_str()));
        let call = call.maybe_id("Before", page.before.map(|id| id.as_uuid())).integer("MaxRows", page.limit);
        self.all_runs("job.runs", call).await
    }

    async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>> {
        Ok(self.all_runs("job.run", self.call("Runs").id("Id", id.as_uuid())).await?.pop())
    }

    async fn started(&self, id: WorkItemId) -> Result<bool> {
        self.flag("job.started", self.call("Started").id("Id", id.as_uuid()), "started").await
    }

    async fn record_output(&self, id: WorkItemId, output: &str) -> Result<bool> {
        let call = self.call("RecordOutput").id("Id", id.as_uuid()).text("Output", output);
        self.flag("job.record_output", call, "recorded").await
    }

    async fn purge(&self, retention: &Retention, by: Option<&Actor>) -> Result<u64> {
        const PURGE: &str = "job.purge";
        let call = self.call("Purge").maybe_seconds("DoneOlderThanSeconds", retention.done);
        let call = call.maybe_seconds("FailedOlderThanSeconds", retention.failed);
        let call = call.integer("MaxRows", retention.batch).actor(by);
        rows::only(PURGE, &self.run(PURGE, call).await?)?.count("purged")
    }

    async fn next_nominal(&self) -> Result<Option<Timestamp>> {
        const NEXT: &str = "job.next_nominal";
        rows::only(NEXT, &self.run(NEXT, self.call("NextNominal")).await?)?.maybe_moment("at")
    }

    async fn wait(&self, request: &WaitRequest) -> Result<Wake> {
        self.waiting.wait(request).await
    }

    async fn leave(&self, _consumer: OwnerToken) {
        // Nobody takes trouble to wake it.
    }
}

/// Whole seconds; the bounds of what is stored in them are far below what fits.
fn seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

fn job(row: Reader<'_>) -> Result<Job> {
    let window = row.maybe_integer("misfire_window_seconds")?;
    let window = window.map(|seconds| Duration::from_secs(seconds.max(0).unsigned_abs()));
    let cap = row.maybe_integer("misfire_cap")?.map(|cap| u32::try_from(cap).unwrap_or(u32::MAX));
    let definition = JobDefinition::new(row.text("name")?, row.text("topic")?, row.text("cron")?)
        .payload(row.text("payload")?)
        .time_zone(row.text("time_zone")?)
        .enabled(row.flag("enabled")?)
        .misfire(Misfire::from_code(row.small("misfire")?, cap, window)?)
        .overlap(Overlap::from_code(row.small("overlap")?)?)
        .jitter(Duration::from_secs(row.count("jitter_seconds")?))
        .priority(row.small("priority")?);
    let mut job = Job::new(definition, row.moment("created_at")?);
    job.version = row.integer("version")?;
    job.updated_at = row.moment("updated_at")?;
    job.next_nominal_at = row.maybe_moment("next_nominal_at")?;
    job.last_nominal_at = row.maybe_moment("last_nominal_at")?;
    job.problem = row.maybe_text("problem")?;
    Ok(job)
}

fn run(row: Reader<'_>) -> Result<JobRun> {
    let trigger = row.text("triggered")?.parse()?;
    let id = WorkItemId::from_uuid(row.id("id")?);
    let (nominal, due) = (row.moment("nominal_at")?, row.moment("due_at")?);
    let mut run = JobRun::new(id, row.text("job")?, trigger, nominal, due, row.moment("created_at")?);
    run.state = row.text("state")?.parse()?;
    run.dispatched_at = row.maybe_moment("dispatched_at")?;
    run.started_at = row.maybe_moment("started_at")?;
    run.ended_at = row.maybe_moment("ended_at")?;
    run.attempts = row.small("attempts")?;
    run.error = row.maybe_text("error")?;
    run.output = row.maybe_text("output")?;
    Ok(run)
}

impl std::fmt::Debug for SqlServerJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerJobs").field("identifier", &self.identifier).finish_non_exhaustive()
    }
}
