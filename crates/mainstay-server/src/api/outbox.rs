//! The outbox: messages that are enqueued here, and handled at least once.

use axum::Json;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use mainstay_core::WorkItemId;
use mainstay_core::outbox::{MessageFilter, Page as OutboxPage};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::mending::{ChangeView, ChangedView, IdsBody};
use super::message::{EnqueuedView, MessageView, NewMessage, ids, items};
use super::work::{
    self, AbandonBody, ClaimBody, ClaimsBody, ClaimsView, FailBody, ReleaseBody, RenewBody, SettleBody,
    SettledView,
};
use crate::chores::KEY_HEADER;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "outbox";

/// Messages of a page that has their payloads: each may be as large as a body.
const PAYLOADS: u32 = 20;

/// Several messages: all are enqueued, or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MessageBatch)]
struct BatchBody {
    /// The messages.
    messages: Vec<NewMessage>,
}

/// What became of several messages.
#[derive(Serialize, ToSchema)]
#[schema(as = EnqueuedBatch)]
struct BatchView {
    /// In the order of the messages.
    items: Vec<EnqueuedView>,
}

/// Which messages.
#[derive(Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(super) struct MessagesQuery {
    /// Only this topic.
    topic: Option<String>,
    /// Only this status: `ready`, `in-progress`, `done` or `failed`.
    status: Option<String>,
    /// Only failed ones with this reason: `handler`, `delivery-limit`, `expired` or `cancelled`.
    reason: Option<String>,
    /// Only this correlation id.
    correlation_id: Option<String>,
    /// Only those settled at or after this moment.
    settled_after: Option<Timestamp>,
    /// Only those settled before this moment.
    settled_before: Option<Timestamp>,
    /// Whether payloads are told, too, to those who may see them. Defaults to false: a message by its id has its payload.
    #[serde(default)]
    payload: bool,
    /// Items at most; up to 20 with their payloads. Defaults to 100, or to 20.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl MessagesQuery {
    pub(super) fn filter(&self, call: &Call) -> Result<MessageFilter, Problem> {
        let filter = FilterBody {
            topic: self.topic.clone(),
            reason: self.reason.clone(),
            correlation_id: self.correlation_id.clone(),
            settled_after: self.settled_after,
            settled_before: self.settled_before,
        };
        let mut filter = filter.into_filter()?;
        filter.status = self.status.as_deref().map(str::parse).transpose()?;
        filter.without_payloads = !self.payload || !call.shows();
        Ok(filter)
    }

    pub(super) fn page(&self, list: &str) -> Result<OutboxPage, Problem> {
        let before = page::read::<WorkItemId>(list, self.cursor.as_deref())?;
        let most = if self.payload { PAYLOADS } else { page::LIMIT };
        let limit = self.limit.unwrap_or(most);
        if self.payload && limit > PAYLOADS {
            let text = format_args!("must be at most {PAYLOADS} with payload=true, got {limit}");
            return Err(Problem::invalid("limit", text));
        }
        Ok(OutboxPage { limit, before })
    }
}

/// Which messages; those that match all that is given.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MessageFilter)]
struct FilterBody {
    /// Only this topic.
    topic: Option<String>,
    /// Only with this reason: `handler`, `delivery-limit`, `expired` or `cancelled`.
    reason: Option<String>,
    /// Only this correlation id.
    correlation_id: Option<String>,
    /// Only those settled at or after this moment.
    settled_after: Option<Timestamp>,
    /// Only those settled before this moment.
    settled_before: Option<Timestamp>,
}

impl FilterBody {
    fn into_filter(self) -> Result<MessageFilter, Problem> {
        let mut filter = MessageFilter::all();
        filter.topic = self.topic;
        filter.reason = self.reason.as_deref().map(str::parse).transpose()?;
        filter.correlation_id = self.correlation_id;
        filter.settled_after = self.settled_after;
        filter.settled_before = self.settled_before;
        for (field, text) in [("topic", &filter.topic), ("correlation_id", &filter.correlation_id)] {
            if let Some(text) = text {
                mainstay_core::text::validate_nul("outbox.list", field, text)?;
            }
        }
        Ok(filter)
    }
}

/// Which failed messages are to be ready again: these, or those that match.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Requeue)]
struct RequeueBody {
    /// Their ids.
    ids: Option<Vec<Uuid>>,
    /// Those that match instead, the oldest failure first.
    filter: Option<FilterBody>,
    /// With `filter`: how many at most. Defaults to 1,000.
    #[schema(minimum = 1, maximum = 100000)]
    limit: Option<u32>,
}

/// An ordering key.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = OrderingKey)]
struct KeyBody {
    /// The key.
    #[schema(min_length = 1, max_length = 255)]
    ordering_key: String,
}

