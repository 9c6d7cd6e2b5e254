//! A received message in the hands of the one who handles it.
//!
//! Whether it is still his is answered here without asking the database (see [`renewing`]): so it counts as lost no later than the
//! database could give it to somebody else. Once lost, it stays lost.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::queue::ClaimRequest;
use crate::renewing::{self, Held, Term};
use crate::store::{CallIn, CallInBlocking, InboxStore};
use crate::telemetry;
use crate::text::error_text;

use super::{ContentHash, InboxKey, Reservation, ReservationEnd, Reserved};

/// When a reservation is renewed, as a share of its length.
const RENEW_AT: f64 = 0.6;

/// How a message is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GuardOptions {
    /// How long the reservation holds unless renewed: above zero, at most a day. Defaults to 30 s.
    pub lease: Duration,
    /// Whether it is renewed while the guard lives. Defaults to true.
    pub renew: bool,
    /// What the content is compared by. Defaults to none.
    pub hash: Option<ContentHash>,
}

impl Default for GuardOptions {
    fn default() -> Self {
        Self { lease: Duration::from_secs(30), renew: true, hash: None }
    }
}

impl GuardOptions {
    /// How long the reservation holds unless renewed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }
    /// Whether it is renewed while the guard lives.
    #[must_use]
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }
    /// What the content is compared by.
    #[must_use]
    pub fn hash(mut self, hash: ContentHash) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Refuses a lease outside its bounds.
    pub fn validate(&self) -> Result<()> {
        ClaimRequest::validate_lease("inbox.begin", self.lease)
    }
}

/// A received message that is the caller's to handle.
///
/// It is renewed in the background. End it with [`Guard::complete`], [`Guard::complete_in`], [`Guard::fail`] or
/// [`Guard::release`]; dropping it gives it back, as soon as the database can be reached.
#[must_use = "dropping the guard gives the message back"]
pub struct Guard {
    holding: Arc<Holding>,
    reserved: Reserved,
    /// Renews it, and notices when it lapses.
    _renewing: AbortOnDropHandle<()>,
}

struct Holding {
    store: Arc<dyn InboxStore>,
    reservation: Reservation,
    lease: Duration,
    renew: bool,
    standing: Mutex<Standing>,
    /// Cancelled once it is over.
    over: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    term: Term,
    until: Timestamp,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Ended by its holder, and the database has said so.
    Settled,
    /// Completed in a transaction of the caller's, which may still roll back.
    Handed,
    /// Somebody else may have it.
    Lost,
}

impl Holding {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands, or none when it is over. Notices when it has lapsed.
    fn look(&self) -> Option<Standing> {
        let standing = *self.standing();
        if standing.end.is_some() {
            return None;
        }
        if clock::now() >= standing.term.deadline {
            self.end(End::Lost);
            return None;
        }
        Some(standing)
    }

    fn end(&self, end: End) {
        let first = {
            let mut standing = self.standing();
            let first = standing.end.is_none();
            standing.end.get_or_insert(end);
            first
        };
        self.over.cancel();
        if first && end == End::Lost {
            telemetry::guard_lost(self.store.identifier(), &self.reservation.key);
        }
    }

    async fn renew(&self) -> Result<bool> {
        if self.look().is_none() {
            return Ok(false);
        }
        let asked_at = clock::now();
        let Some(until) = self.store.renew(&self.reservation, self.lease).await? else {
            self.end(End::Lost);
            return Ok(false);
        };
        {
            let mut standing = self.standing();
            // Whoever was told that it is lost has stopped; it must not come back to life.
            if standing.end.is_some() {
                return Ok(false);
            }
            standing.until = standing.until.max(until);
            standing.term.extend(Term::new(asked_at, self.lease));
        }
        Ok(true)
    }

    async fn settle(&self, end: &ReservationEnd) -> Result<()> {
        // Also when it counts as lost here: perhaps nobody has taken it. The database decides.
        if matches!(self.standing().end, Some(End::Settled | End::Handed)) {
            return Err(self.lost("it has ended"));
        }
        if !self.store.end(&self.reservation, end).await? {
            self.end(End::Lost);
            return Err(self.lost("its reservation lapsed, and somebody else may have it"));
        }
        self.standing().end = Some(End::Settled);
        self.over.cancel();
        telemetry::guard_ended(self.store.identifier(), &self.reservation.key, end);
        Ok(())
    }

    fn lost(&self, why: &str) -> Error {
        let text = format!("the message {} is no longer held: {why}", self.reservation.key);
        Error::new(ErrorKind::ClaimLost, "inbox.guard", text)
    }
}

impl Held for Holding {
    const RENEWAL: &'static str = "inbox.renew";

    fn term(&self) -> Option<Term> {
        self.look().map(|standing| standing.term)
    }
    fn duration(&self) -> Duration {
        self.lease
    }
    fn renewal(&self, asked_at: Instant) -> Option<Instant> {
        self.renew.then(|| asked_at + self.lease.mul_f64(RENEW_AT))
    }
    async fn renew_once(&self) -> Result<bool> {
        self.renew().await
    }
    fn over(&self) -> &CancellationToken {
        &self.over
    }
    fn retrying(&self, error: &Error, pause: Duration) {
        telemetry::retrying(self.store.identifier(), Self::RENEWAL, error, pause);
    }
}

