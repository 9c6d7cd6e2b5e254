//! Joins: several steps, and what happens when they have ended.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use mainstay_core::join::{
    Counted, Join, JoinFilter, JoinMember, JoinMode, JoinPage, MemberPage, NewJoin, Reported, Step,
};
use mainstay_core::outbox::When;
use mainstay_core::{JoinId, WorkItemId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::message::{NewMessage, ids, items};
use super::time;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "joins";
const MEMBERS: &str = "members";

/// A join to be started.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJoin)]
struct JoinBody {
    /// Its id. Defaults to a new one; one that is taken is refused.
    id: Option<Uuid>,
    /// How many steps it has.
    #[schema(minimum = 1, maximum = 1000000000)]
    expected: u32,
    /// When it has ended, and how. Defaults to `all`.
    mode: Option<ModeBody>,
    /// With the mode `quorum`: how many steps have to complete.
    #[schema(minimum = 1, maximum = 1000000000)]
    quorum: Option<u32>,
    /// What it is found by later.
    #[schema(max_length = 255)]
    grouping_key: Option<String>,
    /// Ends it at this moment at the latest.
    deadline_at: Option<Timestamp>,
    /// Ends it this many seconds from the database's now at the latest.
    #[schema(minimum = 0, maximum = 31536000000_f64)]
    deadline_in_seconds: Option<f64>,
    /// What is enqueued when it completes. It has no due time, expiry, idempotency key or joins.
    on_completed: Option<NewMessage>,
    /// What is enqueued when it fails. The same rules.
    on_failed: Option<NewMessage>,
}

/// When a join has ended, and how.
#[derive(Clone, Copy, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = JoinMode)]
enum ModeBody {
    /// When all steps have ended; failed if any has failed.
    All,
    /// When one step has completed.
    Any,
    /// When so many steps have completed.
    Quorum,
    /// At the deadline, by what has ended by then.
    Deadline,
}

/// A join as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Join)]
struct JoinView {
    /// Its id.
    id: Uuid,
    /// What it is found by.
    grouping_key: Option<String>,
    /// `all`, `any`, `quorum` or `deadline`.
    mode: &'static str,
    /// How many steps have to complete.
    needed: u32,
    /// How many steps it has.
    expected: u32,
    /// How many have completed.
    completed: u32,
    /// How many have failed.
    failed: u32,
    /// `pending`, `completed`, `failed` or `cancelled`.
    state: &'static str,
    /// Why it has failed, if it has: `steps` or `deadline`.
    reason: Option<&'static str>,
    /// When it ends at the latest.
    deadline_at: Option<Timestamp>,
    /// When it was started.
    created_at: Timestamp,
    /// When it last changed.
    updated_at: Timestamp,
    /// When it ended.
    ended_at: Option<Timestamp>,
}

impl From<Join> for JoinView {
    fn from(join: Join) -> Self {
        Self {
            id: join.id.as_uuid(),
            grouping_key: join.grouping_key,
            mode: join.mode.as_str(),
            needed: join.mode.needed(join.expected),
            expected: join.expected,
            completed: join.completed,
            failed: join.failed,
            state: join.state.as_str(),
            reason: join.reason.map(|reason| reason.as_str()),
            deadline_at: join.deadline_at,
            created_at: join.created_at,
            updated_at: join.updated_at,
            ended_at: join.ended_at,
        }
    }
}

/// A step of a join.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinMember)]
struct MemberView {
    /// The message, or whatever else the step is.
    id: Uuid,
    /// `pending`, `completed`, `failed` or `cancelled`.
    state: &'static str,
    /// When that last changed.
    updated_at: Timestamp,
}

impl From<JoinMember> for MemberView {
    fn from(member: JoinMember) -> Self {
        Self { id: member.work_item.as_uuid(), state: member.state.as_str(), updated_at: member.updated_at }
    }
}

/// A join that was started.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinStarted)]
struct StartedView {
    /// Its id.
    id: Uuid,
}

/// Steps of a join.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewJoinMembers)]
struct MembersBody {
    /// Ids of messages of the outbox, or of whatever is then reported by hand.
    items: Vec<Uuid>,
}

/// What attaching has done.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinAttached)]
struct AttachedView {
    /// How many were no steps of it before.
    added: u64,
    /// What was counted at once, because it had ended already.
    counted: Option<CountedView>,
}

/// Steps that were counted for a join.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinCounted)]
struct CountedView {
    /// The join.
    join: Uuid,
    /// How many completed steps.
    completed: u32,
    /// How many failed ones.
    failed: u32,
    /// How the join stands now.
    state: &'static str,
}

impl From<Counted> for CountedView {
    fn from(counted: Counted) -> Self {
        let Counted { join, completed, failed, state, .. } = counted;
        Self { join: join.as_uuid(), completed, failed, state: state.as_str() }
    }
}

/// How a step has ended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = StepReport)]
struct ReportBody {
    /// How.
    step: StepBody,
}

/// How a step has ended.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = Step)]
enum StepBody {
    /// Well.
    Completed,
    /// Not well.
    Failed,
}

/// What a report has done.
#[derive(Serialize, ToSchema)]
#[schema(as = StepReported)]
struct ReportedView {
    /// Whether the step was counted. False if it had been before, or the join has ended.
    counted: bool,
    /// How the join stands.
    state: Option<&'static str>,
}

/// What cancelling has done.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinCancelled)]
struct CancelledView {
    /// False if it had ended already.
    changed: bool,
    /// Those of its messages that waited, and are cancelled now.
    messages: Vec<Uuid>,
}

/// Which joins.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct JoinsQuery {
    /// Only with this grouping key.
    grouping_key: Option<String>,
    /// Only in this state: `pending`, `completed`, `failed` or `cancelled`.
    state: Option<String>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Which steps.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct MembersQuery {
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post("/v1/joins", "startJoin", "Start a join")
            .body::<JoinBody>()
            .answer::<StartedView>(201, "It waits for its steps."),
        start,
    );
    all.add(
        Endpoint::get("/v1/joins", "listJoins", "List joins, newest first")
            .query::<JoinsQuery>()
            .answer::<Page<JoinView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/joins/{id}", "getJoin", "Look at a join")
            .etag_of_payload()
            .answer::<JoinView>(200, "The join."),
        get,
    );
    all.add(
        Endpoint::get("/v1/joins/{id}/members", "listJoinMembers", "List the steps of a join")
            .query::<MembersQuery>()
            .answer::<Page<MemberView>>(200, "A page of them."),
        members,
    );
    all.add(
        Endpoint::post("/v1/joins/{id}/members", "attachToJoin", "Make items steps of a join")
            .body::<MembersBody>()
            .answer::<AttachedView>(200, "What was added."),
        attach,
    );
    all.add(
        Endpoint::post("/v1/joins/{id}/members/{item}/report", "reportStep", "Count a step by hand, once")
            .body::<ReportBody>()
            .answer::<ReportedView>(200, "Whether it was counted."),
        report,
    );
    all.add(
        Endpoint::post(
            "/v1/joins/{id}/cancel",
            "cancelJoin",
            "Cancel a join, and those of its messages that wait",
        )
        .answer::<CancelledView>(200, "What was cancelled."),
        cancel,
    );
}