/// What is answered to an id that is known.
const USED_ID: &str = "409 `already-exists` with `work_item_id` and `work_item_status` if a message has the `id` that was given, \
    open or settled; then nothing is added.";

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post("/v1/outbox/messages", "enqueue", "Enqueue a message")
            .note(USED_ID)
            .header("Idempotency-Key", "Enqueued at most once per key.")
            .header("traceparent", "The trace that the message continues (W3C Trace Context).")
            .body::<NewMessage>()
            .answer::<EnqueuedView>(200, "The idempotency key was known; nothing was added.")
            .answer::<EnqueuedView>(201, "Enqueued. It is durable."),
        enqueue,
    );
    all.add(
        Endpoint::post("/v1/outbox/messages/batch", "enqueueBatch", "Enqueue several messages, all or none")
            .note(USED_ID)
            .body::<BatchBody>()
            .answer::<BatchView>(200, "Enqueued, but for those whose idempotency key was known."),
        enqueue_batch,
    );
    all.add(
        Endpoint::get("/v1/outbox/messages", "listMessages", "List messages, newest first")
            .query::<MessagesQuery>()
            .answer::<Page<MessageView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/outbox/messages/{id}", "getMessage", "Look at a message")
            .etag_of_payload()
            .answer::<MessageView>(200, "The message."),
        get,
    );
    all.add(
        Endpoint::post(
            "/v1/outbox/messages/cancel",
            "cancelMessages",
            "Cancel messages that have not started",
        )
        .body::<IdsBody>()
        .answer::<ChangedView>(200, "Those that were cancelled."),
        cancel,
    );
    all.add(
        Endpoint::post("/v1/outbox/messages/requeue", "requeueMessages", "Make failed messages ready again")
            .body::<RequeueBody>()
            .answer::<ChangedView>(200, "Those that are ready again."),
        requeue,
    );
    all.add(
        Endpoint::post(
            "/v1/outbox/keys/release",
            "releaseKey",
            "Let an ordering key go on without the failed message that holds it",
        )
        .body::<KeyBody>()
        .answer::<ChangeView>(200, "Whether it was held."),
        release_key,
    );
    all.add(
        Endpoint::post("/v1/outbox/claims", "claimMessages", "Claim due messages")
            .note("With `wait_seconds` it waits for work. An empty list is an answer like any other.")
            .body::<ClaimBody>()
            .answer::<ClaimsView>(200, "What was claimed."),
        claim,
    );
    all.add(
        work_endpoint("/v1/outbox/claims/ack", "ackMessages", "Say that claimed messages are handled")
            .body::<ClaimsBody>(),
        ack,
    );
    all.add(
        work_endpoint("/v1/outbox/claims/abandon", "abandonMessages", "Have claimed messages tried again")
            .body::<AbandonBody>(),
        abandon,
    );
    all.add(
        work_endpoint("/v1/outbox/claims/fail", "failMessages", "Fail claimed messages for good")
            .body::<FailBody>(),
        fail,
    );
    all.add(
        work_endpoint(
            "/v1/outbox/claims/release",
            "releaseMessages",
            "Give claimed messages back; the delivery does not count",
        )
        .body::<ReleaseBody>(),
        release,
    );
    all.add(
        work_endpoint("/v1/outbox/claims/renew", "renewMessages", "Hold claims for longer")
            .body::<RenewBody>(),
        renew,
    );
    all.add(
        work_endpoint("/v1/outbox/claims/settle", "settleMessages", "End claims, each in its own way")
            .body::<SettleBody>(),
        settle,
    );
}

/// What is true of every operation on claims.
const OF_CLAIMS: &str = "All of it is checked before anything is written. What one request, or one `owner`, has claimed is written in \
    one transaction; claims of several, in one each. If the database fails between those, the problem tells what was `changed` and \
    `stale` before; sending it again is safe. Where none of the claims holds any more it is 409 `claim-lost`.";

/// An operation on claims.
pub(super) fn work_endpoint(path: &'static str, id: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::post(path, id, summary)
        .note(OF_CLAIMS)
        .answer::<SettledView>(200, "What was changed, and what was stale.")
}

/// The key of the header, which must not contradict the one in the body.
pub(super) fn take_key(headers: &HeaderMap, key: &mut Option<String>) -> Result<(), Problem> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(()) };
    if values.next().is_some() {
        return Err(Problem::invalid("Idempotency-Key", "must be given once"));
    }
    let given = value
        .to_str()
        .map_err(|_| Problem::invalid("Idempotency-Key", "must be visible ASCII characters"))?;
    match key {
        Some(own) if own != given => Err(Problem::invalid(
            "Idempotency-Key",
            "must be the same as idempotency_key in the body, if both are given",
        )),
        _ => {
            *key = Some(given.to_owned());
            Ok(())
        }
    }
}

