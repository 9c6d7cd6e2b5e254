//! `/health`, `/health/live`, `/health/ready` (R25): how the process and its databases are.
//!
//! They need no token, since probes have none. Without one they tell names and states; what was found in words, which may name tables
//! and hosts, is for those who may look. A report is shared for a moment, so that nobody makes the database work by asking. The databases of a
//! fleet are asked for those who may look only: a stranger, and a probe for readiness, is told what the process knows of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use mainstay_core::health::{Check, FleetHealth, HealthOptions, HealthReport, HealthStatus, Probe, Startup};
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Caller;
use crate::endpoint::{Endpoint, Endpoints};
use crate::fresh::Fresh;
use crate::problem::Problem;
use crate::state::Shared;
use crate::stores::Stores;

/// Databases of a fleet asked at once.
const AT_ONCE: usize = 8;

/// How the process and its databases are.
#[derive(Serialize, ToSchema)]
#[schema(as = Health)]
pub(crate) struct HealthView {
    /// `healthy`, `degraded`, `unknown` or `unhealthy`: that of the worst. The first two are answered with 200, the others with 503.
    /// Whether a fleet is ready, databases that do not work degrade at most, unless none does.
    status: &'static str,
    /// `live`, `ready` or `full`.
    probe: &'static str,
    /// Where the process stands with its fleet: `starting` until the databases are known. Null where there is one database.
    #[schema(value_type = Option<Object>)]
    startup: Option<serde_json::Value>,
    /// When it was looked at.
    checked_at: Timestamp,
    /// How long that took.
    duration_ms: f64,
    /// Each database, the worst first.
    stores: Vec<StoreHealthView>,
}

/// How one database is.
#[derive(Serialize, ToSchema)]
#[schema(as = StoreHealth)]
struct StoreHealthView {
    /// Its id.
    id: String,
    /// That of its worst check.
    status: &'static str,
    /// `sqlite`, `postgres`, …
    provider: &'static str,
    /// Where the process stands with it: `starting`, `running`, `stopping`, …
    #[schema(value_type = Option<Object>)]
    startup: Option<serde_json::Value>,
    /// Whether it answered. Null if it was not asked.
    reached: Option<bool>,
    /// The checks, the worst first.
    checks: Vec<CheckView>,
}

/// One check.
#[derive(Serialize, ToSchema)]
#[schema(as = Check)]
struct CheckView {
    /// What was checked.
    name: &'static str,
    /// How it is.
    status: &'static str,
    /// How long the check took.
    duration_ms: f64,
    /// What was found; for viewers.
    summary: Option<String>,
    /// What to do; for viewers.
    advice: Option<String>,
}

/// What was found.
pub(crate) struct Found {
    status: HealthStatus,
    startup: Option<Startup>,
    checked_at: Timestamp,
    took: Duration,
    reports: Vec<(String, HealthReport)>,
}

impl Found {
    fn of_fleet(checked_at: Timestamp, health: FleetHealth) -> Self {
        let reports = health.databases.into_iter().map(|database| (database.id, database.report)).collect();
        Self { status: health.status, startup: health.startup, checked_at, took: health.duration, reports }
    }
}

/// The latest report of each probe.
#[derive(Default)]
pub(crate) struct Reports {
    live: Fresh<Found>,
    ready: Fresh<Found>,
    full: Fresh<Found>,
}

impl Reports {
    async fn get(&self, probe: Probe, stores: &Stores, is_stranger: bool) -> Result<Arc<Found>, Problem> {
        if let (Stores::Fleet(fleet), true) = (stores, is_stranger) {
            return Ok(Arc::new(Found::of_fleet(Timestamp::now(), fleet.known_health(probe))));
        }
        let kept = match probe {
            Probe::Live => &self.live,
            Probe::Ready => &self.ready,
            _ => &self.full,
        };
        let stores = stores.clone();
        kept.get(async move { look(probe, &stores).await }).await
    }
}

async fn look(probe: Probe, stores: &Stores) -> mainstay_core::Result<Found> {
    let (begun, checked_at) = (Instant::now(), Timestamp::now());
    match stores {
        Stores::One(mainstay) => {
            let report = mainstay.health().check(probe).await;
            let (status, took) = (report.status, begun.elapsed());
            let reports = vec![(crate::stores::ONLY.to_owned(), report)];
            Ok(Found { status, startup: None, checked_at, took, reports })
        }
        Stores::Fleet(fleet) => {
            let health = fleet.health(probe, HealthOptions::default(), AT_ONCE).await?;
            Ok(Found::of_fleet(checked_at, health))
        }
    }
}

pub(crate) fn endpoints(all: &mut Endpoints) {
    for (path, id, summary, note) in [
        (
            "/health",
            "health",
            "How everything is",
            "All checks. Without a token, the databases of a fleet are not asked: it is told what is known of them.",
        ),
        (
            "/health/live",
            "healthLive",
            "Whether the process runs",
            "No database is asked: a restart would not heal it.",
        ),
        (
            "/health/ready",
            "healthReady",
            "Whether requests can be answered",
            "Started, the database answers, the schema is right. Of a fleet: the databases are known, and one of them works at least, as far as the process knows: none is asked.",
        ),
    ] {
        let endpoint = Endpoint::get(path, id, summary)
            .note(note)
            .public()
            .answer::<HealthView>(200, "Healthy or degraded.")
            .answer::<HealthView>(503, "Unhealthy, or it could not be told.");
        match id {
            "health" => all.add(endpoint, full),
            "healthLive" => all.add(endpoint, live),
            _ => all.add(endpoint, ready),
        }
    }
}

type Asked = Option<Extension<Caller>>;

async fn full(State(shared): State<Shared>, caller: Asked) -> Result<Response, Problem> {
    tell(Probe::Full, &shared, caller).await
}

async fn live(State(shared): State<Shared>, caller: Asked) -> Result<Response, Problem> {
    tell(Probe::Live, &shared, caller).await
}

async fn ready(State(shared): State<Shared>, caller: Asked) -> Result<Response, Problem> {
    tell(Probe::Ready, &shared, caller).await
}

async fn tell(probe: Probe, shared: &Shared, caller: Asked) -> Result<Response, Problem> {
    let found = shared.reports.get(probe, &shared.stores, caller.is_none()).await?;
    let Found { status, startup, checked_at, took, reports } = found.as_ref();
    let view = HealthView {
        status: status.as_str(),
        probe: probe.as_str(),
        startup: startup.and_then(told),
        checked_at: *checked_at,
        duration_ms: milliseconds(*took),
        stores: reports.iter().map(|(id, report)| store(id, report, caller.is_some())).collect(),
    };
    let code = if status.is_fit() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok((code, axum::Json(view)).into_response())
}

fn store(id: &str, report: &HealthReport, in_words: bool) -> StoreHealthView {
    StoreHealthView {
        id: id.to_owned(),
        status: report.status.as_str(),
        provider: report.provider,
        startup: report.startup.and_then(told),
        reached: report.reached,
        checks: report.checks.iter().map(|one| check(one, in_words)).collect(),
    }
}

fn told(startup: Startup) -> Option<serde_json::Value> {
    serde_json::to_value(startup).ok()
}

fn check(check: &Check, in_words: bool) -> CheckView {
    CheckView {
        name: check.name,
        status: check.status.as_str(),
        duration_ms: milliseconds(check.duration),
        summary: Some(check.summary.clone()).filter(|_| in_words),
        advice: check.advice.clone().filter(|_| in_words),
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}
