//! Fan-outs: work that is cut into slices, one for each shard, and planned by a cadence. Slices are messages of the outbox, of the topic
//! `fanout:{topic}:{work_key}`.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use mainstay_core::fanout::{
    FanoutChange, FanoutCursor, FanoutDefinition, FanoutKey, FanoutPolicy, FanoutSlice,
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::mending::ChangeView;
use crate::Role;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::Problem;
use crate::request::{Body, Call, Named, Query};

const LIST: &str = "fanouts";
const SHARDS: &str = "shards";

/// How far a worker's clock may be ahead of the database's.
const SLACK: SignedDuration = SignedDuration::from_secs(60);

/// A fan-out to be registered. It needs `every_seconds` or `cron`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewFanout)]
struct FanoutBody {
    /// How long after its last completion a shard is due again, in whole seconds. Defaults to 0.
    #[schema(minimum = 0, maximum = 31622400)]
    every_seconds: Option<u64>,
    /// Spreads the slices over this many whole seconds. Defaults to 0.
    #[schema(minimum = 0, maximum = 86400)]
    jitter_seconds: Option<u64>,
    /// Plans all shards together at the times of this cron expression instead.
    #[schema(max_length = 1000)]
    cron: Option<String>,
    /// The zone of the expression. Defaults to `UTC`.
    time_zone: Option<String>,
    /// Whether anything is planned. Defaults to true.
    enabled: Option<bool>,
}

/// A change of a fan-out. What is not named stays.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = FanoutChange)]
struct ChangeBody {
    /// Another cadence, in whole seconds.
    #[schema(minimum = 0, maximum = 31622400)]
    every_seconds: Option<u64>,
    /// Another jitter, in whole seconds.
    #[schema(minimum = 0, maximum = 86400)]
    jitter_seconds: Option<u64>,
    /// Another cron expression; empty for none.
    #[schema(max_length = 1000)]
    cron: Option<String>,
    /// Another zone.
    time_zone: Option<String>,
    /// Whether anything is planned.
    enabled: Option<bool>,
}

/// A fan-out as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Fanout)]
struct FanoutView {
    /// Its topic.
    topic: String,
    /// Its work key.
    work_key: String,
    /// The topic of its slices in the outbox.
    message_topic: String,
    /// The cadence.
    every_seconds: u64,
    /// The widest jitter.
    jitter_seconds: u64,
    /// The cron expression.
    cron: Option<String>,
    /// Its zone.
    time_zone: String,
    /// Whether anything is planned.
    enabled: bool,
    /// Grows with every change.
    version: i64,
    /// The nominal time of the last run.
    last_run_at: Option<Timestamp>,
    /// When somebody asked for a run that has not been made yet.
    run_requested_at: Option<Timestamp>,
    /// When it was registered.
    created_at: Timestamp,
    /// When it was changed last.
    updated_at: Timestamp,
}

impl From<FanoutPolicy> for FanoutView {
    fn from(policy: FanoutPolicy) -> Self {
        Self {
            topic: policy.key.topic().to_owned(),
            work_key: policy.key.work_key().to_owned(),
            message_topic: policy.key.message_topic(),
            every_seconds: policy.every.as_secs(),
            jitter_seconds: policy.jitter.as_secs(),
            cron: policy.cron,
            time_zone: policy.time_zone,
            enabled: policy.enabled,
            version: policy.version,
            last_run_at: policy.last_run_at,
            run_requested_at: policy.run_requested_at,
            created_at: policy.created_at,
            updated_at: policy.updated_at,
        }
    }
}

/// How far a shard has come.
#[derive(Serialize, ToSchema)]
#[schema(as = Shard)]
struct ShardView {
    /// The shard.
    shard: String,
    /// Up to when its work is done.
    last_completed_at: Option<Timestamp>,
    /// The message of the slice that was planned last.
    slice_id: Option<Uuid>,
    /// The nominal time of that slice.
    slice_due_at: Option<Timestamp>,
    /// Whether that slice is still in the outbox.
    in_flight: bool,
    /// When the shard was first heard of.
    created_at: Timestamp,
    /// When it was changed last.
    updated_at: Timestamp,
}

impl From<FanoutCursor> for ShardView {
    fn from(cursor: FanoutCursor) -> Self {
        Self {
            shard: cursor.shard_key,
            last_completed_at: cursor.last_completed_at,
            slice_id: cursor.slice_id.map(|id| id.as_uuid()),
            slice_due_at: cursor.slice_due_at,
            in_flight: cursor.in_flight,
            created_at: cursor.created_at,
            updated_at: cursor.updated_at,
        }
    }
}

/// Shards.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewShards)]
struct ShardsBody {
    /// Their keys.
    shards: Vec<String>,
}

