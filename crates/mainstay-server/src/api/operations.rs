//! Operations: work that takes a while, followed from its start to its end.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::StatusCode;
use jiff::Timestamp;
use mainstay_core::operation::{
    Ended, EventPage, NewEvent, NewOperation, Operation, OperationEnd, OperationEvent, OperationFilter,
    OperationId, OperationPage, Progress,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "operations";
const EVENTS: &str = "events";

/// An operation to be started.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOperation)]
struct OperationBody {
    /// What it is.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// What it is a part of.
    parent: Option<Uuid>,
    /// What it belongs to.
    #[schema(max_length = 255)]
    correlation_id: Option<String>,
    /// How much there is to do.
    total: Option<u64>,
    /// What it is at, for people.
    message: Option<String>,
    /// What it is found by, up to 32.
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// An operation that was started.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationStarted)]
struct StartedView {
    /// Its id.
    id: Uuid,
}

/// How far an operation has come. Nothing at all is a sign of life.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OperationProgress)]
struct ProgressBody {
    /// How much is done.
    done: Option<u64>,
    /// How much there is.
    total: Option<u64>,
    /// What it is at, for people.
    message: Option<String>,
}

/// Something that happened in an operation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewOperationEvent)]
struct EventBody {
    /// What kind of thing.
    #[schema(min_length = 1, max_length = 64)]
    kind: String,
    /// What happened, for people.
    message: Option<String>,
    /// What happened, for programs: up to 16 KiB of JSON.
    data: Option<Value>,
}

/// An event that was recorded.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationEventAdded)]
struct NotedView {
    /// Its number in the operation.
    number: u64,
}

/// How an operation ends.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OperationEnd)]
struct EndBody {
    /// How.
    state: EndState,
    /// With `failed`: why.
    error: Option<String>,
}

/// How an operation ends.
#[derive(Clone, Copy, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OperationEndState)]
enum EndState {
    /// It was done.
    Succeeded,
    /// It failed.
    Failed,
    /// It was called off.
    Cancelled,
}

/// What ending an operation has done.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationEnded)]
struct EndedView {
    /// False if it had ended before, which stays.
    changed: bool,
    /// The state it is in.
    state: &'static str,
}

/// An operation as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Operation)]
struct OperationView {
    /// Its id.
    id: Uuid,
    /// What it is.
    name: String,
    /// What it is a part of.
    parent: Option<Uuid>,
    /// `running`, `succeeded`, `failed`, `cancelled` or `stalled`.
    state: &'static str,
    /// How much is done.
    done: Option<u64>,
    /// How much there is.
    total: Option<u64>,
    /// What it is at.
    message: Option<String>,
    /// Why it failed.
    error: Option<String>,
    /// Who started it.
    actor: String,
    /// What it belongs to.
    correlation_id: Option<String>,
    /// What it is found by.
    tags: BTreeMap<String, String>,
    /// How many events it has.
    events: u64,
    /// When it was started.
    started_at: Timestamp,
    /// When it last showed a sign of life.
    updated_at: Timestamp,
    /// When it ended.
    ended_at: Option<Timestamp>,
}

impl From<Operation> for OperationView {
    fn from(operation: Operation) -> Self {
        Self {
            id: operation.id.as_uuid(),
            name: operation.name,
            parent: operation.parent.map(|id| id.as_uuid()),
            state: operation.state.as_str(),
            done: operation.progress.done,
            total: operation.progress.total,
            message: operation.progress.message,
            error: operation.error,
            actor: operation.actor,
            correlation_id: operation.correlation_id,
            tags: operation.tags,
            events: operation.events,
            started_at: operation.started_at,
            updated_at: operation.updated_at,
            ended_at: operation.ended_at,
        }
    }
}

/// Something that happened in an operation.
#[derive(Serialize, ToSchema)]
#[schema(as = OperationEvent)]
struct EventView {
    /// Its number in the operation, from 1.
    number: u64,
    /// When.
    recorded_at: Timestamp,
    /// What kind of thing.
    kind: String,
    /// What happened, for people.
    message: Option<String>,
    /// What happened, for programs.
    data: Option<Value>,
}

impl From<OperationEvent> for EventView {
    fn from(event: OperationEvent) -> Self {
        let OperationEvent { seq, recorded_at, kind, message, data, .. } = event;
        Self { number: seq, recorded_at, kind, message, data }
    }
}

/// Which operations.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct OperationsQuery {
    /// Only names that begin with this.
    name: Option<String>,
    /// Only in this state.
    state: Option<String>,
    /// Only with this tag: `key=value`.
    tag: Option<String>,
    /// Only parts of this operation.
    parent: Option<Uuid>,
    /// Only with this correlation id.
    correlation_id: Option<String>,
    /// Only those started at or after this moment.
    after: Option<Timestamp>,
    /// Only those started before this moment.
    before: Option<Timestamp>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Which events.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post("/v1/operations", "startOperation", "Start an operation")
            .note("Whoever starts it shows signs of life, and ends it.")
            .body::<OperationBody>()
            .answer::<StartedView>(201, "It runs."),
        start,
    );
    all.add(
        Endpoint::get("/v1/operations", "listOperations", "List operations, newest first")
            .query::<OperationsQuery>()
            .answer::<Page<OperationView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/operations/{id}", "getOperation", "Look at an operation")
            .etag()
            .answer::<OperationView>(200, "The operation."),
        get,
    );
    all.add(
        Endpoint::post(
            "/v1/operations/{id}/progress",
            "progressOperation",
            "Tell how far an operation has come",
        )
        .note("One that has ended refuses it: it is time to stop.")
        .body::<ProgressBody>()
        .empty(204, "It is recorded."),
        progress,
    );
    all.add(
        Endpoint::post("/v1/operations/{id}/end", "endOperation", "End an operation; the first end stays")
            .body::<EndBody>()
            .answer::<EndedView>(200, "How it has ended."),
        end,
    );
    all.add(
        Endpoint::post(
            "/v1/operations/{id}/events",
            "addOperationEvent",
            "Record something that happened in an operation",
        )
        .body::<EventBody>()
        .answer::<NotedView>(201, "It is recorded."),
        note,
    );
    all.add(
        Endpoint::get(
            "/v1/operations/{id}/events",
            "listOperationEvents",
            "List the events of an operation, in their order",
        )
        .query::<EventsQuery>()
        .answer::<Page<EventView>>(200, "A page of them."),
        events,
    );
}

