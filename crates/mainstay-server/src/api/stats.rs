//! How much stands where, and why one thing is not running.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use axum::Json;
use axum::response::{IntoResponse, Response};
use mainstay_core::WorkItemId;
use mainstay_core::health::Explanation;
use mainstay_core::outbox::{OutboxStats, TopicStats};
use mainstay_core::runtime::Mainstay;
use mainstay_core::timer::TimerStats;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::endpoint::{Endpoint, Endpoints};
use crate::fresh::Fresh;
use crate::problem::Problem;
use crate::request::{Call, Named};

/// How much stands where in a database.
#[derive(Serialize, ToSchema)]
#[schema(as = Stats)]
struct StatsView {
    /// The outbox.
    outbox: QueueStatsView,
    /// The inbox.
    inbox: InboxStatsView,
    /// The timers.
    timers: TimerStatsView,
    /// The joins.
    joins: JoinStatsView,
    /// Leases that are held.
    active_leases: u64,
}

/// How many messages stand where.
#[derive(Serialize, ToSchema)]
#[schema(as = QueueStats)]
struct QueueStatsView {
    /// Ready and due.
    ready: u64,
    /// Ready, but not due yet.
    scheduled: u64,
    /// Held by workers.
    in_progress: u64,
    /// Held, but that has lapsed.
    lapsed: u64,
    /// Handled, as far as they are kept.
    done: u64,
    /// Failed for good.
    failed: u64,
    /// Ordering keys that a failed message holds.
    held_keys: u64,
    /// For how long the oldest due one has waited.
    oldest_ready_seconds: Option<f64>,
    /// By topic.
    topics: Vec<TopicStatsView>,
}

/// How many messages of a topic stand where.
#[derive(Serialize, ToSchema)]
#[schema(as = TopicStats)]
struct TopicStatsView {
    /// The topic.
    topic: String,
    /// Ready and due.
    ready: u64,
    /// Ready, but not due yet.
    scheduled: u64,
    /// Held by workers.
    in_progress: u64,
    /// Failed for good.
    failed: u64,
}

/// How many received messages stand where.
#[derive(Serialize, ToSchema)]
#[schema(as = InboxStats)]
struct InboxStatsView {
    /// Seen, and neither reserved nor settled.
    seen: u64,
    /// Reserved.
    processing: u64,
    /// Done, as far as they are kept.
    done: u64,
    /// Given up.
    dead: u64,
    /// The queue they are worked from.
    queue: QueueStatsView,
}

/// How many timers stand where.
#[derive(Serialize, ToSchema)]
#[schema(as = TimerStats)]
struct TimerStatsView {
    /// Not fired yet.
    pending: u64,
    /// Of these, those whose time has passed.
    overdue: u64,
    /// Fired, as far as they are kept.
    fired: u64,
    /// Cancelled, expired or failed.
    failed: u64,
    /// For how long the oldest of the overdue ones has been.
    oldest_overdue_seconds: Option<f64>,
}

/// How many joins stand where.
#[derive(Serialize, ToSchema)]
#[schema(as = JoinStats)]
struct JoinStatsView {
    /// Waiting for their steps.
    pending: u64,
    /// Of these, those whose deadline has passed.
    overdue: u64,
}

/// Why an item is where it is.
#[derive(Serialize, ToSchema)]
#[schema(as = Explanation)]
struct WhyView {
    /// The item.
    id: Uuid,
    /// `outbox`, `inbox`, `timers` or `job_runs`.
    queue: &'static str,
    /// What it is about.
    topic: String,
    /// `ready`, `in-progress`, `done` or `failed`.
    status: String,
    /// Deliveries so far.
    attempts: u32,
    /// The last error.
    last_error: Option<String>,
    /// Why, for programs: `because` and what belongs to it.
    #[schema(value_type = Object)]
    why: Value,
    /// Why, for people.
    summary: String,
    /// What to do.
    advice: Option<String>,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/stats", "stats", "How much stands where")
            .etag()
            .answer::<StatsView>(200, "The counts."),
        stats,
    );
    all.add(
        Endpoint::get("/v1/why/{id}", "why", "Why a message, a timer or a run is not running")
            .answer::<WhyView>(200, "Why, and what to do."),
        why,
    );
}

impl From<OutboxStats> for QueueStatsView {
    fn from(stats: OutboxStats) -> Self {
        let topics = stats.topics.into_iter();
        Self {
            ready: stats.ready,
            scheduled: stats.scheduled,
            in_progress: stats.in_progress,
            lapsed: stats.lapsed,
            done: stats.done,
            failed: stats.failed,
            held_keys: stats.held_keys,
            oldest_ready_seconds: stats.oldest_ready.map(|age| age.as_secs_f64()),
            topics: topics.map(TopicStatsView::from).collect(),
        }
    }
}

impl From<TopicStats> for TopicStatsView {
    fn from(stats: TopicStats) -> Self {
        let TopicStats { topic, ready, scheduled, in_progress, failed, .. } = stats;
        Self { topic, ready, scheduled, in_progress, failed }
    }
}

impl From<TimerStats> for TimerStatsView {
    fn from(stats: TimerStats) -> Self {
        Self {
            pending: stats.pending,
            overdue: stats.overdue,
            fired: stats.fired,
            failed: stats.failed,
            oldest_overdue_seconds: stats.oldest_overdue.map(|age| age.as_secs_f64()),
        }
    }
}

/// The latest counts of each database. They walk through the history, so they are shared for a moment.
#[derive(Default)]
pub(crate) struct Counts(Mutex<HashMap<String, Fresh<StatsView>>>);

impl Counts {
    /// Those of a database that is there.
    fn of(&self, store: &str) -> Fresh<StatsView> {
        // Whole whatever panicked beside it: entries are only added.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(store.to_owned()).or_default().clone()
    }
}

async fn stats(call: Call) -> Result<Response, Problem> {
    let mainstay = call.mainstay.clone();
    let counts = call.shared.counts.of(call.store());
    let counts = counts.get(async move { count(&mainstay).await }).await?;
    Ok(Json(&*counts).into_response())
}

async fn count(mainstay: &Mainstay) -> mainstay_core::Result<StatsView> {
    let inbox = mainstay.inbox().stats().await?;
    let joins = mainstay.joins().stats().await?;
    Ok(StatsView {
        outbox: mainstay.outbox().stats().await?.into(),
        inbox: InboxStatsView {
            seen: inbox.ledger.seen,
            processing: inbox.ledger.processing,
            done: inbox.ledger.done,
            dead: inbox.ledger.dead,
            queue: inbox.queue.into(),
        },
        timers: mainstay.timers().stats().await?.into(),
        joins: JoinStatsView { pending: joins.pending, overdue: joins.overdue },
        active_leases: mainstay.leases().active().await?,
    })
}

async fn why(call: Call, Named(id): Named<Uuid>) -> Result<Json<WhyView>, Problem> {
    let found = Explanation::of(call.mainstay.provider().as_ref(), WorkItemId::from_uuid(id)).await?;
    let found = found.ok_or_else(|| Problem::not_found(format_args!("item {id}")))?.anonymous();
    // Words, ids and times only, which can always be written.
    let why = serde_json::to_value(&found.why).unwrap_or(Value::Null);
    Ok(Json(WhyView {
        id,
        queue: found.queue,
        topic: found.topic,
        status: found.status.to_string(),
        attempts: found.attempts,
        last_error: found.last_error,
        why,
        summary: found.summary,
        advice: found.advice,
    }))
}
