//! The audit trail: who did what, and what came of it.

use axum::Json;
use axum::http::StatusCode;
use jiff::Timestamp;
use mainstay_core::audit::{AuditEvent, AuditFilter, AuditId, AuditPage, AuditRecord};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "audit";

/// What a record is about.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Anchor)]
struct AnchorBody {
    /// What kind of thing.
    #[schema(min_length = 1, max_length = 64)]
    kind: String,
    /// Which one.
    #[schema(min_length = 1, max_length = 512)]
    value: String,
}

/// Something to be recorded.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAuditEvent)]
struct EventBody {
    /// What was done: `order.refund`.
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    /// `succeeded`, `failed` or `refused`. Defaults to `succeeded`.
    outcome: Option<String>,
    /// What it belongs to. Defaults to the id of the request.
    #[schema(max_length = 255)]
    correlation_id: Option<String>,
    /// What else there is to tell: up to 16 KiB of JSON, and no secrets.
    data: Option<Value>,
    /// What it is about, up to 100.
    #[serde(default)]
    anchors: Vec<AnchorBody>,
}

/// A record that was written.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditWritten)]
struct WrittenView {
    /// Its id.
    id: Uuid,
}

/// A record of the trail.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditRecord)]
struct RecordView {
    /// Its id.
    id: Uuid,
    /// When it was written.
    recorded_at: Timestamp,
    /// What was done.
    name: String,
    /// Who did it.
    actor: String,
    /// `succeeded`, `failed` or `refused`.
    outcome: &'static str,
    /// What it belongs to.
    correlation_id: Option<String>,
    /// What else there is to tell.
    data: Option<Value>,
    /// What it is about: the first 100.
    anchors: Vec<AnchorBody>,
}

impl From<AuditRecord> for RecordView {
    fn from(record: AuditRecord) -> Self {
        let anchors = record.anchors.into_iter();
        Self {
            id: record.id.as_uuid(),
            recorded_at: record.recorded_at,
            name: record.name,
            actor: record.actor,
            outcome: record.outcome.as_str(),
            correlation_id: record.correlation_id,
            data: record.data,
            anchors: anchors.map(|one| AnchorBody { kind: one.kind, value: one.value }).collect(),
        }
    }
}

/// Which records.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct AuditQuery {
    /// Only names that begin with this.
    name: Option<String>,
    /// Only of this actor.
    actor: Option<String>,
    /// Only about this kind of thing; `anchor_value` says which one.
    anchor_kind: Option<String>,
    /// Only about this thing.
    anchor_value: Option<String>,
    /// Only with this correlation id.
    correlation_id: Option<String>,
    /// Only with this outcome: `succeeded`, `failed` or `refused`.
    outcome: Option<String>,
    /// Only those written at or after this moment.
    after: Option<Timestamp>,
    /// Only those written before this moment.
    before: Option<Timestamp>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/audit", "listAudit", "List records, newest first")
            .query::<AuditQuery>()
            .answer::<Page<RecordView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/audit/{id}", "getAudit", "Look at a record")
            .etag()
            .answer::<RecordView>(200, "The record."),
        get,
    );
    all.add(
        Endpoint::post("/v1/audit", "writeAudit", "Record something that was done")
            .note("It is recorded as done by the one who asks.")
            .body::<EventBody>()
            .answer::<WrittenView>(201, "It is recorded."),
        write,
    );
}

async fn list(call: Call, Query(query): Query<AuditQuery>) -> Result<Json<Page<RecordView>>, Problem> {
    let mut filter = AuditFilter::all();
    match (query.anchor_kind, query.anchor_value) {
        (Some(kind), Some(value)) => filter = filter.anchor(kind, value),
        (None, None) => {}
        _ => return Err(Problem::invalid("anchor_kind", "must be given together with anchor_value")),
    }
    filter.outcome = query.outcome.as_deref().map(str::parse).transpose()?;
    (filter.name, filter.actor, filter.correlation_id) = (query.name, query.actor, query.correlation_id);
    (filter.after, filter.before) = (query.after, query.before);
    let texts =
        [("name", &filter.name), ("actor", &filter.actor), ("correlation_id", &filter.correlation_id)];
    for (field, text) in texts {
        if let Some(text) = text {
            mainstay_core::text::validate_nul("audit.list", field, text)?;
        }
    }
    let before = page::read(LIST, query.cursor.as_deref())?;
    let page = AuditPage { limit: query.limit.unwrap_or(page::LIMIT), before };
    let found = call.mainstay.audit().list(&filter, page).await?;
    Ok(Json(Page::of(LIST, page.limit, found, |one| one.id, RecordView::from)))
}

async fn get(call: Call, Named(id): Named<Uuid>) -> Result<Json<RecordView>, Problem> {
    let found = call.mainstay.audit().get(AuditId::from_uuid(id)).await?;
    Ok(Json(found.ok_or_else(|| Problem::not_found(format_args!("record {id}")))?.into()))
}

async fn write(call: Call, Body(body): Body<EventBody>) -> Result<(StatusCode, Json<WrittenView>), Problem> {
    let mut event = AuditEvent::new(body.name).correlation_id(body.correlation_id.unwrap_or_default());
    if let Some(outcome) = &body.outcome {
        event = event.outcome(outcome.parse()?);
    }
    if let Some(data) = body.data {
        event = event.data(data);
    }
    for anchor in body.anchors {
        event = event.anchor(anchor.kind, anchor.value);
    }
    let id = call.mainstay.audit().by(call.caller.actor()).write(event).await?;
    Ok((StatusCode::CREATED, Json(WrittenView { id: id.as_uuid() })))
}
