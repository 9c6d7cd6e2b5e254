//! Timers: messages for later.

use axum::Json;
use axum::http::HeaderMap;
use axum::response::Response;
use jiff::Timestamp;
use mainstay_core::WorkItemId;
use mainstay_core::outbox::When;
use mainstay_core::timer::NewTimer;
use serde::Deserialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::mending::{ChangedView, IdsBody};
use super::message::{EnqueuedView, MessageView, NewMessage, ids, items};
use super::outbox::{MessagesQuery, created, take_key};
use super::time;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::Page;
use crate::problem::{Kind, Problem};
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "timers";

/// Another time for a timer: one of the two.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Due)]
struct DueBody {
    /// At this moment.
    due_at: Option<Timestamp>,
    /// This many seconds from the database's now.
    #[schema(minimum = 0, maximum = 31536000000_f64)]
    due_in_seconds: Option<f64>,
}

impl DueBody {
    fn when(&self) -> Result<When, Problem> {
        let when = time::when("due", self.due_at, self.due_in_seconds)?;
        when.ok_or_else(|| Problem::invalid("due_at", "must be given, or due_in_seconds: one of the two"))
    }
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post("/v1/timers", "scheduleTimer", "Schedule a message for later")
            .note("One of `due_at` and `due_in_seconds` must be given. When it is due it becomes a message of the outbox, under the same id. \
                   409 `already-exists` if a timer has the `id` that was given.")
            .header("Idempotency-Key", "Scheduled at most once per key.")
            .body::<NewMessage>()
            .answer::<EnqueuedView>(200, "The idempotency key was known; nothing was added.")
            .answer::<EnqueuedView>(201, "Scheduled. It is durable."),
        schedule,
    );
    all.add(
        Endpoint::get("/v1/timers", "listTimers", "List timers, newest first")
            .note("`ready` are waiting, `done` have fired.")
            .query::<MessagesQuery>()
            .answer::<Page<MessageView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/timers/{id}", "getTimer", "Look at a timer")
            .etag_of_payload()
            .answer::<MessageView>(200, "The timer."),
        get,
    );
    all.add(
        Endpoint::patch("/v1/timers/{id}", "rescheduleTimer", "Give a timer another time")
            .note("409 `conflict` if it no longer waits.")
            .body::<DueBody>()
            .answer::<MessageView>(200, "The timer as it is now."),
        reschedule,
    );
    all.add(
        Endpoint::post("/v1/timers/cancel", "cancelTimers", "Cancel timers that wait")
            .body::<IdsBody>()
            .answer::<ChangedView>(200, "Those that were cancelled."),
        cancel,
    );
}

async fn schedule(
    call: Call,
    headers: HeaderMap,
    Body(mut body): Body<NewMessage>,
) -> Result<Response, Problem> {
    take_key(&headers, &mut body.idempotency_key)?;
    let due = body.take_due()?;
    let timer = NewTimer::from_message(body.into_message()?, due);
    let scheduled = call.timers().schedule(timer).await?;
    Ok(created("timers", scheduled.into()))
}

async fn list(call: Call, Query(query): Query<MessagesQuery>) -> Result<Json<Page<MessageView>>, Problem> {
    let page = query.page(LIST)?;
    let found = call.mainstay.timers().list(&query.filter(&call)?, page).await?;
    let shows = call.shows();
    let view = |one: mainstay_core::timer::Timer| MessageView::new(one.record().clone(), shows);
    Ok(Json(Page::of(LIST, page.limit, found, |one| one.id(), view)))
}

async fn find(call: &Call, id: Uuid) -> Result<Json<MessageView>, Problem> {
    let found = call.mainstay.timers().get(WorkItemId::from_uuid(id)).await?;
    let found = found.ok_or_else(|| Problem::not_found(format_args!("timer {id}")))?;
    Ok(Json(MessageView::new(found.record().clone(), call.shows())))
}

async fn get(call: Call, Named(id): Named<Uuid>) -> Result<Json<MessageView>, Problem> {
    find(&call, id).await
}

async fn reschedule(
    call: Call,
    Named(id): Named<Uuid>,
    Body(body): Body<DueBody>,
) -> Result<Json<MessageView>, Problem> {
    let changed = call.timers().reschedule(WorkItemId::from_uuid(id), body.when()?).await?;
    let found = find(&call, id).await?;
    if !changed {
        let text = "the timer no longer waits: it has fired, is cancelled, or somebody has claimed it";
        return Err(Problem::new(Kind::Conflict, text));
    }
    Ok(found)
}

async fn cancel(call: Call, Body(body): Body<IdsBody>) -> Result<Json<ChangedView>, Problem> {
    call.check_batch("ids", &body.ids)?;
    let changed = call.timers().cancel_many(&items(&body.ids)).await?;
    Ok(Json(ChangedView { changed: ids(&changed) }))
}