/// Shards that were made known.
#[derive(Serialize, ToSchema)]
#[schema(as = ShardsAdded)]
struct AddedView {
    /// How many were not known.
    added: u64,
}

/// A fan-out that was deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = FanoutDeleted)]
struct DeletedView {
    /// How many shards it had.
    shards: u64,
}

/// How far the work on a shard is done.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ShardCompletion)]
struct CompleteBody {
    /// Up to when; the `due_at` of the slice, mostly. Not in the future.
    at: Timestamp,
}

/// Which ones.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct PageQuery {
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

impl PageQuery {
    fn limit(&self) -> Result<u32, Problem> {
        match self.limit.unwrap_or(page::LIMIT) {
            limit @ 1..=1_000 => Ok(limit),
            got => Err(Problem::invalid("limit", format_args!("must be 1 to 1,000, got {got}"))),
        }
    }
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/fanouts", "listFanouts", "List fan-outs")
            .query::<PageQuery>()
            .answer::<Page<FanoutView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/fanouts/{topic}/{work_key}", "getFanout", "Look at a fan-out")
            .etag()
            .answer::<FanoutView>(200, "The fan-out."),
        get,
    );
    all.add(
        Endpoint::put("/v1/fanouts/{topic}/{work_key}", "putFanout", "Register a fan-out")
            .note("One that is there changes only if other values are registered than the last time.")
            .role(Role::Admin)
            .body::<FanoutBody>()
            .answer::<FanoutView>(200, "The fan-out as it is now."),
        put,
    );
    all.add(
        Endpoint::patch("/v1/fanouts/{topic}/{work_key}", "changeFanout", "Change a fan-out")
            .role(Role::Admin)
            .body::<ChangeBody>()
            .answer::<FanoutView>(200, "The fan-out as it is now."),
        change,
    );
    all.add(
        Endpoint::delete(
            "/v1/fanouts/{topic}/{work_key}",
            "deleteFanout",
            "Delete a fan-out with its shards",
        )
        .note("Refused while a slice of it is in flight.")
        .role(Role::Admin)
        .answer::<DeletedView>(200, "It is gone."),
        delete,
    );
    all.add(
        Endpoint::post("/v1/fanouts/{topic}/{work_key}/run", "runFanout", "Ask for a run now")
            .empty(202, "Its coordinator makes it."),
        run,
    );
    all.add(
        Endpoint::get(
            "/v1/fanouts/{topic}/{work_key}/shards",
            "listShards",
            "List shards, and how far they have come",
        )
        .query::<PageQuery>()
        .answer::<Page<ShardView>>(200, "A page of them."),
        shards,
    );
    all.add(
        Endpoint::post("/v1/fanouts/{topic}/{work_key}/shards", "addShards", "Make shards known")
            .body::<ShardsBody>()
            .answer::<AddedView>(200, "How many were not known."),
        add_shards,
    );
    all.add(
        Endpoint::delete(
            "/v1/fanouts/{topic}/{work_key}/shards/{shard}",
            "forgetShard",
            "Forget a shard with its cursor",
        )
        .note("Refused while a slice of it is in flight.")
        .role(Role::Admin)
        .empty(204, "It is forgotten."),
        forget_shard,
    );
    all.add(
        Endpoint::post(
            "/v1/fanouts/{topic}/{work_key}/shards/{shard}/complete",
            "completeShard",
            "Say how far the work on a shard is done",
        )
        .body::<CompleteBody>()
        .answer::<ChangeView>(200, "Whether that moved its cursor, which never goes back."),
        complete,
    );
}

fn unknown(topic: &str, work_key: &str) -> Problem {
    Problem::not_found(format_args!("fan-out {topic}/{work_key}"))
}

fn unknown_shard(topic: &str, work_key: &str, shard: &str) -> Problem {
    Problem::not_found(format_args!("shard {shard:?} of {topic}/{work_key}"))
}

async fn must_be_known(call: &Call, topic: &str, work_key: &str) -> Result<(), Problem> {
    let found = call.mainstay.fanout().get(topic, work_key).await?;
    found.map(drop).ok_or_else(|| unknown(topic, work_key))
}

async fn list(call: Call, Query(query): Query<PageQuery>) -> Result<Json<Page<FanoutView>>, Problem> {
    let limit = query.limit()?;
    let after = page::read::<(String, String)>(LIST, query.cursor.as_deref())?;
    let after = after.map(|(topic, work_key)| FanoutKey::new(topic, work_key)).transpose()?;
    let found = call.mainstay.fanout().list(after.as_ref(), limit).await?;
    let key = |one: &FanoutPolicy| (one.key.topic().to_owned(), one.key.work_key().to_owned());
    Ok(Json(Page::of(LIST, limit, found, key, FanoutView::from)))
}

