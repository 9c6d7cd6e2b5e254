//! Leases: one holder at a time for a name. The holder is outside, and keeps his lease with the token he was given.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use jiff::Timestamp;
use mainstay_core::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseHolder, LeaseOptions, LeaseRecord,
};
use mainstay_core::runtime::Pause;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::owner::{Owner, shown};
use super::{time, work};
use crate::Role;
use crate::endpoint::{Endpoint, Endpoints};
use crate::page::{self, Page};
use crate::problem::{Kind, Problem};
use crate::request::{Body, Call, Named, Query};
use crate::taken::take;
use crate::ticket;

const LIST: &str = "leases";
const LEASE: &str = "lease";

/// How often a lease that somebody else holds is asked for again.
const LOOK: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Asks for a lease.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseAcquire)]
struct AcquireBody {
    /// Who is to hold it, for people, who are shown it behind the caller's name. Defaults to the one who asks.
    #[schema(min_length = 1, max_length = 100)]
    owner: Option<String>,
    /// How long it holds unless renewed, 0.1 to 86,400. Defaults to 30.
    #[schema(minimum = 0.1, maximum = 86400)]
    duration_seconds: Option<f64>,
    /// A text for people who look at it.
    #[schema(max_length = 4096)]
    context: Option<String>,
    /// Whether the same caller with the same `owner` may take it from an earlier instance of itself. Defaults to false.
    #[serde(default)]
    reentrant: bool,
    /// How long to wait if somebody else has it. Defaults to 0.
    #[schema(minimum = 0, maximum = 60)]
    wait_seconds: Option<f64>,
}

/// A lease that was granted.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaseGrant)]
struct GrantView {
    /// What renews and releases it. Opaque.
    lease: String,
    /// What is held.
    name: String,
    /// Who holds it.
    owner: String,
    /// Grows with every acquisition: fences writes within the database.
    epoch: i64,
    /// Grows with every acquisition and renewal: fences writes elsewhere.
    fencing_token: i64,
    /// Until when, by the database's clock.
    expires_at: Timestamp,
}

/// A lease to be extended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseRenew)]
struct RenewBody {
    /// The `lease` that was granted.
    lease: String,
    /// For how long from now, 0.1 to 86,400. Defaults to 30.
    #[schema(minimum = 0.1, maximum = 86400)]
    duration_seconds: Option<f64>,
}

/// A lease to be given up.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = LeaseRelease)]
struct ReleaseBody {
    /// The `lease` that was granted.
    lease: String,
}

/// Whom a lease was taken away from.
#[derive(Serialize, ToSchema)]
#[schema(as = LeaseForced)]
struct ForcedView {
    /// Whether anybody held it.
    changed: bool,
    /// Who.
    owner: Option<String>,
}

/// Which leases.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct LeasesQuery {
    /// Only those that somebody holds now.
    #[serde(default)]
    held: bool,
    /// Only those whose names begin with this.
    prefix: Option<String>,
    /// Items at most. Defaults to 100.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// A lease as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Lease)]
struct LeaseView {
    /// What it is for.
    name: String,
    /// Whether somebody holds it now.
    held: bool,
    /// Who holds it, or was the last to, if it lapsed.
    owner: Option<String>,
    /// How often it was acquired.
    epoch: i64,
    /// How often it was acquired or renewed.
    fencing_token: i64,
    /// When it was last acquired.
    acquired_at: Timestamp,
    /// When it was last acquired or renewed.
    renewed_at: Timestamp,
    /// Until when it is held, or when it ended.
    expires_at: Timestamp,
    /// What its holder says about itself.
    context: Option<String>,
}

impl From<LeaseRecord> for LeaseView {
    fn from(record: LeaseRecord) -> Self {
        Self {
            name: record.name,
            held: record.held,
            owner: record.owner.map(|owner| shown(&owner).to_owned()),
            epoch: record.epoch,
            fencing_token: record.fencing_token,
            acquired_at: record.acquired_at,
            renewed_at: record.renewed_at,
            expires_at: record.expires_at,
            context: record.context,
        }
    }
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/v1/leases", "listLeases", "List leases by name")
            .query::<LeasesQuery>()
            .answer::<Page<LeaseView>>(200, "A page of them."),
        list,
    );
    all.add(
        Endpoint::get("/v1/leases/{name}", "getLease", "Look at a lease")
            .etag()
            .answer::<LeaseView>(200, "The lease."),
        get,
    );
    all.add(
        Endpoint::post("/v1/leases/{name}/acquire", "acquireLease", "Acquire a lease")
            .note("409 `lease-held` with `owner` and `until` if somebody else has it.")
            .body::<AcquireBody>()
            .answer::<GrantView>(200, "It is the caller's."),
        acquire,
    );
    all.add(
        Endpoint::post("/v1/leases/{name}/renew", "renewLease", "Hold a lease for longer")
            .note("409 `lease-lost` if it no longer holds.")
            .body::<RenewBody>()
            .answer::<GrantView>(200, "It is the caller's for longer."),
        renew,
    );
    all.add(
        Endpoint::post("/v1/leases/{name}/release", "releaseLease", "Give a lease up")
            .note("409 `lease-lost` if it no longer held.")
            .body::<ReleaseBody>()
            .empty(204, "It is free."),
        release,
    );
    all.add(
        Endpoint::post(
            "/v1/leases/{name}/force-release",
            "forceReleaseLease",
            "Take a lease away from whoever holds it",
        )
        .role(Role::Admin)
        .answer::<ForcedView>(200, "Whom it was taken from."),
        force_release,
    );
}