impl Guard {
    /// Must be called within a runtime.
    pub(super) fn new(
        store: Arc<dyn InboxStore>,
        reservation: Reservation,
        reserved: Reserved,
        options: &GuardOptions,
        asked_at: Instant,
    ) -> Self {
        let term = Term::new(asked_at, options.lease);
        let standing = Mutex::new(Standing { term, until: reserved.until, end: None });
        let (lease, renew, over) = (options.lease, options.renew, CancellationToken::new());
        let holding = Arc::new(Holding { store, reservation, lease, renew, standing, over });
        let renewing = AbortOnDropHandle::new(tokio::spawn(renewing::keep(Arc::clone(&holding))));
        Self { holding, reserved, _renewing: renewing }
    }

    /// What the message is known by.
    pub fn key(&self) -> &InboxKey {
        &self.holding.reservation.key
    }
    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.reserved.attempt
    }
    /// Raised by every reservation of the message.
    pub fn generation(&self) -> i64 {
        self.reserved.generation
    }
    /// Whether the message was seen before with another content.
    pub fn hash_mismatch(&self) -> bool {
        self.reserved.hash_mismatch
    }
    /// Until when it is held unless it is renewed, by the database's clock.
    pub fn until(&self) -> Timestamp {
        self.holding.standing().until
    }

    /// Whether somebody else may have the message. Asks nobody.
    pub fn is_lost(&self) -> bool {
        self.holding.look().is_none() && self.holding.standing().end == Some(End::Lost)
    }

    /// Fails with `ClaimLost` once the message may be somebody else's. Call it before every step that can't be taken back.
    pub fn check(&self) -> Result<()> {
        if self.is_lost() {
            return Err(self.holding.lost("it was not renewed in time, and somebody else may have it"));
        }
        Ok(())
    }

    /// Cancelled once the message is lost or ended: stop then.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.holding.over
    }

    /// Renews it now, whatever the background does. False when it is lost.
    pub async fn renew(&self) -> Result<bool> {
        self.holding.renew().await
    }

    /// The message is done. `ClaimLost` when it was not the caller's any more.
    pub async fn complete(self) -> Result<()> {
        self.holding.settle(&ReservationEnd::Complete).await
    }

    /// Marks the message done within the caller's transaction: what he wrote there and "done" are committed together or not at
    /// all. `ClaimLost` when the message was not his any more; then roll back.
    ///
    /// Keep the guard until the transaction has ended, and drop it then: after a commit there is nothing left to give back, after a
    /// rollback the message is free again.
    pub async fn complete_in<Tx, Marker>(&self, tx: &mut Tx) -> Result<()>
    where
        Tx: CallIn<Marker> + ?Sized,
    {
        self.check()?;
        let call = self.holding.store.completion(&self.holding.reservation);
        let answers = tx.call_in(&call).await?;
        self.completed(&answers)
    }

    /// The same in a transaction of a driver that blocks.
    pub fn complete_in_blocking<Tx, Marker>(&self, tx: &mut Tx) -> Result<()>
    where
        Tx: CallInBlocking<Marker> + ?Sized,
    {
        self.check()?;
        let call = self.holding.store.completion(&self.holding.reservation);
        let answers = tx.call_in(&call)?;
        self.completed(&answers)
    }

    fn completed(&self, answers: &[String]) -> Result<()> {
        if !self.holding.store.completed(answers)? {
            self.holding.end(End::Lost);
            return Err(self.holding.lost("its reservation lapsed, and somebody else may have it"));
        }
        // No renewal from here on: it would wait for the caller's transaction.
        self.holding.end(End::Handed);
        telemetry::guard_ended(self.holding.store.identifier(), self.key(), &ReservationEnd::Complete);
        Ok(())
    }

    /// Gives the message up: it is dead until somebody revives it.
    pub async fn fail(self, error: impl fmt::Display) -> Result<()> {
        self.holding.settle(&ReservationEnd::Fail(error_text(&error.to_string()))).await
    }

    /// Gives the message back, so that the next caller gets it at once. With an error the attempt counts, without one it does not.
    pub async fn release(self, error: Option<String>) -> Result<()> {
        let error = error.as_deref().and_then(error_text);
        self.holding.settle(&ReservationEnd::Release(error)).await
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let settled = self.holding.standing().end == Some(End::Settled);
        self.holding.over.cancel();
        // One that only lapsed here may still stand in the database, and a transaction it was completed in may have been rolled back.
        if let (false, Ok(runtime)) = (settled, tokio::runtime::Handle::try_current()) {
            let holding = Arc::clone(&self.holding);
            runtime.spawn(async move {
                let given_back =
                    holding.store.end(&holding.reservation, &ReservationEnd::Release(None)).await;
                if let Err(error) = given_back {
                    telemetry::guard_unreleased(holding.store.identifier(), &holding.reservation.key, &error);
                }
            });
        }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", self.key())
            .field("generation", &self.reserved.generation)
            .field("end", &self.holding.standing().end)
            .finish_non_exhaustive()
    }
}
