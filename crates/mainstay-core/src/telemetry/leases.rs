//! Leases.

use std::time::Duration;

use metrics::{counter, gauge};

use crate::error::Error;
use crate::lease::{LeaseClaim, LeaseGrant, LeaseHolder};

use super::names;

/// Why a lease was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaseLoss {
    /// It was not renewed in time, as far as this process can tell.
    Lapsed,
    /// The database says so.
    Taken,
}

impl LeaseLoss {
    fn as_str(self) -> &'static str {
        match self {
            Self::Lapsed => "lapsed",
            Self::Taken => "taken",
        }
    }
}

/// The wall clock has jumped ahead of the monotonic one.
pub(crate) fn clock_jumped(jump: Duration) {
    tracing::warn!(
        seconds = jump.as_secs_f64(),
        "this machine was suspended, or its clock was set forward: leases and claims count that time as passed, and those whose end has \
         passed are lost"
    );
}

pub(crate) fn lease_acquired(store: &str, claim: &LeaseClaim, grant: &LeaseGrant) {
    let LeaseClaim { name, owner, epoch } = claim;
    tracing::info!(
        store,
        lease = name,
        owner,
        epoch,
        fencing_token = grant.fencing_token,
        "acquired a lease"
    );
    counter!(names::LEASE_ACQUIRED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_contended(store: &str, name: &str, holder: &LeaseHolder) {
    let (owner, epoch) = (holder.owner.as_deref(), holder.epoch);
    tracing::debug!(store, lease = name, owner, epoch, "somebody else has the lease");
    counter!(names::LEASE_CONTENDED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_renewed(store: &str, claim: &LeaseClaim, grant: &LeaseGrant) {
    let (name, epoch, token) = (&claim.name, claim.epoch, grant.fencing_token);
    tracing::debug!(store, lease = name, epoch, fencing_token = token, "renewed a lease");
    counter!(names::LEASE_RENEWED, "store" => store.to_owned()).increment(1);
}

pub(crate) fn lease_lost(store: &str, claim: &LeaseClaim, loss: LeaseLoss) {
    let reason = loss.as_str();
    let LeaseClaim { name, owner, epoch } = claim;
    tracing::warn!(
        store,
        lease = name,
        owner,
        epoch,
        reason,
        "a lease was lost; what runs under it must stop"
    );
    counter!(names::LEASE_LOST, "store" => store.to_owned(), "reason" => reason).increment(1);
}

pub(crate) fn lease_released(store: &str, claim: &LeaseClaim) {
    tracing::info!(store, lease = claim.name, epoch = claim.epoch, "released a lease");
    counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "holder").increment(1);
}

/// A lease could not be given up at its end.
pub(crate) fn lease_unreleased(store: &str, name: &str, error: &Error) {
    tracing::warn!(store, lease = name, %error, "a lease could not be released; it lapses by itself");
}

/// An operator took a lease away.
pub(crate) fn lease_forced(store: &str, name: &str, owner: Option<&str>) {
    tracing::info!(
        store,
        action = "force-release",
        lease = name,
        owner,
        released = owner.is_some(),
        "changed by an operator"
    );
    if owner.is_some() {
        counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "operator").increment(1);
    }
}

/// Many leases at once are counted, and named only by those who hold them.
pub(crate) fn leases_acquired(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "acquired leases");
        counter!(names::LEASE_ACQUIRED, "store" => store.to_owned()).increment(count as u64);
    }
}

pub(crate) fn leases_renewed(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "renewed leases");
        counter!(names::LEASE_RENEWED, "store" => store.to_owned()).increment(count as u64);
    }
}

pub(crate) fn leases_lost(store: &str, count: usize, loss: LeaseLoss) {
    if count > 0 {
        let reason = loss.as_str();
        tracing::warn!(store, count, reason, "leases were lost; what runs under them must stop");
        counter!(names::LEASE_LOST, "store" => store.to_owned(), "reason" => reason).increment(count as u64);
    }
}

pub(crate) fn leases_released(store: &str, count: usize) {
    if count > 0 {
        tracing::debug!(store, count, "released leases");
        counter!(names::LEASE_RELEASED, "store" => store.to_owned(), "by" => "holder")
            .increment(count as u64);
    }
}

/// Publishes the gauge of held leases.
pub fn active_leases(store: &str, count: u64) {
    gauge!(names::ACTIVE_LEASES, "store" => store.to_owned()).set(count as f64);
}
