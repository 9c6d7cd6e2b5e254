//! Reservations of received messages: of any number of callers one handles a message, for as long as its reservation holds.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use jiff::Timestamp;
use mainstay_core::OwnerToken;
use mainstay_core::inbox::{BeginAnswer, GuardOptions, InboxKey, Reservation, ReservationEnd};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::inbox::hash;
use super::time;
use crate::endpoint::{Endpoint, Endpoints};
use crate::problem::{Kind, Problem};
use crate::request::{Body, Call};
use crate::taken::take;
use crate::ticket;

const RESERVATION: &str = "reservation";

/// Asks for a message, to handle it.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Begin)]
struct BeginBody {
    /// Where it comes from.
    #[schema(min_length = 1, max_length = 255)]
    source: String,
    /// Its id there.
    #[schema(min_length = 1, max_length = 512)]
    message_id: String,
    /// The SHA-256 of its content, in hexadecimal digits.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    hash: Option<String>,
    /// How long the reservation holds unless renewed, above 0 and up to a day. Defaults to 30.
    #[schema(minimum = 0.001, maximum = 86400)]
    lease_seconds: Option<f64>,
}

/// Whose a message is.
#[derive(Serialize, ToSchema)]
#[schema(as = Begun)]
struct BegunView {
    /// `new`: it is the caller's. `busy`: somebody else's. `done`: there is nothing to do. `dead`: it was given up.
    outcome: &'static str,
    /// With `new`: what completes, fails, releases and renews it. Opaque.
    reservation: Option<String>,
    /// With `new` and `busy`: until when at least, by the database's clock.
    until: Option<Timestamp>,
    /// With `new`: which attempt this is, from 1.
    attempt: Option<u32>,
    /// Whether it was seen before with another content.
    hash_mismatch: bool,
}

/// A reservation.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReservationComplete)]
struct ReservationBody {
    /// The reservation.
    reservation: String,
}

/// A reservation that did not end well.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReservationEnd)]
struct EndBody {
    /// The reservation.
    reservation: String,
    /// What went wrong; cut to 2,048 characters. A release without an error is no attempt.
    error: Option<String>,
}

/// A reservation to be extended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ReservationRenew)]
struct ExtendBody {
    /// The reservation.
    reservation: String,
    /// For how long from now, above 0 and up to a day. Defaults to 30.
    #[schema(minimum = 0.001, maximum = 86400)]
    lease_seconds: Option<f64>,
}

/// A reservation that was extended.
#[derive(Serialize, ToSchema)]
#[schema(as = ReservationRenewed)]
struct ExtendedView {
    /// Until when, by the database's clock.
    until: Timestamp,
}

pub(super) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::post(
            "/v1/inbox/reservations",
            "beginReceived",
            "Reserve a received message while it is handled",
        )
        .note("Of any number of callers at once, exactly one is told `new`.")
        .body::<BeginBody>()
        .answer::<BegunView>(200, "Whose it is."),
        begin,
    );
    let end =
        |path, id, summary| Endpoint::post(path, id, summary).note("409 `claim-lost` if it no longer holds.");
    all.add(
        end("/v1/inbox/reservations/complete", "completeReceived", "Say that a reserved message is done")
            .body::<ReservationBody>()
            .empty(204, "It is done."),
        complete,
    );
    all.add(
        end("/v1/inbox/reservations/fail", "failReceived", "Give a reserved message up")
            .body::<EndBody>()
            .empty(204, "It is dead, until somebody revives it."),
        give_up,
    );
    all.add(
        end("/v1/inbox/reservations/release", "releaseReceived", "Give a reserved message back")
            .body::<EndBody>()
            .empty(204, "The next caller gets it."),
        give_back,
    );
    all.add(
        end("/v1/inbox/reservations/renew", "renewReceived", "Hold a reservation for longer")
            .body::<ExtendBody>()
            .answer::<ExtendedView>(200, "Until when it holds."),
        extend,
    );
}

async fn begin(call: Call, Body(body): Body<BeginBody>) -> Result<Json<BegunView>, Problem> {
    let key = InboxKey::new(body.source, body.message_id)?;
    let mut options = GuardOptions::default();
    options.hash = hash(body.hash.as_deref())?;
    options.lease = time::optional("lease_seconds", body.lease_seconds)?.unwrap_or(options.lease);
    let (reservation, answer) = reserve(&call, key, options).await?;
    let (outcome, until, attempt) = match &answer {
        BeginAnswer::New(reserved) => ("new", Some(reserved.until), Some(reserved.attempt)),
        BeginAnswer::Busy { until, .. } => ("busy", Some(*until), None),
        BeginAnswer::Done { .. } => ("done", None, None),
        BeginAnswer::Dead { .. } => ("dead", None, None),
    };
    let hash_mismatch = answer.hash_mismatch();
    Ok(Json(BegunView {
        outcome,
        reservation: reservation.as_ref().map(write),
        until,
        attempt,
        hash_mismatch,
    }))
}

/// What was reserved for a client who has hung up meanwhile is given back, and counts as no attempt.
async fn reserve(
    call: &Call,
    key: InboxKey,
    options: GuardOptions,
) -> Result<(Option<Reservation>, BeginAnswer), Problem> {
    let inbox = call.mainstay.inbox().clone();
    let of = inbox.clone();
    let reserving = async move { inbox.reserve(&key, OwnerToken::new(), &options).await };
    let give_back = move |(reservation, _): (Option<Reservation>, BeginAnswer)| async move {
        if let Some(reservation) = reservation {
            let _lapses = of.end_reservation(&reservation, ReservationEnd::Release(None)).await;
        }
    };
    take(reserving, give_back).await
}

fn write(reservation: &Reservation) -> String {
    let Reservation { key, owner, generation } = reservation;
    ticket::write(RESERVATION, &(key.source(), key.message_id(), owner, generation))
}

fn read(text: &str) -> Result<Reservation, Problem> {
    let (source, id, owner, generation): (String, String, OwnerToken, i64) =
        ticket::read(RESERVATION, RESERVATION, text)?;
    Ok(Reservation { key: InboxKey::new(source, id)?, owner, generation })
}

fn lost() -> Problem {
    let text =
        "the reservation no longer holds: somebody else may have the message; drop what was done for it";
    Problem::new(Kind::ClaimLost, text)
}

async fn end(call: &Call, reservation: &str, end: ReservationEnd) -> Result<StatusCode, Problem> {
    match call.mainstay.inbox().end_reservation(&read(reservation)?, end).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(lost()),
    }
}

async fn complete(call: Call, Body(body): Body<ReservationBody>) -> Result<StatusCode, Problem> {
    end(&call, &body.reservation, ReservationEnd::Complete).await
}

async fn give_up(call: Call, Body(body): Body<EndBody>) -> Result<StatusCode, Problem> {
    end(&call, &body.reservation, ReservationEnd::Fail(body.error)).await
}

async fn give_back(call: Call, Body(body): Body<EndBody>) -> Result<StatusCode, Problem> {
    end(&call, &body.reservation, ReservationEnd::Release(body.error)).await
}

async fn extend(call: Call, Body(body): Body<ExtendBody>) -> Result<Json<ExtendedView>, Problem> {
    let lease = time::optional("lease_seconds", body.lease_seconds)?.unwrap_or(Duration::from_secs(30));
    let until = call.mainstay.inbox().renew_reservation(&read(&body.reservation)?, lease).await?;
    Ok(Json(ExtendedView { until: until.ok_or_else(lost)? }))
}
