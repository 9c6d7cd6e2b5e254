//! The inbox: messages that come from elsewhere, each handled once however often it is delivered.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use mainstay_core::inbox::{ContentHash, InboxEntry, InboxFilter, InboxKey, InboxPage, Incoming, Received};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::mending::ChangeView;
use super::message::NewMessage;
use super::outbox::work_endpoint;
use super::reservations;
use super::work::{
    self, AbandonBody, ClaimBody, ClaimsBody, ClaimsView, FailBody, ReleaseBody, RenewBody, SettleBody,
    SettledView,
};
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "inbox";

/// A message that came from elsewhere.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Incoming)]
struct IncomingBody {
    /// Where it comes from.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Its id there.
    #[schema(min_length = 1, max_length = 512)]
    message_id: String,
    /// The SHA-256 that its content is compared by, in hexadecimal digits. Defaults to that of the payload.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    hash: Option<String>,
    /// What is to be worked. It has neither an idempotency key nor joins.
    message: NewMessage,
}

/// Several messages: all are received, or none.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = IncomingBatch)]
struct IncomingsBody {
    /// The messages.
    messages: Vec<IncomingBody>,
}

/// What became of a received message.
#[derive(Serialize, ToSchema)]
#[schema(as = Received)]
struct ReceivedView {
    /// `added`, `replaced` (it was waiting), `revived` (it was dead), `in-progress` or `done`.
    outcome: String,
    /// Its id in the queue.
    id: Option<Uuid>,
    /// Whether it was seen before with another content.
    hash_mismatch: bool,
}

/// What became of several received messages.
#[derive(Serialize, ToSchema)]
#[schema(as = ReceivedBatch)]
struct ReceivedsView {
    /// In the order of the messages.
    items: Vec<ReceivedView>,
}

/// A message by where it comes from.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = InboxKey)]
struct KeyBody {
    /// Where it comes from.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Its id there.
    #[schema(min_length = 1, max_length = 512)]
    message_id: String,
}

/// A message by where it comes from, and its content.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = SeenQuestion)]
struct SeenBody {
    /// Where it comes from.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Its id there.
    #[schema(min_length = 1, max_length = 512)]
    message_id: String,
    /// The SHA-256 of its content, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    hash: Option<String>,
}

/// What is known of a message.
#[derive(Serialize, ToSchema)]
#[schema(as = Seen)]
struct SeenView {
    /// Whether it is done.
    processed: bool,
    /// Whether it was seen before with another content.
    hash_mismatch: bool,
}

/// How far a message is, said by hand.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Mark)]
struct MarkBody {
    /// Where it comes from.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Its id there.
    #[schema(min_length = 1, max_length = 512)]
    message_id: String,
    /// How far it is.
    state: MarkState,
    /// For `dead`: why.
    error: Option<String>,
}

/// How far a message is.
#[derive(Clone, Copy, PartialEq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum MarkState {
    /// It is done, whoever is at it.
    Done,
    /// It is given up.
    Dead,
}

/// Which dead messages are to live again: these, or those that match.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Revive)]
struct ReviveBody {
    /// The messages.
    keys: Option<Vec<KeyBody>>,
    /// Those that match instead.
    filter: Option<ReviveFilter>,
    /// With `filter`: how many at most. Defaults to 1,000.
    #[schema(minimum = 1, maximum = 100000)]
    limit: Option<u32>,
}

/// Which messages; those that match all that is given.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ReviveFilter {
    /// Only from this source.
    source: Option<String>,
    /// Only of this topic.
    topic: Option<String>,
}

/// Which messages live again.
#[derive(Serialize, ToSchema)]
#[schema(as = Revived)]
struct RevivedView {
    /// Those that were dead.
    changed: Vec<KeyView>,
}

/// A message by where it comes from.
#[derive(Serialize, ToSchema)]
#[schema(as = RevivedKey)]
struct KeyView {
    /// Where it comes from.
    source: String,
    /// Its id there.
    message_id: String,
}

/// Which messages of the ledger.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct EntriesQuery {
    /// Only from this source.
    source: Option<String>,
    /// Only in this state: `seen`, `processing`, `done` or `dead`.
    state: Option<String>,
    /// Only of this topic.
    topic: Option<String>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A received message as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = InboxEntry)]
struct EntryView {
    /// Where it comes from.
    source: String,
    /// Its id there.
    message_id: String,
    /// `seen`, `processing`, `done` or `dead`.
    state: String,
    /// When it was first seen.
    first_seen_at: Timestamp,
    /// When it was last seen.
    last_seen_at: Timestamp,
    /// When it was done, or given up.
    processed_at: Option<Timestamp>,
    /// Deliveries to workers, or reservations.
    attempts: u32,
    /// Until when it is reserved, or held by a worker.
    locked_until: Option<Timestamp>,
    /// The last error.
    last_error: Option<String>,
    /// Its id in the queue. Null if it was never enqueued.
    id: Option<Uuid>,
    /// Its topic in the queue.
    topic: Option<String>,
}