impl JoinBody {
    fn into_join(self) -> Result<NewJoin, Problem> {
        let mode = self.mode.unwrap_or(ModeBody::All);
        if self.quorum.is_some() != (mode == ModeBody::Quorum) {
            return Err(Problem::invalid("quorum", "must be given where the mode is quorum, and only there"));
        }
        let mut join = NewJoin::new(self.expected).mode(match mode {
            ModeBody::All => JoinMode::All,
            ModeBody::Any => JoinMode::Any,
            ModeBody::Quorum => JoinMode::Quorum(self.quorum.unwrap_or_default()),
            ModeBody::Deadline => JoinMode::Deadline,
        });
        if let Some(id) = self.id {
            join = join.id(JoinId::from_uuid(id));
        }
        if let Some(key) = self.grouping_key {
            join = join.grouping_key(key);
        }
        match time::when("deadline", self.deadline_at, self.deadline_in_seconds)? {
            Some(When::At(at)) => join = join.deadline_at(at),
            Some(When::In(time)) => join = join.deadline_in(time),
            None => {}
        }
        if let Some(message) = self.on_completed {
            join = join.on_completed(message.into_message()?);
        }
        if let Some(message) = self.on_failed {
            join = join.on_failed(message.into_message()?);
        }
        Ok(join)
    }
}

