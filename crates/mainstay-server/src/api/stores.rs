//! The databases behind the interface.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use mainstay_core::fleet::{BreakerState, StoreStatus};
use mainstay_core::store::SchemaStatus;
use serde::Serialize;
use utoipa::ToSchema;

use crate::Role;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::Page;
use crate::problem::Problem;
use crate::request::Named;
use crate::state::Shared;
use crate::stores::{ONLY, Stores};

/// A database, as this process sees it.
#[derive(Serialize, ToSchema)]
#[schema(as = Store)]
struct StoreView {
    /// Its id: what `store` names.
    id: String,
    /// What it is doing: `warm`, or in a fleet `cold`, `waiting`, `elsewhere` or `refused`.
    state: &'static str,
    /// Whether it is worked on, or left alone for a while because it fails.
    failing: bool,
    /// Failures in a row.
    failures: u32,
    /// Since when it is so. Null where there is one database only.
    since: Option<Timestamp>,
    /// What the last failure said. Null where there was none.
    last_error: Option<String>,
    /// Why its entry can't be used. A database that was running keeps running by its previous entry. Null if the entry is fine.
    entry_error: Option<String>,
}

/// A database, asked now.
#[derive(Serialize, ToSchema)]
#[schema(as = StoreDetail)]
struct StoreDetailView {
    /// Its id.
    id: String,
    /// `sqlite`, `postgres`, …
    provider: &'static str,
    /// `current`, or what is wrong with the schema.
    schema: &'static str,
    /// The same in words.
    schema_summary: String,
    /// The database's clock.
    now: Timestamp,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/stores", "listStores", "List the databases")
            .of_all()
            .answer::<Page<StoreView>>(200, "All of them, on one page."),
        list,
    );
    all.add(
        Endpoint::get("/v1/stores/{store_id}", "getStore", "Ask a database how it is")
            .of_all()
            .answer::<StoreDetailView>(200, "The database."),
        get,
    );
    all.add(
        Endpoint::post("/v1/stores/{store_id}/deploy", "deployStore", "Bring a database's schema up to date")
            .of_all()
            .role(Role::Admin)
            .answer::<StoreDetailView>(200, "The database as it is now."),
        deploy,
    );
}

fn of_fleet(status: StoreStatus) -> StoreView {
    StoreView {
        id: status.id,
        state: status.state.as_str(),
        failing: status.breaker != BreakerState::Closed,
        failures: status.failures,
        since: Some(status.since),
        last_error: status.last_error,
        entry_error: status.entry_error,
    }
}

async fn list(State(shared): State<Shared>) -> Json<Page<StoreView>> {
    let found = match &shared.stores {
        Stores::One(_) => {
            let id = ONLY.to_owned();
            vec![StoreView {
                id,
                state: "warm",
                failing: false,
                failures: 0,
                since: None,
                last_error: None,
                entry_error: None,
            }]
        }
        Stores::Fleet(fleet) => fleet.status().stores.into_iter().map(of_fleet).collect(),
    };
    Json(Page::of("stores", u32::MAX, found, |one| one.id.clone(), |one| one))
}

async fn detail(id: String, shared: &Shared) -> Result<Json<StoreDetailView>, Problem> {
    let mainstay = shared.stores.get(Some(&id))?;
    let provider = mainstay.provider();
    let status = provider.schema().status().await?;
    let schema = match &status {
        SchemaStatus::Current { .. } => "current",
        SchemaStatus::Compatible { .. } => "compatible",
        SchemaStatus::Missing { .. } => "missing",
        SchemaStatus::Outdated { .. } => "outdated",
        SchemaStatus::Newer { .. } => "newer",
        _ => "wrong",
    };
    let (provider, now) = (provider.kind(), provider.now().await?);
    Ok(Json(StoreDetailView { id, provider, schema, schema_summary: status.to_string(), now }))
}

async fn get(
    State(shared): State<Shared>,
    Named(id): Named<String>,
) -> Result<Json<StoreDetailView>, Problem> {
    detail(id, &shared).await
}

async fn deploy(
    State(shared): State<Shared>,
    caller: axum::Extension<crate::access::Caller>,
    Named(id): Named<String>,
) -> Result<Json<StoreDetailView>, Problem> {
    let mainstay = shared.stores.get(Some(&id))?;
    mainstay.provider().schema().deploy_by(&caller.actor()).await?;
    detail(id, &shared).await
}
