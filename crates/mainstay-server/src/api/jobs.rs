//! Jobs: work that comes round by the clock, and their runs.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use jiff::Timestamp;
use mainstay_core::WorkItemId;
use mainstay_core::job::{Expected, Job, JobDefinition, JobRun, Misfire, Overlap, RunFilter};
use mainstay_core::outbox::Page as RunPage;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::mending::ChangeView;
use crate::Role;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "jobs";
const RUNS: &str = "runs";

/// Jobs that are read at once, with their payloads.
const AT_ONCE: usize = 20;

/// A job to be registered.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJob)]
struct JobBody {
    /// The topic of its runs.
    #[schema(min_length = 1, max_length = 255)]
    topic: String,
    /// When it fires: a cron expression.
    #[schema(min_length = 1, example = "30 2 * * *")]
    cron: String,
    /// The zone whose wall clock the expression is read by: an IANA name. Defaults to `UTC`.
    #[schema(example = "Europe/Berlin")]
    time_zone: Option<String>,
    /// The payload of its runs. Defaults to empty.
    payload: Option<String>,
    /// Whether it runs. Defaults to what it was; a new one runs.
    enabled: Option<bool>,
    /// What becomes of occurrences that nobody was there for. Defaults to `once`.
    misfire: Option<MisfireBody>,
    /// What happens while an earlier run is not over. Defaults to `allow`.
    overlap: Option<OverlapBody>,
    /// Spreads runs over this many whole seconds after their time. Defaults to 0.
    #[schema(minimum = 0, maximum = 86400)]
    jitter_seconds: Option<u64>,
    /// The priority of its runs. Defaults to 0.
    #[schema(minimum = -9, maximum = 9)]
    priority: Option<i16>,
    /// The version the job must have for this to be done; 0 if it must not exist. Otherwise 409, and nothing is changed. Defaults to
    /// whatever is there.
    #[schema(minimum = 0)]
    expected_version: Option<i64>,
}

/// What becomes of occurrences that nobody was there for.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(tag = "policy", rename_all = "snake_case", deny_unknown_fields)]
#[schema(as = Misfire)]
enum MisfireBody {
    /// None of them runs.
    Skip,
    /// One run stands for all of them.
    Once,
    /// All of them run, oldest first.
    All {
        /// How many at most.
        #[schema(minimum = 1, maximum = 1000)]
        cap: u32,
        /// How long ago at most, in whole seconds.
        #[schema(minimum = 1, maximum = 31622400)]
        window_seconds: u64,
    },
}

impl From<MisfireBody> for Misfire {
    fn from(body: MisfireBody) -> Self {
        match body {
            MisfireBody::Skip => Self::Skip,
            MisfireBody::Once => Self::Once,
            MisfireBody::All { cap, window_seconds } => {
                Self::All { cap, window: Duration::from_secs(window_seconds) }
            }
        }
    }
}

impl From<Misfire> for MisfireBody {
    fn from(misfire: Misfire) -> Self {
        match misfire {
            Misfire::Skip => Self::Skip,
            Misfire::Once => Self::Once,
            Misfire::All { cap, window } => Self::All { cap, window_seconds: window.as_secs() },
        }
    }
}

/// What happens while an earlier run is not over.
#[derive(Clone, Copy, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Overlap)]
enum OverlapBody {
    /// The runs go on beside each other.
    Allow,
    /// The new run is recorded as skipped.
    Skip,
    /// The new run waits.
    Queue,
}

impl From<OverlapBody> for Overlap {
    fn from(body: OverlapBody) -> Self {
        match body {
            OverlapBody::Allow => Self::Allow,
            OverlapBody::Skip => Self::Skip,
            OverlapBody::Queue => Self::Queue,
        }
    }
}

impl From<Overlap> for OverlapBody {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Allow => Self::Allow,
            Overlap::Skip => Self::Skip,
            Overlap::Queue => Self::Queue,
        }
    }
}

