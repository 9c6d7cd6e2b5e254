//! A lease in the hands of its holder.
//!
//! Whether it is still held is answered here without asking the database (see [`renewing`]). So it counts as lost no later than the
//! database could give it to somebody else, also when the database can't be reached. Once lost, it stays lost.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::renewing::{self, Held, Term};
use crate::store::LeaseStore;
use crate::telemetry::{self, LeaseLoss};

use super::{GuardIn, GuardInBlocking, LeaseClaim, LeaseGrant, LeaseOptions};

/// A lease in the hands of its holder.
///
/// It is renewed in the background unless that was switched off. Dropping it gives it up, as soon as the database can be
/// reached; [`Lease::close`] does so for sure and tells whether it was still held.
#[must_use = "dropping the lease gives it up"]
pub struct Lease {
    holding: Arc<Holding>,
    /// Renews it, and notices when it lapses.
    _renewing: AbortOnDropHandle<()>,
}

/// What the holder and the renewal share.
struct Holding {
    store: Arc<dyn LeaseStore>,
    claim: LeaseClaim,
    options: LeaseOptions,
    standing: Mutex<Standing>,
    /// Cancelled once it is no longer held.
    over: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct Standing {
    term: Term,
    grant: LeaseGrant,
    end: Option<End>,
}

/// Why a lease is no longer held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Released,
    Lost(LeaseLoss),
}

impl Holding {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands, or none when it is over. Notices when it has lapsed.
    fn look(&self) -> Option<Standing> {
        {
            let mut standing = self.standing();
            let lapses = standing.end.is_none() && clock::now() >= standing.term.deadline;
            if !lapses {
                return Some(*standing).filter(|standing| standing.end.is_none());
            }
            standing.end = Some(End::Lost(LeaseLoss::Lapsed));
        }
        self.over.cancel();
        telemetry::lease_lost(self.store.identifier(), &self.claim, LeaseLoss::Lapsed);
        None
    }

    /// Ends it, unless that has happened. True for the one who did.
    fn end(&self, end: End) -> bool {
        let first = {
            let mut standing = self.standing();
            let first = standing.end.is_none();
            standing.end.get_or_insert(end);
            first
        };
        self.over.cancel();
        first
    }

    fn lose(&self, loss: LeaseLoss) {
        if self.end(End::Lost(loss)) {
            telemetry::lease_lost(self.store.identifier(), &self.claim, loss);
        }
    }

    /// Renews it once. False when it is no longer held.
    async fn renew(&self) -> Result<bool> {
        if self.look().is_none() {
            return Ok(false);
        }
        let asked_at = clock::now();
        let Some(grant) = self.store.renew(&self.claim, self.options.duration).await? else {
            self.lose(LeaseLoss::Taken);
            return Ok(false);
        };
        {
            let mut standing = self.standing();
            // Whoever was told that it is lost has stopped; it must not come back to life.
            if standing.end.is_some() {
                return Ok(false);
            }
            // Answers of two renewals may come in any order.
            if grant.fencing_token > standing.grant.fencing_token {
                standing.grant = grant;
            }
            standing.term.extend(Term::new(asked_at, self.options.duration));
        }
        telemetry::lease_renewed(self.store.identifier(), &self.claim, &grant);
        Ok(self.look().is_some())
    }

    /// Gives it up in the database. False when it was not held any more.
    async fn release(&self) -> Result<bool> {
        let released = self.store.release(&self.claim).await?;
        if released {
            telemetry::lease_released(self.store.identifier(), &self.claim);
        }
        Ok(released)
    }

    fn lost(&self, operation: &'static str) -> Error {
        let LeaseClaim { name, epoch, .. } = &self.claim;
        let why = match self.standing().end {
            Some(End::Released) => "it was released",
            Some(End::Lost(LeaseLoss::Taken)) => {
                "it lapsed or was released by an operator, and somebody else may have it"
            }
            Some(End::Lost(LeaseLoss::Lapsed)) | None => {
                "it was not renewed in time, and somebody else may have it"
            }
        };
        Error::new(
            ErrorKind::LeaseLost,
            operation,
            format!("the lease {name:?} (epoch {epoch}) is lost: {why}"),
        )
    }
}

impl Held for Holding {
    const RENEWAL: &'static str = "lease.renew";

