//! Topics that nobody claims from: of the outbox, and of the queue of what is received.

use axum::Json;
use jiff::Timestamp;
use mainstay_core::outbox::PausedTopic;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::mending::ChangeView;
use crate::endpoint::{Endpoint, Endpoints};
use crate::problem::Problem;
use crate::request::{Body, Call};

/// A topic to be paused.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Pause)]
struct PauseBody {
    /// The topic.
    #[schema(min_length = 1, max_length = 255)]
    topic: String,
    /// Why, for those who wonder.
    #[schema(min_length = 1, max_length = 255)]
    reason: Option<String>,
}

/// A topic to be resumed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Resume)]
struct ResumeBody {
    /// The topic.
    #[schema(min_length = 1, max_length = 255)]
    topic: String,
}

/// A topic that is paused.
#[derive(Serialize, ToSchema)]
#[schema(as = PausedTopic)]
struct PausedView {
    /// The topic.
    topic: String,
    /// Since when.
    since: Timestamp,
    /// Who paused it.
    by: String,
    /// Why, in their words.
    reason: Option<String>,
}

/// What is paused.
#[derive(Serialize, ToSchema)]
#[schema(as = PausedTopics)]
struct AllPausedView {
    /// By name.
    items: Vec<PausedView>,
}

impl From<Vec<PausedTopic>> for AllPausedView {
    fn from(paused: Vec<PausedTopic>) -> Self {
        let view = |PausedTopic { topic, since, by, reason, .. }| PausedView { topic, since, by, reason };
        Self { items: paused.into_iter().map(view).collect() }
    }
}

const NOTE: &str = "From the next claim on nobody gets messages of it. What was claimed before goes on to its end, and messages can still \
                    be enqueued.";

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/outbox/topics/paused", "listPausedTopics", "List the topics that are paused")
            .answer::<AllPausedView>(200, "All of them."),
        list_outbox,
    );
    all.add(
        pausing("/v1/outbox/topics/pause", "pauseTopic", "Keep workers from claiming messages of a topic"),
        pause_outbox,
    );
    all.add(resuming("/v1/outbox/topics/resume", "resumeTopic"), resume_outbox);
    all.add(
        Endpoint::get(
            "/v1/inbox/topics/paused",
            "listPausedReceived",
            "List the topics of the queue that are paused",
        )
        .answer::<AllPausedView>(200, "All of them."),
        list_inbox,
    );
    all.add(
        pausing(
            "/v1/inbox/topics/pause",
            "pauseReceived",
            "Keep workers from claiming messages of a topic from the queue",
        ),
        pause_inbox,
    );
    all.add(resuming("/v1/inbox/topics/resume", "resumeReceived"), resume_inbox);
}

fn pausing(path: &'static str, id: &'static str, summary: &'static str) -> Endpoint {
    let endpoint = Endpoint::post(path, id, summary).note(NOTE).body::<PauseBody>();
    endpoint.answer::<ChangeView>(200, "Whether it was not paused before.")
}

fn resuming(path: &'static str, id: &'static str) -> Endpoint {
    let endpoint = Endpoint::post(path, id, "Let workers have the messages of a paused topic again");
    endpoint.body::<ResumeBody>().answer::<ChangeView>(200, "Whether it was paused.")
}

async fn list_outbox(call: Call) -> Result<Json<AllPausedView>, Problem> {
    Ok(Json(call.mainstay.outbox().paused().await?.into()))
}

async fn list_inbox(call: Call) -> Result<Json<AllPausedView>, Problem> {
    Ok(Json(call.mainstay.inbox().paused().await?.into()))
}

async fn pause_outbox(call: Call, Body(body): Body<PauseBody>) -> Result<Json<ChangeView>, Problem> {
    let changed = call.outbox().pause(&body.topic, body.reason.as_deref()).await?;
    Ok(Json(ChangeView { changed }))
}

async fn pause_inbox(call: Call, Body(body): Body<PauseBody>) -> Result<Json<ChangeView>, Problem> {
    let changed = call.inbox().pause(&body.topic, body.reason.as_deref()).await?;
    Ok(Json(ChangeView { changed }))
}

async fn resume_outbox(call: Call, Body(body): Body<ResumeBody>) -> Result<Json<ChangeView>, Problem> {
    Ok(Json(ChangeView { changed: call.outbox().resume(&body.topic).await? }))
}

async fn resume_inbox(call: Call, Body(body): Body<ResumeBody>) -> Result<Json<ChangeView>, Problem> {
    Ok(Json(ChangeView { changed: call.inbox().resume(&body.topic).await? }))
}