impl From<InboxEntry> for EntryView {
    fn from(entry: InboxEntry) -> Self {
        Self {
            source: entry.key.source().to_owned(),
            message_id: entry.key.message_id().to_owned(),
            state: entry.state.to_string(),
            first_seen_at: entry.first_seen_at,
            last_seen_at: entry.last_seen_at,
            processed_at: entry.processed_at,
            attempts: entry.attempts,
            locked_until: entry.locked_until,
            last_error: entry.last_error,
            id: entry.work_item.map(|id| id.as_uuid()),
            topic: entry.topic,
        }
    }
}

pub(super) fn endpoints(all: &mut Endpoints) {
    queue_endpoints(all);
    ledger_endpoints(all);
    reservations::endpoints(all);
}

fn queue_endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post("/v1/inbox/messages", "receive", "Put a received message into the queue")
            .body::<IncomingBody>()
            .answer::<ReceivedView>(200, "It was known; the outcome says what became of it.")
            .answer::<ReceivedView>(201, "It is in the queue. It is durable."),
        receive,
    );
    all.add(
        Endpoint::post(
            "/v1/inbox/messages/batch",
            "receiveBatch",
            "Put several received messages into the queue, all or none",
        )
        .body::<IncomingsBody>()
        .answer::<ReceivedsView>(200, "What became of each."),
        receive_batch,
    );
    all.add(
        Endpoint::post("/v1/inbox/claims", "claimReceived", "Claim due messages")
            .note("With `wait_seconds` it waits for work. An empty list is an answer like any other.")
            .body::<ClaimBody>()
            .answer::<ClaimsView>(200, "What was claimed."),
        claim,
    );
    all.add(
        work_endpoint("/v1/inbox/claims/ack", "ackReceived", "Say that claimed messages are handled")
            .body::<ClaimsBody>(),
        ack,
    );
    all.add(
        work_endpoint("/v1/inbox/claims/abandon", "abandonReceived", "Have claimed messages tried again")
            .body::<AbandonBody>(),
        abandon,
    );
    all.add(
        work_endpoint("/v1/inbox/claims/fail", "failClaimed", "Give claimed messages up").body::<FailBody>(),
        fail,
    );
    all.add(
        work_endpoint(
            "/v1/inbox/claims/release",
            "releaseClaimed",
            "Give claimed messages back; the delivery does not count",
        )
        .body::<ReleaseBody>(),
        release,
    );
    all.add(
        work_endpoint("/v1/inbox/claims/renew", "renewClaimed", "Hold claims for longer").body::<RenewBody>(),
        renew,
    );
    all.add(
        work_endpoint("/v1/inbox/claims/settle", "settleClaimed", "End claims, each in its own way")
            .body::<SettleBody>(),
        settle,
    );
}

fn ledger_endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/inbox/messages", "listReceived", "List received messages, newest first")
            .query::<EntriesQuery>()
            .answer::<Page<EntryView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get(
            "/v1/inbox/messages/{source}/{message_id}",
            "getReceived",
            "Look at a received message",
        )
        .etag_of_payload()
        .answer::<EntryView>(200, "The message."),
        get,
    );
    all.add(
        Endpoint::post(
            "/v1/inbox/messages/seen",
            "seen",
            "Ask whether a message is done, and note it as seen",
        )
        .note("It keeps nobody from handling the message at the same time: reserve it for that.")
        .body::<SeenBody>()
        .answer::<SeenView>(200, "What is known of it."),
        seen,
    );
    all.add(
        Endpoint::post(
            "/v1/inbox/messages/mark",
            "markReceived",
            "Say by hand that a message is done, or given up",
        )
        .body::<MarkBody>()
        .answer::<ChangeView>(200, "Whether that changed anything."),
        mark,
    );
    all.add(
        Endpoint::post("/v1/inbox/messages/revive", "reviveReceived", "Make dead messages live again")
            .body::<ReviveBody>()
            .answer::<RevivedView>(200, "Those that live again."),
        revive,
    );
}

pub(super) fn hash(text: Option<&str>) -> Result<Option<ContentHash>, Problem> {
    let wrong = || Problem::invalid("hash", "must be a SHA-256: 64 hexadecimal digits");
    text.map(|text| ContentHash::from_hex(text).ok_or_else(wrong)).transpose()
}

impl IncomingBody {
    fn into_incoming(self) -> Result<Incoming, Problem> {
        let incoming = Incoming::new(self.source, self.message_id, self.message.into_message()?);
        Ok(match hash(self.hash.as_deref())? {
            Some(hash) => incoming.hash(hash),
            None => incoming,
        })
    }
}

impl From<Received> for ReceivedView {
    fn from(received: Received) -> Self {
        Self {
            outcome: received.outcome.to_string(),
            id: received.work_item.map(|id| id.as_uuid()),
            hash_mismatch: received.hash_mismatch,
        }
    }
}

async fn receive(call: Call, Body(body): Body<IncomingBody>) -> Result<Response, Problem> {
    let received = call.inbox().enqueue(body.into_incoming()?).await?;
    let status = if received.outcome.is_duplicate() { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(ReceivedView::from(received))).into_response())
}