    fn term(&self) -> Option<Term> {
        self.look().map(|standing| standing.term)
    }
    fn duration(&self) -> Duration {
        self.options.duration
    }
    fn renewal(&self, asked_at: Instant) -> Option<Instant> {
        self.options.renew.then(|| self.options.renewal(asked_at))
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

impl Lease {
    /// Must be called within a runtime.
    pub(super) fn new(
        store: Arc<dyn LeaseStore>,
        claim: LeaseClaim,
        options: LeaseOptions,
        grant: LeaseGrant,
        asked_at: Instant,
    ) -> Self {
        let term = Term::new(asked_at, options.duration);
        let standing = Mutex::new(Standing { term, grant, end: None });
        let holding = Arc::new(Holding { store, claim, options, standing, over: CancellationToken::new() });
        let renewing = AbortOnDropHandle::new(tokio::spawn(renewing::keep(Arc::clone(&holding))));
        Self { holding, _renewing: renewing }
    }

    /// What is held.
    pub fn name(&self) -> &str {
        &self.holding.claim.name
    }
    /// Who holds it.
    pub fn owner(&self) -> &str {
        &self.holding.claim.owner
    }
    /// Grows with every acquisition of this name: what fences writes.
    pub fn epoch(&self) -> i64 {
        self.holding.claim.epoch
    }
    /// Grows with every acquisition and renewal of this name: the newest one.
    pub fn fencing_token(&self) -> i64 {
        self.holding.standing().grant.fencing_token
    }
    /// What was said about the holder.
    pub fn context(&self) -> Option<&str> {
        self.holding.options.context.as_deref()
    }
    /// Until when it is held unless it is renewed, by the database's clock.
    pub fn expires_at(&self) -> Timestamp {
        self.holding.standing().grant.expires_at
    }
    /// The database's clock when the lease was acquired or last renewed.
    pub fn server_time(&self) -> Timestamp {
        self.holding.standing().grant.now
    }
    /// How long it is still held for sure, without a renewal. Zero once it is lost.
    pub fn remaining(&self) -> Duration {
        let standing = self.holding.look();
        standing
            .map_or(Duration::ZERO, |standing| standing.term.deadline.saturating_duration_since(clock::now()))
    }

    /// How long an acquisition or a renewal holds.
    pub(crate) fn duration(&self) -> Duration {
        self.holding.options.duration
    }

    /// Whether it may be held by somebody else: it was not renewed in time, taken away or released. Asks nobody.
    pub fn is_lost(&self) -> bool {
        self.holding.look().is_none()
    }

    /// Fails with `LeaseLost` once the lease is lost. Call it before every step that needs the lease. Asks nobody.
    pub fn check(&self) -> Result<()> {
        if self.is_lost() { Err(self.holding.lost("lease.check")) } else { Ok(()) }
    }

    /// Cancelled once the lease is lost or released: stop then.
    pub fn cancellation(&self) -> &CancellationToken {
        &self.holding.over
    }

    /// Renews it now, whatever the background does. False when it is lost.
    pub async fn renew(&self) -> Result<bool> {
        self.holding.renew().await
    }

    /// Fails with `LeaseLost` unless the lease is held, and keeps everybody else from getting it until `tx` has ended: what is
    /// written in `tx` is committed while the lease is held, or not at all. So not even a process that was paused between this
    /// and its commit can write beside the next holder.
    ///
    /// Nothing is locked for longer than `tx` takes, and renewals go on meanwhile. What is not in a transaction, or in one of another
    /// database, is refused, and so is one of PostgreSQL above READ COMMITTED; the lease stays held then. On SQLite the transaction
    /// becomes a writing one.
    pub async fn guard<Tx, Marker>(&self, tx: &mut Tx) -> Result<()>
    where
        Tx: GuardIn<Marker> + ?Sized,
    {
        self.check_for_guard()?;
        let guarded = tx.guard_in(self.holding.store.as_ref(), &self.holding.claim).await;
        self.after_guard(guarded)
    }

    /// The same in a transaction of a driver that blocks.
    pub fn guard_blocking<Tx, Marker>(&self, tx: &mut Tx) -> Result<()>
    where
        Tx: GuardInBlocking<Marker> + ?Sized,
    {
        self.check_for_guard()?;
        let guarded = tx.guard_in(self.holding.store.as_ref(), &self.holding.claim);
        self.after_guard(guarded)
    }

    fn check_for_guard(&self) -> Result<()> {
        if self.is_lost() { Err(self.holding.lost("lease.guard")) } else { Ok(()) }
    }

    fn after_guard(&self, guarded: Result<()>) -> Result<()> {
        if let Err(error) = &guarded
            && error.kind() == ErrorKind::LeaseLost
        {
            self.holding.lose(LeaseLoss::Taken);
        }
        guarded
    }

    /// Gives it up, so that others can have it at once. False when it was no longer held. From here on it counts as lost, also
    /// when this fails or is dropped midway; the database then lets it lapse.
    pub async fn release(&self) -> Result<bool> {
        self.holding.end(End::Released);
        self.holding.release().await
    }

    /// The same, for the last of it.
    pub async fn close(self) -> Result<bool> {
        self.release().await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let told = matches!(self.holding.standing().end, Some(End::Released | End::Lost(LeaseLoss::Taken)));
        self.holding.end(End::Released);
        // One that only lapsed here may still stand in the database.
        if let (false, Ok(runtime)) = (told, tokio::runtime::Handle::try_current()) {
            let holding = Arc::clone(&self.holding);
            runtime.spawn(async move {
                if let Err(error) = holding.release().await {
                    telemetry::lease_unreleased(holding.store.identifier(), &holding.claim.name, &error);
                }
            });
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = *self.holding.standing();
        f.debug_struct("Lease")
            .field("claim", &self.holding.claim)
            .field("fencing_token", &standing.grant.fencing_token)
            .field("end", &standing.end)
            .finish_non_exhaustive()
    }
}