/// 201 with where it is, or 200 if it was there. `place` is the last part of the path: so it holds wherever the router is mounted.
pub(super) fn created(place: &str, view: EnqueuedView) -> Response {
    let added = view.added;
    let location = HeaderValue::from_str(&format!("{place}/{}", view.id));
    let status = if added { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(view)).into_response();
    if let (true, Ok(location)) = (added, location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

async fn enqueue(
    call: Call,
    headers: HeaderMap,
    Body(mut body): Body<NewMessage>,
) -> Result<Response, Problem> {
    take_key(&headers, &mut body.idempotency_key)?;
    let enqueued = call.outbox().enqueue(body.into_message()?).await?;
    Ok(created("messages", enqueued.into()))
}

async fn enqueue_batch(call: Call, Body(body): Body<BatchBody>) -> Result<Json<BatchView>, Problem> {
    call.check_batch("messages", &body.messages)?;
    let messages = body.messages.into_iter().map(NewMessage::into_message);
    let enqueued = call.outbox().enqueue_many(messages.collect::<Result<_, _>>()?).await?;
    Ok(Json(BatchView { items: enqueued.into_iter().map(EnqueuedView::from).collect() }))
}

async fn list(call: Call, Query(query): Query<MessagesQuery>) -> Result<Json<Page<MessageView>>, Problem> {
    let page = query.page(LIST)?;
    let found = call.mainstay.outbox().list(&query.filter(&call)?, page).await?;
    let shows = call.shows();
    Ok(Json(Page::of(LIST, page.limit, found, |one| one.id, |one| MessageView::new(one, shows))))
}

async fn get(call: Call, Named(id): Named<Uuid>) -> Result<Json<MessageView>, Problem> {
    let found = call.mainstay.outbox().get(WorkItemId::from_uuid(id)).await?;
    let found = found.ok_or_else(|| Problem::not_found(format_args!("message {id} in the outbox")))?;
    Ok(Json(MessageView::new(found, call.shows())))
}

async fn cancel(call: Call, Body(body): Body<IdsBody>) -> Result<Json<ChangedView>, Problem> {
    call.check_batch("ids", &body.ids)?;
    let changed = call.outbox().cancel(&items(&body.ids)).await?;
    Ok(Json(ChangedView { changed: ids(&changed) }))
}

async fn requeue(call: Call, Body(body): Body<RequeueBody>) -> Result<Json<ChangedView>, Problem> {
    let changed = match (body.ids, body.filter) {
        (Some(list), None) => {
            if body.limit.is_some() {
                return Err(Problem::invalid("limit", "must not be given together with ids"));
            }
            call.check_batch("ids", &list)?;
            call.outbox().requeue(&items(&list)).await?
        }
        (None, Some(filter)) => {
            let limit = body.limit.unwrap_or(1_000);
            if !(1..=100_000).contains(&limit) {
                return Err(Problem::invalid("limit", format_args!("must be 1 to 100,000, got {limit}")));
            }
            call.outbox().requeue_where(&filter.into_filter()?, limit).await?
        }
        _ => return Err(Problem::invalid("ids", "must be given, or filter: one of the two")),
    };
    Ok(Json(ChangedView { changed: ids(&changed) }))
}

async fn release_key(call: Call, Body(body): Body<KeyBody>) -> Result<Json<ChangeView>, Problem> {
    let changed = call.outbox().release_key(&body.ordering_key).await?;
    Ok(Json(ChangeView { changed }))
}

async fn claim(call: Call, Body(body): Body<ClaimBody>) -> Result<Json<ClaimsView>, Problem> {
    work::claim(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn ack(call: Call, Body(body): Body<ClaimsBody>) -> Result<Json<SettledView>, Problem> {
    work::ack(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn abandon(call: Call, Body(body): Body<AbandonBody>) -> Result<Json<SettledView>, Problem> {
    work::abandon(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn fail(call: Call, Body(body): Body<FailBody>) -> Result<Json<SettledView>, Problem> {
    work::fail(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn release(call: Call, Body(body): Body<ReleaseBody>) -> Result<Json<SettledView>, Problem> {
    work::release(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn renew(call: Call, Body(body): Body<RenewBody>) -> Result<Json<SettledView>, Problem> {
    work::renew(&call, call.mainstay.outbox(), body).await.map(Json)
}

async fn settle(call: Call, Body(body): Body<SettleBody>) -> Result<Json<SettledView>, Problem> {
    work::settle(&call, call.mainstay.outbox(), body).await.map(Json)
}