fn granted(name: String, owner: &Owner, grant: LeaseGrant) -> GrantView {
    GrantView {
        lease: ticket::write(LEASE, &(&name, &owner.name, &owner.secret, grant.epoch)),
        name,
        owner: owner.name.clone(),
        epoch: grant.epoch,
        fencing_token: grant.fencing_token,
        expires_at: grant.expires_at,
    }
}

/// The claim that a ticket proves, and whose it is.
fn claim(call: &Call, name: &str, text: &str) -> Result<(Owner, LeaseClaim), Problem> {
    let (of, owner, secret, epoch): (String, String, Option<String>, i64) = ticket::read(LEASE, LEASE, text)?;
    let owner = Owner::of_ticket(call.caller.actor().as_str(), owner, secret)?;
    if of != name {
        return Err(Problem::invalid(LEASE, format_args!("must be that of {name:?}, and is that of {of:?}")));
    }
    let stored = owner.stored();
    Ok((owner, LeaseClaim { name: of, owner: stored, epoch }))
}

fn held(holder: &LeaseHolder) -> Problem {
    let mut holder = holder.clone();
    holder.owner = holder.owner.map(|owner| shown(&owner).to_owned());
    Problem::new(Kind::LeaseHeld, format!("it is {holder}; wait_seconds waits for it"))
        .with("owner", &holder.owner)
        .with("until", holder.until)
        .with("context", &holder.context)
}

fn lost() -> Problem {
    Problem::new(
        Kind::LeaseLost,
        "the lease no longer holds: somebody else may have it; stop what runs under it",
    )
}

async fn acquire(
    call: Call,
    Named(name): Named<String>,
    Body(body): Body<AcquireBody>,
) -> Result<Json<GrantView>, Problem> {
    let wait = work::wait(&call, body.wait_seconds)?;
    let mut options = LeaseOptions::default().reentrant(body.reentrant);
    options.duration = time::optional("duration_seconds", body.duration_seconds)?.unwrap_or(options.duration);
    let owner = Owner::new(call.caller.actor().as_str(), body.owner.as_deref(), body.reentrant)?;
    options = options.owner(owner.stored());
    options = options.context(body.context.unwrap_or_default());
    let (deadline, mut pause) = (Instant::now() + wait, Pause::new(LOOK));
    let mut place = None;
    loop {
        let holder = match grant(&call, &name, &options).await? {
            (_, LeaseAnswer::Granted(grant)) => return Ok(Json(granted(name, &owner, grant))),
            (_, LeaseAnswer::Held(holder)) => holder,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if place.is_none() && !left.is_zero() {
            place = Some(call.wait_here()?);
        }
        let sleep = tokio::time::sleep(pause.step().min(left));
        if left.is_zero() || call.shared.stop.run_until_cancelled(sleep).await.is_none() {
            return Err(held(&holder));
        }
    }
}

/// What was granted to a client who has hung up meanwhile is given up.
async fn grant(
    call: &Call,
    name: &str,
    options: &LeaseOptions,
) -> Result<(LeaseClaim, LeaseAnswer), Problem> {
    let (leases, name, options) = (call.mainstay.leases().clone(), name.to_owned(), options.clone());
    let of = leases.clone();
    let granting = async move { leases.grant(&name, &options).await };
    let give_back = move |(claim, answer)| async move {
        if let LeaseAnswer::Granted(_) = answer {
            let _lapses = of.release_claim(&claim).await;
        }
    };
    take(granting, give_back).await
}

async fn renew(
    call: Call,
    Named(name): Named<String>,
    Body(body): Body<RenewBody>,
) -> Result<Json<GrantView>, Problem> {
    let duration =
        time::optional("duration_seconds", body.duration_seconds)?.unwrap_or(Duration::from_secs(30));
    let (owner, claim) = claim(&call, &name, &body.lease)?;
    let grant = call.mainstay.leases().renew_claim(&claim, duration).await?.ok_or_else(lost)?;
    Ok(Json(granted(name, &owner, grant)))
}

async fn release(
    call: Call,
    Named(name): Named<String>,
    Body(body): Body<ReleaseBody>,
) -> Result<StatusCode, Problem> {
    let (_, claim) = claim(&call, &name, &body.lease)?;
    match call.mainstay.leases().release_claim(&claim).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(lost()),
    }
}

async fn force_release(call: Call, Named(name): Named<String>) -> Result<Json<ForcedView>, Problem> {
    let owner = call.leases().force_release(&name).await?;
    let owner = owner.map(|owner| shown(&owner).to_owned());
    Ok(Json(ForcedView { changed: owner.is_some(), owner }))
}

async fn list(call: Call, Query(query): Query<LeasesQuery>) -> Result<Json<Page<LeaseView>>, Problem> {
    let limit = query.limit.unwrap_or(page::LIMIT);
    let after = page::read::<String>(LIST, query.cursor.as_deref())?;
    let filter = LeaseFilter::all().held_only(query.held).prefix(query.prefix.unwrap_or_default());
    let found = call.mainstay.leases().list(&filter.after(after).limit(limit)).await?;
    Ok(Json(Page::of(LIST, limit, found, |one| one.name.clone(), LeaseView::from)))
}

async fn get(call: Call, Named(name): Named<String>) -> Result<Json<LeaseView>, Problem> {
    let found = call.mainstay.leases().get(&name).await?;
    Ok(Json(found.ok_or_else(|| Problem::not_found(format_args!("lease {name:?}")))?.into()))
}