/// A job as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
struct JobView {
    /// Its name.
    name: String,
    /// The topic of its runs.
    topic: String,
    /// The payload of its runs. Null where it is not shown.
    payload: Option<String>,
    /// Whether the payload is left out because the role does not show it.
    hidden: bool,
    /// When it fires.
    cron: String,
    /// In which zone.
    time_zone: String,
    /// Whether it runs.
    enabled: bool,
    /// What becomes of late occurrences.
    misfire: MisfireBody,
    /// What happens while an earlier run is not over.
    overlap: OverlapBody,
    /// The widest jitter.
    jitter_seconds: u64,
    /// The priority of its runs.
    priority: i16,
    /// Grows with every change.
    version: i64,
    /// When it was registered.
    created_at: Timestamp,
    /// When it was changed last.
    updated_at: Timestamp,
    /// When it fires next.
    next_nominal_at: Option<Timestamp>,
    /// When it fired last.
    last_nominal_at: Option<Timestamp>,
    /// Why a scheduler can't work with it, if one can't.
    problem: Option<String>,
}

impl JobView {
    fn new(job: Job, shows: bool) -> Self {
        Self {
            name: job.name,
            topic: job.topic,
            payload: Some(job.payload).filter(|_| shows),
            hidden: !shows,
            cron: job.cron,
            time_zone: job.time_zone,
            enabled: job.enabled,
            misfire: job.misfire.into(),
            overlap: job.overlap.into(),
            jitter_seconds: job.jitter.as_secs(),
            priority: job.priority,
            version: job.version,
            created_at: job.created_at,
            updated_at: job.updated_at,
            next_nominal_at: job.next_nominal_at,
            last_nominal_at: job.last_nominal_at,
            problem: job.problem,
        }
    }
}

/// Which jobs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct JobsQuery {
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Which runs.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct RunsQuery {
    /// Only of this job.
    job: Option<String>,
    /// Only in this state: `pending`, `claimed`, `dispatched`, `running`, `succeeded`, `failed`, `skipped` or `cancelled`.
    state: Option<String>,
    /// Only those made by `cron`, or by hand: `manual`.
    trigger: Option<String>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// One run of a job.
#[derive(Serialize, ToSchema)]
#[schema(as = JobRun)]
struct RunView {
    /// Its id, and that of its message.
    id: Uuid,
    /// The job.
    job: String,
    /// The time it is for.
    nominal_at: Timestamp,
    /// When it may start.
    due_at: Timestamp,
    /// `cron` or `manual`.
    trigger: String,
    /// Where it stands.
    state: String,
    /// When it was planned.
    created_at: Timestamp,
    /// When its message was put into the outbox.
    dispatched_at: Option<Timestamp>,
    /// When somebody first began with it.
    started_at: Option<Timestamp>,
    /// When it was over.
    ended_at: Option<Timestamp>,
    /// Deliveries of its message so far.
    attempts: u32,
    /// The last error.
    error: Option<String>,
    /// What was left to be read. Null where there is nothing, or it is not shown.
    output: Option<String>,
}

impl RunView {
    fn new(run: JobRun, shows: bool) -> Self {
        Self {
            id: run.id.as_uuid(),
            job: run.job,
            nominal_at: run.nominal_at,
            due_at: run.due_at,
            trigger: run.trigger.to_string(),
            state: run.state.to_string(),
            created_at: run.created_at,
            dispatched_at: run.dispatched_at,
            started_at: run.started_at,
            ended_at: run.ended_at,
            attempts: run.attempts,
            error: run.error,
            output: run.output.filter(|_| shows),
        }
    }
}

/// What deleting a job has done.
#[derive(Serialize, ToSchema)]
#[schema(as = JobDeleted)]
struct DeletedView {
    /// How many runs that waited were cancelled.
    cancelled_runs: u64,
}

/// What is to be read of a run.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RunOutput)]
struct OutputBody {
    /// The text, up to 64 KiB.
    #[schema(max_length = 65536)]
    output: String,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/jobs", "listJobs", "List jobs by name")
            .query::<JobsQuery>()
            .answer::<Page<JobView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/jobs/{name}", "getJob", "Look at a job")
            .etag_of_payload()
            .answer::<JobView>(200, "The job."),
        get,
    );
    all.add(
        Endpoint::put("/v1/jobs/{name}", "putJob", "Register a job, or change it")
            .note("As it is, it changes nothing.")
            .role(Role::Admin)
            .body::<JobBody>()
            .answer::<JobView>(200, "The job as it is now."),
        put,
    );
    all.add(
        Endpoint::delete("/v1/jobs/{name}", "deleteJob", "Delete a job, and cancel its runs that wait")
            .role(Role::Admin)
            .answer::<DeletedView>(200, "It is gone; its history stays."),
        delete,
    );
    all.add(
        Endpoint::post("/v1/jobs/{name}/enable", "enableJob", "Enable a job; it goes on from now")
            .role(Role::Admin)
            .answer::<ChangeView>(200, "Whether it was disabled."),
        enable,
    );
    all.add(
        Endpoint::post("/v1/jobs/{name}/disable", "disableJob", "Disable a job; runs that are there go on")
            .role(Role::Admin)
            .answer::<ChangeView>(200, "Whether it was enabled."),
        disable,
    );
    all.add(
        Endpoint::post("/v1/jobs/{name}/trigger", "triggerJob", "Make a run now")
            .answer::<RunView>(201, "The run; `skipped` where the overlap policy says so."),
        trigger,
    );
    all.add(
        Endpoint::get("/v1/runs", "listRuns", "List runs of jobs, newest first")
            .query::<RunsQuery>()
            .answer::<Page<RunView>>(200, "A page of them."),
        runs,
    );
    all.add(
        Endpoint::get("/v1/runs/{id}", "getRun", "Look at a run")
            .etag_of_payload()
            .answer::<RunView>(200, "The run."),
        run,
    );
    all.add(
        Endpoint::put("/v1/runs/{id}/output", "putRunOutput", "Leave a text with a run, for people to read")
            .body::<OutputBody>()
            .empty(204, "It is kept."),
        output,
    );
}