type Key = Named<(String, String)>;

async fn get(call: Call, Named((topic, work_key)): Key) -> Result<Json<FanoutView>, Problem> {
    let found = call.mainstay.fanout().get(&topic, &work_key).await?;
    Ok(Json(found.ok_or_else(|| unknown(&topic, &work_key))?.into()))
}

async fn put(
    call: Call,
    Named((topic, work_key)): Key,
    Body(body): Body<FanoutBody>,
) -> Result<Json<FanoutView>, Problem> {
    let mut definition = FanoutDefinition::new(topic, work_key)
        .every(Duration::from_secs(body.every_seconds.unwrap_or_default()))
        .jitter(Duration::from_secs(body.jitter_seconds.unwrap_or_default()))
        .enabled(body.enabled.unwrap_or(true));
    if let Some(cron) = body.cron {
        definition = definition.cron(cron);
    }
    if let Some(zone) = body.time_zone {
        definition = definition.time_zone(zone);
    }
    Ok(Json(call.fanout().register(definition).await?.into()))
}

async fn change(
    call: Call,
    Named((topic, work_key)): Key,
    Body(body): Body<ChangeBody>,
) -> Result<Json<FanoutView>, Problem> {
    let mut change = FanoutChange::default();
    if let Some(every) = body.every_seconds {
        change = change.every(Duration::from_secs(every));
    }
    if let Some(jitter) = body.jitter_seconds {
        change = change.jitter(Duration::from_secs(jitter));
    }
    if let Some(cron) = body.cron {
        change = change.cron(Some(cron).filter(|cron| !cron.is_empty()));
    }
    if let Some(zone) = body.time_zone {
        change = change.time_zone(zone);
    }
    if let Some(enabled) = body.enabled {
        change = change.enabled(enabled);
    }
    Ok(Json(call.fanout().set(&topic, &work_key, &change).await?.into()))
}

async fn delete(call: Call, Named((topic, work_key)): Key) -> Result<Json<DeletedView>, Problem> {
    let shards = call.fanout().delete(&topic, &work_key).await?;
    Ok(Json(DeletedView { shards: shards.ok_or_else(|| unknown(&topic, &work_key))? }))
}

async fn run(call: Call, Named((topic, work_key)): Key) -> Result<StatusCode, Problem> {
    call.fanout().run_now(&topic, &work_key).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn shards(
    call: Call,
    Named((topic, work_key)): Key,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<ShardView>>, Problem> {
    let limit = query.limit()?;
    let after = page::read::<String>(SHARDS, query.cursor.as_deref())?;
    let found = call.mainstay.fanout().cursors(&topic, &work_key, after.as_deref(), limit).await?;
    if found.is_empty() {
        must_be_known(&call, &topic, &work_key).await?;
    }
    Ok(Json(Page::of(SHARDS, limit, found, |one| one.shard_key.clone(), ShardView::from)))
}

async fn add_shards(
    call: Call,
    Named((topic, work_key)): Key,
    Body(body): Body<ShardsBody>,
) -> Result<Json<AddedView>, Problem> {
    call.check_batch("shards", &body.shards)?;
    let added = call.fanout().add_shards(&topic, &work_key, body.shards).await?;
    Ok(Json(AddedView { added }))
}

type ShardKey = Named<(String, String, String)>;

async fn forget_shard(call: Call, Named((topic, work_key, shard)): ShardKey) -> Result<StatusCode, Problem> {
    match call.fanout().forget_shard(&topic, &work_key, &shard).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(unknown_shard(&topic, &work_key, &shard)),
    }
}

async fn complete(
    call: Call,
    Named((topic, work_key, shard)): ShardKey,
    Body(body): Body<CompleteBody>,
) -> Result<Json<ChangeView>, Problem> {
    // The cursor of a shard that nobody planned would stay, and one in the future would never move again.
    must_be_known(&call, &topic, &work_key).await?;
    if call.mainstay.fanout().cursor(&topic, &work_key, &shard).await?.is_none() {
        return Err(unknown_shard(&topic, &work_key, &shard));
    }
    let now = call.mainstay.provider().now().await?;
    if body.at.duration_since(now) > SLACK {
        let text =
            format_args!("must not be in the future, got {}; by the database's clock it is {now}", body.at);
        return Err(Problem::invalid("at", text));
    }
    let slice = FanoutSlice::new(&FanoutKey::new(topic, work_key)?, shard, body.at);
    let changed = call.fanout().complete(&slice, body.at).await?;
    Ok(Json(ChangeView { changed }))
}