async fn start(call: Call, Body(body): Body<JoinBody>) -> Result<Response, Problem> {
    let id = call.joins().start(body.into_join()?).await?;
    Ok((StatusCode::CREATED, Json(StartedView { id: id.as_uuid() })).into_response())
}

async fn list(call: Call, Query(query): Query<JoinsQuery>) -> Result<Json<Page<JoinView>>, Problem> {
    let mut filter = JoinFilter::default();
    filter.grouping_key = query.grouping_key;
    filter.state = query.state.as_deref().map(str::parse).transpose()?;
    let mut page = JoinPage::first(query.limit.unwrap_or(page::LIMIT));
    page.before = page::read(LIST, query.cursor.as_deref())?;
    let found = call.mainstay.joins().list(&filter, page).await?;
    Ok(Json(Page::of(LIST, page.limit, found, |one| one.id, JoinView::from)))
}

async fn find(call: &Call, id: Uuid) -> Result<Join, Problem> {
    let found = call.mainstay.joins().get(JoinId::from_uuid(id)).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("join {id}")))
}

async fn get(call: Call, Named(id): Named<Uuid>) -> Result<Json<JoinView>, Problem> {
    Ok(Json(find(&call, id).await?.into()))
}

async fn members(
    call: Call,
    Named(id): Named<Uuid>,
    Query(query): Query<MembersQuery>,
) -> Result<Json<Page<MemberView>>, Problem> {
    let mut page = MemberPage::first(query.limit.unwrap_or(page::LIMIT));
    page.after = page::read(MEMBERS, query.cursor.as_deref())?;
    let found = call.mainstay.joins().members(JoinId::from_uuid(id), page).await?;
    if found.is_empty() {
        find(&call, id).await?;
    }
    Ok(Json(Page::of(MEMBERS, page.limit, found, |one| one.work_item, MemberView::from)))
}

async fn attach(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<MembersBody>,
) -> Result<Json<AttachedView>, Problem> {
    call.check_batch("items", &body.items)?;
    let attached = call.joins().attach(JoinId::from_uuid(id), &items(&body.items)).await?;
    Ok(Json(AttachedView { added: attached.added, counted: attached.counted.map(CountedView::from) }))
}

async fn report(
    call: Call,
    Named((id, item)): Named<(Uuid, Uuid)>,
    Body(body): Body<ReportBody>,
) -> Result<Json<ReportedView>, Problem> {
    let step = match body.step {
        StepBody::Completed => Step::Completed,
        StepBody::Failed => Step::Failed,
    };
    let reported = call.joins().report(JoinId::from_uuid(id), WorkItemId::from_uuid(item), step).await?;
    Ok(Json(match reported {
        Reported::Counted(counted) => ReportedView { counted: true, state: Some(counted.state.as_str()) },
        Reported::Already => ReportedView { counted: false, state: None },
        Reported::Ended(state) => ReportedView { counted: false, state: Some(state.as_str()) },
    }))
}

async fn cancel(call: Call, Named(id): Named<Uuid>) -> Result<Json<CancelledView>, Problem> {
    let cancelled = call.joins().cancel(JoinId::from_uuid(id)).await?;
    Ok(Json(CancelledView { changed: cancelled.changed, messages: ids(&cancelled.messages) }))
}
