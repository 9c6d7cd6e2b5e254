//! The sequential model of a lease.

use super::{Instant, Model};
use crate::checker::operations::Operation;
use crate::history::{Answer, Call};

/// A lease as the database has it.
///
/// A holder may renew without a record, so the model knows since when a lease can have lapsed, and not
/// that it has. Lapsed is lost: only an acquisition brings it back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Lease {
    holder: Option<Holder>,
    /// The highest epoch and fencing token that were given, at least.
    epoch: i64,
    token: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    /// None: the answer to its acquisition never came, so no call can name it.
    epoch: Option<i64>,
    /// Until when it holds for certain.
    until: u64,
    /// When the holder itself counts it as lost.
    deadline: u64,
}

impl Lease {
    fn is_held_under(&self, epoch: i64) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.epoch == Some(epoch))
    }

    /// Returns when a call can find the lease free.
    fn free(&self, instant: Instant) -> Option<Instant> {
        instant.from(self.holder.as_ref().map_or(0, |holder| holder.until))
    }

    /// Returns when a holder can find that it has lost its epoch. It goes by its own deadline as well.
    fn lost(&self, epoch: i64, instant: Instant) -> Option<Instant> {
        match &self.holder {
            Some(holder) if holder.epoch == Some(epoch) => instant.from(holder.until.min(holder.deadline)),
            _ => Some(instant),
        }
    }

    fn given_up(&self) -> Self {
        Self { holder: None, ..self.clone() }
    }

    fn acquired(&self, instant: Instant, lease_ms: u64, granted: Option<(i64, i64, u64)>) -> Self {
        let (epoch, token, deadline) = granted.unwrap_or((self.epoch + 1, self.token + 1, 0));
        let until = instant.until(lease_ms);
        let holder = Holder { epoch: granted.map(|_| epoch), until, deadline };
        Self { holder: Some(holder), epoch, token }
    }
}

impl Model for Lease {
    fn step(&self, operation: &Operation<'_>, instant: Instant, is_contended: bool) -> Vec<(Self, Instant)> {
        let unchanged = |is_allowed: bool| is_allowed.then(|| (self.clone(), instant));
        let next = match (operation.call, operation.answer()) {
            _ if !operation.possibly() => None,
            (Call::Acquire { lease_ms, .. }, Some(Answer::Granted { epoch, token, until })) => {
                let is_next = *epoch > self.epoch && *token > self.token;
                let granted = Some((*epoch, *token, *until));
                let free = self.free(instant).filter(|_| is_next);
                free.map(|instant| (self.acquired(instant, *lease_ms, granted), instant))
            }
            // A call that is under way has the row locked: the lease counts as held.
            (Call::Acquire { .. }, Some(Answer::Held { .. })) => {
                unchanged(self.holder.is_some() || is_contended)
            }
            (Call::Acquire { lease_ms, .. }, None) => {
                self.free(instant).map(|instant| (self.acquired(instant, *lease_ms, None), instant))
            }
            (Call::Prolong { epoch, lease_ms, .. }, Some(Answer::Granted { epoch: same, token, until })) => {
                let is_next = epoch == same && self.is_held_under(*epoch) && *token > self.token;
                is_next.then(|| {
                    let granted = Some((*epoch, *token, *until));
                    let renewed = Self { epoch: self.epoch, ..self.acquired(instant, *lease_ms, granted) };
                    (renewed, instant)
                })
            }
            (Call::Prolong { epoch, .. }, Some(Answer::Held { .. })) => {
                self.lost(*epoch, instant).map(|instant| (self.clone(), instant))
            }
            (Call::Prolong { epoch, lease_ms, .. }, None) => self.is_held_under(*epoch).then(|| {
                let deadline = self.holder.as_ref().map_or(0, |holder| holder.deadline);
                let granted = Some((*epoch, self.token + 1, deadline));
                (self.acquired(instant, *lease_ms, granted), instant)
            }),
            (Call::GiveUp { epoch, .. }, Some(Answer::Flag(false))) => {
                self.lost(*epoch, instant).map(|instant| (self.clone(), instant))
            }
            (Call::GiveUp { epoch, .. }, _) => self.is_held_under(*epoch).then(|| (self.given_up(), instant)),
            (Call::ForceRelease { .. }, Some(Answer::Flag(false))) => {
                self.free(instant).map(|instant| (self.given_up(), instant))
            }
            (Call::ForceRelease { .. }, _) => self.holder.is_some().then(|| (self.given_up(), instant)),
            (Call::GuardedWrite { epoch, .. }, Some(_)) => unchanged(self.is_held_under(*epoch)),
            _ => None,
        };
        next.into_iter().collect()
    }
}
