//! The story of one work item: every call that can have changed it.

use super::evidence::Noted;
use super::operations::Operation;
use crate::history::{Item, MessageState, Outcome, Sent};

/// A call that may have added the item.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Add<'a> {
    pub operation: &'a Operation<'a>,
    /// The item as its sender described it, where the call says so.
    pub sent: Option<&'a Sent>,
    /// Whether the item was there for certain when the call was answered.
    pub sure: bool,
}

/// A claim that handed the item out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed<'a> {
    pub operation: &'a Operation<'a>,
    pub item: &'a Item,
}

/// Returns the place in the order of its queue that an item has by its generation.
///
/// The first claim raises the generation to `seq << 16`, plus one. A requeue keeps both. None for numbers that no
/// provider gives.
pub(crate) fn place(generation: i64) -> Option<i64> {
    Some(generation >> 16).filter(|seq| *seq > 0)
}

/// Returns which claim of the item this is, from 1. Claims without an answer count.
pub(crate) fn ordinal(generation: i64) -> Option<u32> {
    place(generation)?;
    u32::try_from(generation & 0xffff).ok()
}

impl<'a> Claimed<'a> {
    /// Returns the ordering key and the place in its order.
    pub(crate) fn lane(&self) -> Option<(&'a str, i64)> {
        Some((self.item.key.as_deref()?, place(self.item.generation)?))
    }
}

/// A call that may have ended a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End<'a> {
    pub operation: &'a Operation<'a>,
    pub generation: i64,
    pub outcome: Outcome,
    /// Whether an effect was written in the same transaction.
    pub has_effect: bool,
    /// Whether it ended the claim for certain.
    pub sure: bool,
}

impl End<'_> {
    /// Returns whether the item is Done or Failed by this, and not Ready again.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self.outcome, Outcome::Ack | Outcome::Fail | Outcome::Reject)
    }

    /// Returns whether the delivery does not count.
    pub(crate) fn is_uncounted(&self) -> bool {
        matches!(self.outcome, Outcome::Release | Outcome::Reject)
    }
}

/// A call that may have ended the item, so that only an operator brings it back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal<'a> {
    pub operation: &'a Operation<'a>,
    /// The claim's generation, where the call names one.
    pub generation: Option<i64>,
    /// Whether the item is Done then. A Done item is never requeued.
    pub is_ack: bool,
    /// Whether it ended the item for certain.
    pub sure: bool,
}

/// A renewal that extended a claim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renewal<'a> {
    pub operation: &'a Operation<'a>,
    pub generation: i64,
    pub lease_ms: u64,
}

/// Everything that the history tells of a work item, each list in the order of the invocations.
#[derive(Debug, Clone, Default)]
pub(crate) struct Story<'a> {
    pub adds: Vec<Add<'a>>,
    /// Calls that named the item and added nothing: rolled back, failed, or a duplicate.
    pub refused: Vec<&'a Operation<'a>>,
    pub claims: Vec<Claimed<'a>>,
    pub renewals: Vec<Renewal<'a>>,
    pub ends: Vec<End<'a>>,
    /// Claims that failed the item instead of handing it out.
    pub rejections: Vec<&'a Operation<'a>>,
    /// With whether it was cancelled for certain.
    pub cancels: Vec<(&'a Operation<'a>, bool)>,
    /// Calls that may have requeued it by its id.
    pub requeues: Vec<&'a Operation<'a>>,
    /// Calls of its handler, with the generation of the claim.
    pub handled: Vec<(&'a Operation<'a>, i64)>,
    /// Calls that promoted it.
    pub forwards: Vec<&'a Operation<'a>>,
    /// Where it was received from, and its id there: items of the inbox.
    pub received: Option<(&'a str, &'a str)>,
    /// Its row at the end.
    pub finally: Option<Noted<'a, &'a MessageState>>,
}

impl<'a> Story<'a> {
    /// Returns the first call after which the item was there for certain.
    pub(crate) fn sure_add(&self) -> Option<&'a Operation<'a>> {
        let sure = self.adds.iter().filter(|add| add.sure).map(|add| add.operation);
        sure.min_by_key(|operation| operation.returned)
    }

    /// Returns a call that proves that the item was there: it added it, or claimed it.
    pub(crate) fn proof(&self) -> Option<&'a Operation<'a>> {
        let claims = self.claims.iter().map(|claim| claim.operation).filter(|claim| claim.surely());
        self.sure_add().or_else(|| claims.min_by_key(|claim| claim.returned))
    }

    /// Returns every call that may have ended the item.
    pub(crate) fn terminals(&self) -> Vec<Terminal<'a>> {
        let ends = self.ends.iter().filter(|end| end.is_terminal()).map(|end| Terminal {
            operation: end.operation,
            generation: Some(end.generation),
            is_ack: end.outcome == Outcome::Ack,
            sure: end.sure,
        });
        let rejections = self.rejections.iter().map(|operation| (*operation, operation.surely()));
        let without_claim = rejections
            .chain(self.cancels.iter().copied())
            .map(|(operation, sure)| Terminal { operation, generation: None, is_ack: false, sure });
        ends.chain(without_claim).collect()
    }

    /// Returns the ordering key and the place in its order, by the row at the end or by the claims.
    pub(crate) fn lane(&self) -> Option<(&'a str, i64)> {
        let state = self.finally.map(|state| state.what);
        if let Some((key, seq)) = state.and_then(|state| Some((state.key.as_deref()?, state.seq?))) {
            return Some((key, seq));
        }
        let mut lanes = self.claims.iter().filter(|claim| claim.operation.surely()).map(Claimed::lane);
        // An id that was added again has another place.
        let first = lanes.next()?;
        first.filter(|_| lanes.all(|lane| lane == first))
    }

    /// Returns the status of the row at the end, or an empty text.
    pub(crate) fn status(&self) -> &'a str {
        self.finally.map_or("", |state| state.what.status.as_str())
    }

    /// Returns whether the sender described the item more than once, so that it can have had two lives.
    pub(crate) fn is_added_again(&self) -> bool {
        self.adds.iter().filter(|add| add.sent.is_some()).nth(1).is_some()
    }
}
