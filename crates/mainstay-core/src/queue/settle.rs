//! Ending a claim: what became of the work, and what the database made of that.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::hash::Set;
use crate::id::WorkItemId;
use crate::text::error_text;

use super::{ClaimHandle, FailureReason};

/// The longest delay.
pub(crate) const DELAY_MAX: Duration = Duration::from_secs(3_650 * 24 * 3_600);

/// What became of a claimed work item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Handled.
    Ack,
    /// To be tried again. The delivery counts.
    Abandon {
        /// Above zero; none means the default backoff.
        delay: Option<Duration>,
        /// What went wrong.
        error: Option<String>,
    },
    /// Given back. The delivery does not count.
    Release {
        /// Above zero; none means at once.
        delay: Option<Duration>,
        /// Why, if there is something to say.
        error: Option<String>,
    },
    /// Failed for good without having been handed to a handler. The delivery does not count.
    Reject {
        /// Why: `DeliveryLimit` or `Expired`.
        reason: FailureReason,
        /// What there is to say.
        error: Option<String>,
    },
    /// Failed for good.
    Fail {
        /// Why it is given up.
        reason: FailureReason,
        /// What went wrong.
        error: Option<String>,
    },
}

impl Outcome {
    /// Failed for good by its handler.
    pub fn fail(error: impl Into<String>) -> Self {
        Self::Fail { reason: FailureReason::Handler, error: Some(error.into()) }
    }

    /// The delay asked for.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Abandon { delay, .. } | Self::Release { delay, .. } => *delay,
            Self::Ack | Self::Fail { .. } | Self::Reject { .. } => None,
        }
    }

    /// The error text.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Ack => None,
            Self::Abandon { error, .. }
            | Self::Release { error, .. }
            | Self::Fail { error, .. }
            | Self::Reject { error, .. } => error.as_deref(),
        }
    }

    /// The number in the SQL functions: 0 ack, 1 abandon, 2 fail, 3 release, and the other reasons of a failure:
    /// 4 delivery limit, 5 expired, 6 cancelled; without a delivery: 7 delivery limit, 8 any other reason.
    pub const fn code(&self) -> i16 {
        match self {
            Self::Ack => 0,
            Self::Abandon { .. } => 1,
            Self::Fail { reason: FailureReason::Handler, .. } => 2,
            Self::Fail { reason: FailureReason::DeliveryLimit, .. } => 4,
            Self::Fail { reason: FailureReason::Expired, .. } => 5,
            Self::Fail { reason: FailureReason::Cancelled, .. } => 6,
            Self::Reject { reason: FailureReason::DeliveryLimit, .. } => 7,
            Self::Reject { .. } => 8,
            Self::Release { .. } => 3,
        }
    }

    fn set_error(&mut self, text: Option<String>) {
        match self {
            Self::Ack => {}
            Self::Abandon { error, .. }
            | Self::Release { error, .. }
            | Self::Fail { error, .. }
            | Self::Reject { error, .. } => *error = text,
        }
    }
}

/// A claim and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The claim.
    pub claim: ClaimHandle,
    /// What became of it.
    pub outcome: Outcome,
}

/// What a settle or renew really changed (R4).
///
/// A claim in neither list is held but was not extended: another transaction was changing its item when the renewal came
/// by. It keeps the lease it has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// Changed, because the claim still held.
    pub changed: Vec<WorkItemId>,
    /// Left alone, because the claim no longer held: the lease lapsed and somebody else took or settled it.
    pub stale: Vec<WorkItemId>,
}

impl Settled {
    /// Sorts the claims asked for by what a renewal found: the claims still held, and whether each was extended.
    pub fn from_renewed(asked: impl IntoIterator<Item = WorkItemId>, held: Vec<(WorkItemId, bool)>) -> Self {
        let all = Self::from_changed(asked, held.iter().map(|(id, _)| *id).collect());
        let changed = held.into_iter().filter(|(_, extended)| *extended).map(|(id, _)| id).collect();
        Self { changed, ..all }
    }

    /// Sorts the claims asked for into those that changed and the rest.
    pub fn from_changed(asked: impl IntoIterator<Item = WorkItemId>, changed: Vec<WorkItemId>) -> Self {
        let hit: Set<WorkItemId> = changed.iter().copied().collect();
        let mut seen = Set::default();
        let stale = asked.into_iter().filter(|id| !hit.contains(id) && seen.insert(*id)).collect();
        Self { changed, stale }
    }
}

/// Checks settlements and brings them into stored form: bounded error texts, each claim once (the first wins).
pub fn validate_settlements(settlements: &[Settlement]) -> Result<Cow<'_, [Settlement]>> {
    for settlement in settlements {
        let delay = settlement.outcome.delay();
        if delay.is_some_and(|delay| delay > DELAY_MAX) {
            return Err(Error::invalid("queue.settle", "delay", "must be at most 3,650 days"));
        }
        if delay.is_some_and(|delay| delay.is_zero()) {
            return Err(Error::invalid(
                "queue.settle",
                "delay",
                "must be above zero; leave it out for the default",
            ));
        }
    }
    let mut seen = Set::with_capacity_and_hasher(settlements.len(), Default::default());
    let clean = settlements.iter().all(|s| seen.insert(s.claim) && is_stored_form(s.outcome.error()));
    if clean {
        return Ok(Cow::Borrowed(settlements));
    }
    seen.clear();
    let owned = settlements.iter().filter(|s| seen.insert(s.claim)).cloned().map(|mut settlement| {
        let text = settlement.outcome.error().and_then(error_text);
        settlement.outcome.set_error(text);
        settlement
    });
    Ok(Cow::Owned(owned.collect()))
}

fn is_stored_form(error: Option<&str>) -> bool {
    error.is_none_or(|text| !text.is_empty() && text.len() <= crate::text::ERROR_MAX && !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(id: WorkItemId) -> Settlement {
        Settlement { claim: ClaimHandle::new(id, 1), outcome: Outcome::Ack }
    }

    #[test]
    fn a_claim_that_is_held_and_not_extended_is_neither_changed_nor_stale() {
        let ids = [WorkItemId::new(), WorkItemId::new(), WorkItemId::new()];
        let settled = Settled::from_renewed(ids, vec![(ids[0], true), (ids[1], false)]);
        assert_eq!(settled, Settled { changed: vec![ids[0]], stale: vec![ids[2]] });
    }

    #[test]
    fn repeated_claims_count_once_and_the_first_wins() {
        let id = WorkItemId::new();
        let fail = Settlement { claim: ClaimHandle::new(id, 1), outcome: Outcome::fail("") };
        let settlements = [ack(id), fail];
        let kept = validate_settlements(&settlements).unwrap();
        assert_eq!(kept.as_ref(), &[ack(id)]);
    }

    #[test]
    fn error_texts_are_bounded() {
        let outcome = Outcome::fail("x".repeat(5_000));
        let settlements = [Settlement { claim: ClaimHandle::new(WorkItemId::new(), 1), outcome }];
        let kept = validate_settlements(&settlements).unwrap();
        assert_eq!(kept[0].outcome.error().unwrap().len(), 2_048);
    }

    #[test]
    fn what_did_not_change_is_stale() {
        let (a, b) = (WorkItemId::new(), WorkItemId::new());
        let settled = Settled::from_changed([a, b, b], vec![a]);
        assert_eq!(settled, Settled { changed: vec![a], stale: vec![b] });
    }
}