/// As many as there are, as were asked for, or as fit into one answer with their payloads; and whether there may be more.
async fn fitting(call: &Call, mut after: Option<String>, limit: u32) -> Result<(Vec<Job>, bool), Problem> {
    let (mut found, mut bytes): (Vec<Job>, usize) = (Vec::new(), 0);
    loop {
        let asked = (limit as usize - found.len()).min(AT_ONCE);
        let some = call.mainstay.jobs().list(after.as_deref(), asked as u32).await?;
        let last = some.len() < asked;
        bytes = some.iter().fold(bytes, |sum, job| sum.saturating_add(job.payload.len()));
        after = some.last().map(|job| job.name.clone());
        found.extend(some);
        if last || found.len() >= limit as usize || bytes > call.shared.limits.answer_bytes() {
            return Ok((found, !last));
        }
    }
}

async fn list(call: Call, Query(query): Query<JobsQuery>) -> Result<Json<Page<JobView>>, Problem> {
    let limit = query.limit.unwrap_or(page::LIMIT);
    if !(1..=1_000).contains(&limit) {
        return Err(Problem::invalid("limit", format_args!("must be 1 to 1,000, got {limit}")));
    }
    let after = page::read::<String>(LIST, query.cursor.as_deref())?;
    let (found, more) = fitting(&call, after, limit).await?;
    let shows = call.shows();
    Ok(Json(Page::so_far(LIST, more, found, |one| one.name.clone(), |one| JobView::new(one, shows))))
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format_args!("job {name:?}"))
}

async fn get(call: Call, Named(name): Named<String>) -> Result<Json<JobView>, Problem> {
    let found = call.mainstay.jobs().get(&name).await?.ok_or_else(|| unknown(&name))?;
    Ok(Json(JobView::new(found, call.shows())))
}