async fn receive_batch(call: Call, Body(body): Body<IncomingsBody>) -> Result<Json<ReceivedsView>, Problem> {
    call.check_batch("messages", &body.messages)?;
    let incoming = body.messages.into_iter().map(IncomingBody::into_incoming);
    let received = call.inbox().enqueue_many(incoming.collect::<Result<_, _>>()?).await?;
    Ok(Json(ReceivedsView { items: received.into_iter().map(ReceivedView::from).collect() }))
}

async fn list(call: Call, Query(query): Query<EntriesQuery>) -> Result<Json<Page<EntryView>>, Problem> {
    let after = page::read::<(String, String)>(LIST, query.cursor.as_deref())?;
    let after = after.map(|(source, id)| InboxKey::new(source, id)).transpose()?;
    let mut filter = InboxFilter::all();
    filter.state = query.state.as_deref().map(str::parse).transpose()?;
    (filter.source, filter.topic) = (query.source, query.topic);
    check(&filter)?;
    let page = InboxPage { limit: query.limit.unwrap_or(page::LIMIT), after };
    let found = call.mainstay.inbox().list(&filter, &page).await?;
    let key = |one: &InboxEntry| (one.key.source().to_owned(), one.key.message_id().to_owned());
    Ok(Json(Page::of(LIST, page.limit, found, key, EntryView::from)))
}

/// Some databases can't even be asked for a NUL character.
fn check(filter: &InboxFilter) -> Result<(), Problem> {
    for (field, text) in [("source", &filter.source), ("topic", &filter.topic)] {
        if let Some(text) = text {
            mainstay_core::text::validate_nul("inbox.list", field, text)?;
        }
    }
    Ok(())
}

async fn get(call: Call, Named((source, id)): Named<(String, String)>) -> Result<Json<EntryView>, Problem> {
    let found = call.mainstay.inbox().get(&source, &id).await?;
    let found =
        found.ok_or_else(|| Problem::not_found(format_args!("message {id:?} of {source:?} in the inbox")))?;
    Ok(Json(found.into()))
}

async fn seen(call: Call, Body(body): Body<SeenBody>) -> Result<Json<SeenView>, Problem> {
    let hash = hash(body.hash.as_deref())?;
    let seen = call.inbox().already_processed(&body.source, &body.message_id, hash).await?;
    Ok(Json(SeenView { processed: seen.processed, hash_mismatch: seen.hash_mismatch }))
}

async fn mark(call: Call, Body(body): Body<MarkBody>) -> Result<Json<ChangeView>, Problem> {
    if body.state == MarkState::Done && body.error.is_some() {
        return Err(Problem::invalid("error", "must not be given where the state is done"));
    }
    let changed = match body.state {
        MarkState::Done => call.inbox().mark_processed(&body.source, &body.message_id).await?,
        MarkState::Dead => call.inbox().mark_dead(&body.source, &body.message_id, body.error).await?,
    };
    Ok(Json(ChangeView { changed }))
}

async fn revive(call: Call, Body(body): Body<ReviveBody>) -> Result<Json<RevivedView>, Problem> {
    let revived = match (body.keys, body.filter) {
        (Some(list), None) => {
            if body.limit.is_some() {
                return Err(Problem::invalid("limit", "must not be given together with keys"));
            }
            call.check_batch("keys", &list)?;
            let keys = list.into_iter().map(|key| InboxKey::new(key.source, key.message_id));
            call.inbox().revive(&keys.collect::<Result<Vec<_>, _>>()?).await?
        }
        (None, Some(wanted)) => {
            let limit = body.limit.unwrap_or(1_000);
            if !(1..=100_000).contains(&limit) {
                return Err(Problem::invalid("limit", format_args!("must be 1 to 100,000, got {limit}")));
            }
            let mut filter = InboxFilter::all();
            (filter.source, filter.topic) = (wanted.source, wanted.topic);
            check(&filter)?;
            call.inbox().revive_where(&filter, limit).await?
        }
        _ => return Err(Problem::invalid("keys", "must be given, or filter: one of the two")),
    };
    let view =
        |key: InboxKey| KeyView { source: key.source().to_owned(), message_id: key.message_id().to_owned() };
    Ok(Json(RevivedView { changed: revived.into_iter().map(view).collect() }))
}

async fn claim(call: Call, Body(body): Body<ClaimBody>) -> Result<Json<ClaimsView>, Problem> {
    work::claim(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn ack(call: Call, Body(body): Body<ClaimsBody>) -> Result<Json<SettledView>, Problem> {
    work::ack(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn abandon(call: Call, Body(body): Body<AbandonBody>) -> Result<Json<SettledView>, Problem> {
    work::abandon(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn fail(call: Call, Body(body): Body<FailBody>) -> Result<Json<SettledView>, Problem> {
    work::fail(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn release(call: Call, Body(body): Body<ReleaseBody>) -> Result<Json<SettledView>, Problem> {
    work::release(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn renew(call: Call, Body(body): Body<RenewBody>) -> Result<Json<SettledView>, Problem> {
    work::renew(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}

async fn settle(call: Call, Body(body): Body<SettleBody>) -> Result<Json<SettledView>, Problem> {
    work::settle(&call, call.mainstay.inbox().queue(), body).await.map(Json)
}