async fn start(
    call: Call,
    Body(body): Body<OperationBody>,
) -> Result<(StatusCode, Json<StartedView>), Problem> {
    let mut new = NewOperation::new(body.name).correlation_id(body.correlation_id.unwrap_or_default());
    if let Some(parent) = body.parent {
        new = new.parent(OperationId::from_uuid(parent));
    }
    if let Some(total) = body.total {
        new = new.total(total);
    }
    if let Some(message) = body.message {
        new = new.message(message);
    }
    for (key, value) in body.tags {
        new = new.tag(key, value);
    }
    let id = call.operations().start(new).await?;
    Ok((StatusCode::CREATED, Json(StartedView { id: id.as_uuid() })))
}

async fn list(
    call: Call,
    Query(query): Query<OperationsQuery>,
) -> Result<Json<Page<OperationView>>, Problem> {
    let mut filter = OperationFilter::all();
    filter.name = query.name;
    filter.state = query.state.as_deref().map(str::parse).transpose()?;
    filter.parent = query.parent.map(OperationId::from_uuid);
    filter.correlation_id = query.correlation_id;
    (filter.after, filter.before) = (query.after, query.before);
    if let Some(tag) = query.tag {
        let (key, value) = tag.split_once('=').ok_or_else(|| Problem::invalid("tag", "must be key=value"))?;
        filter = filter.tag(key, value);
    }
    let before = page::read(LIST, query.cursor.as_deref())?;
    let page = OperationPage { limit: query.limit.unwrap_or(page::LIMIT), before };
    let found = call.mainstay.operations().list(&filter, page).await?;
    Ok(Json(Page::of(LIST, page.limit, found, |one| one.id, OperationView::from)))
}

async fn find(call: &Call, id: Uuid) -> Result<Operation, Problem> {
    let found = call.mainstay.operations().get(OperationId::from_uuid(id)).await?;
    found.ok_or_else(|| Problem::not_found(format_args!("operation {id}")))
}

async fn get(call: Call, Named(id): Named<Uuid>) -> Result<Json<OperationView>, Problem> {
    Ok(Json(find(&call, id).await?.into()))
}

async fn progress(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<ProgressBody>,
) -> Result<StatusCode, Problem> {
    let progress = Progress { done: body.done, total: body.total, message: body.message };
    call.operations().progress(OperationId::from_uuid(id), progress).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn end(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<EndBody>,
) -> Result<Json<EndedView>, Problem> {
    if body.state != EndState::Failed && body.error.is_some() {
        return Err(Problem::invalid("error", "must not be given unless the state is failed"));
    }
    let end = match body.state {
        EndState::Succeeded => OperationEnd::Succeeded,
        EndState::Failed => OperationEnd::failed(body.error.unwrap_or_default()),
        EndState::Cancelled => OperationEnd::Cancelled,
    };
    let state = end.state();
    Ok(Json(match call.operations().end(OperationId::from_uuid(id), end).await? {
        Ended::Now => EndedView { changed: true, state: state.as_str() },
        Ended::Before(state) => EndedView { changed: false, state: state.as_str() },
    }))
}

async fn note(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<EventBody>,
) -> Result<(StatusCode, Json<NotedView>), Problem> {
    let mut event = NewEvent::new(body.kind);
    if let Some(message) = body.message {
        event = event.message(message);
    }
    if let Some(data) = body.data {
        event = event.data(data);
    }
    let number = call.operations().event(OperationId::from_uuid(id), event).await?;
    Ok((StatusCode::CREATED, Json(NotedView { number })))
}

async fn events(
    call: Call,
    Named(id): Named<Uuid>,
    Query(query): Query<EventsQuery>,
) -> Result<Json<Page<EventView>>, Problem> {
    let after = page::read::<u64>(EVENTS, query.cursor.as_deref())?.unwrap_or_default();
    let page = EventPage { limit: query.limit.unwrap_or(page::LIMIT), after };
    let found = call.mainstay.operations().events(OperationId::from_uuid(id), page).await?;
    if found.is_empty() {
        find(&call, id).await?;
    }
    Ok(Json(Page::of(EVENTS, page.limit, found, |one| one.seq, EventView::from)))
}