async fn put(
    call: Call,
    Named(name): Named<String>,
    Body(body): Body<JobBody>,
) -> Result<Json<JobView>, Problem> {
    let expected = expected(&call, &name, body.expected_version).await?;
    let mut job = JobDefinition::new(name, body.topic, body.cron)
        .payload(body.payload.unwrap_or_default())
        .misfire(body.misfire.map(Misfire::from).unwrap_or_default())
        .overlap(body.overlap.map(Overlap::from).unwrap_or_default())
        .jitter(Duration::from_secs(body.jitter_seconds.unwrap_or_default()))
        .priority(body.priority.unwrap_or_default());
    if let Some(zone) = body.time_zone {
        job = job.time_zone(zone);
    }
    if let Some(enabled) = body.enabled {
        job = job.enabled(enabled);
    }
    let registered = call.jobs().register(job, expected).await?;
    Ok(Json(JobView::new(registered.job, call.shows())))
}

/// What is there is compared by the database, in the step that writes; this is only to tell it the whole of what was read.
async fn expected(call: &Call, name: &str, version: Option<i64>) -> Result<Expected, Problem> {
    match version {
        None => Ok(Expected::Anything),
        Some(0) => Ok(Expected::Nothing),
        Some(version) => {
            let found = call.mainstay.jobs().get(name).await?;
            let created_at = found.as_ref().map_or(Timestamp::UNIX_EPOCH, |job| job.created_at);
            let expected = Expected::Unchanged { version, created_at };
            match expected.is_met_by(found.as_ref()) {
                true => Ok(expected),
                false => Err(expected.refusal(name, found.as_ref()).into()),
            }
        }
    }
}

async fn delete(call: Call, Named(name): Named<String>) -> Result<Json<DeletedView>, Problem> {
    let cancelled = call.jobs().delete(&name).await?.ok_or_else(|| unknown(&name))?;
    Ok(Json(DeletedView { cancelled_runs: cancelled }))
}

async fn enable(call: Call, Named(name): Named<String>) -> Result<Json<ChangeView>, Problem> {
    Ok(Json(ChangeView { changed: call.jobs().enable(&name).await? }))
}

async fn disable(call: Call, Named(name): Named<String>) -> Result<Json<ChangeView>, Problem> {
    Ok(Json(ChangeView { changed: call.jobs().disable(&name).await? }))
}

async fn trigger(call: Call, Named(name): Named<String>) -> Result<(StatusCode, Json<RunView>), Problem> {
    let run = call.jobs().trigger(&name).await?;
    Ok((StatusCode::CREATED, Json(RunView::new(run, call.shows()))))
}

async fn runs(call: Call, Query(query): Query<RunsQuery>) -> Result<Json<Page<RunView>>, Problem> {
    let mut filter = RunFilter::all();
    if let Some(job) = query.job {
        mainstay_core::text::validate_nul("job.runs", "job", &job)?;
        filter = filter.job(job);
    }
    filter.state = query.state.as_deref().map(str::parse).transpose()?;
    filter.trigger = query.trigger.as_deref().map(str::parse).transpose()?;
    let before = page::read::<WorkItemId>(RUNS, query.cursor.as_deref())?;
    let page = RunPage { limit: query.limit.unwrap_or(page::LIMIT), before };
    let found = call.mainstay.jobs().runs(&filter, page).await?;
    let shows = call.shows();
    Ok(Json(Page::of(RUNS, page.limit, found, |one| one.id, |one| RunView::new(one, shows))))
}

async fn run(call: Call, Named(id): Named<Uuid>) -> Result<Json<RunView>, Problem> {
    let found = call.mainstay.jobs().run(WorkItemId::from_uuid(id)).await?;
    let found = found.ok_or_else(|| Problem::not_found(format_args!("run {id}")))?;
    Ok(Json(RunView::new(found, call.shows())))
}

async fn output(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<OutputBody>,
) -> Result<StatusCode, Problem> {
    call.jobs().record_output(WorkItemId::from_uuid(id), &body.output).await?;
    Ok(StatusCode::NO_CONTENT)
}
