//! Searches an order of calls that explains every answer.
//!
//! A history is linearizable if each call can be given one instant between its invocation and its
//! answer such that a simple sequential model ([`Model`]), fed with the calls in that order, gives
//! every answer as recorded. The search tries all orders, so it is kept to short histories; what it
//! has seen it does not try again.
//!
//! Leases lapse by themselves, at a time and not at a call. The search therefore carries a lower bound
//! of the time: a model that needs a lease to have lapsed raises it, and a call that was answered
//! before that bound no longer fits.

mod lease;
mod reservation;

pub(crate) use lease::Lease;
pub(crate) use reservation::Reservation;

use std::collections::HashSet;
use std::hash::Hash;

use super::evidence::Evidence;
use super::operations::{NEVER, Operation};
use crate::verdict::{Rule, Violation};

/// The most calls of a history that is searched.
pub(crate) const MOST_CALLS: usize = 12;

/// When a call may take effect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant {
    /// At this time, or later.
    pub earliest: u64,
    /// Not after this time.
    pub latest: u64,
    /// By how much a lease can be shorter than asked for.
    pub short: u64,
}

impl Instant {
    /// Returns until when a lease holds for certain that begins then.
    pub(crate) fn until(self, lease_ms: u64) -> u64 {
        let lease = lease_ms.saturating_mul(1_000_000).saturating_sub(self.short);
        self.earliest.saturating_add(lease)
    }

    /// Narrows it to what is not before a time.
    pub(crate) fn from(self, at: u64) -> Option<Self> {
        let earliest = self.earliest.max(at);
        (earliest <= self.latest).then_some(Self { earliest, ..self })
    }
}

/// A sequential model of something that many processes call.
pub(crate) trait Model: Clone + Eq + Hash + Default {
    /// Feeds the model with a call.
    ///
    /// Returns every state that the recorded answer allows, with when the call took effect then;
    /// none if the model would not have answered so. Calls without an answer need not be fed at all,
    /// so for these only states that differ are returned. `is_contended` tells whether another call
    /// was under way meanwhile.
    fn step(&self, operation: &Operation<'_>, instant: Instant, is_contended: bool) -> Vec<(Self, Instant)>;
}

/// Searches an order that explains the calls, and reports if there is none.
///
/// Says nothing of long histories, and of those in which a clock was stepped or that a failover can
/// have undone.
pub(crate) fn judge<M: Model>(
    evidence: &Evidence<'_>,
    resource: &str,
    calls: &[&Operation<'_>],
) -> Option<Violation> {
    let first = calls.iter().map(|call| call.invoked).min()?;
    let answered = calls.iter().map(|call| call.returned).filter(|returned| *returned != NEVER);
    let last = answered.max().unwrap_or(first);
    let is_judged = calls.len() <= MOST_CALLS
        && !calls.iter().any(|call| call.may_be_lost)
        && !evidence.clock_steps.touch(first, last);
    if !is_judged || explains::<M>(calls, evidence.granularity()) {
        return None;
    }
    Some(Violation {
        rule: Rule::Exclusion,
        text: format!("{resource}: no order of the calls explains their answers"),
        ids: vec![resource.to_owned()],
        lines: calls.iter().flat_map(|call| &call.lines).map(|line| (*line).to_owned()).collect(),
    })
}

/// Returns whether some order of the calls explains every answer, if leases can be so much shorter than asked for.
pub(crate) fn explains<M: Model>(calls: &[&Operation<'_>], short: u64) -> bool {
    assert!(calls.len() <= MOST_CALLS, "a search of {} calls would not end", calls.len());
    let is_contended = |call: &Operation<'_>| {
        let others = calls.iter().filter(|other| !std::ptr::eq(**other, call));
        others.into_iter().any(|other| !other.before(call) && !call.before(other))
    };
    let calls = calls.iter().map(|call| (*call, is_contended(call))).collect();
    Search { calls, short, seen: HashSet::new() }.run(0, &M::default(), 0)
}

struct Search<'a, M> {
    calls: Vec<(&'a Operation<'a>, bool)>,
    short: u64,
    /// Calls that were placed (as bits), the model after them, and the time.
    seen: HashSet<(u32, M, u64)>,
}

impl<M: Model> Search<'_, M> {
    fn run(&mut self, placed: u32, model: &M, now: u64) -> bool {
        let left: Vec<usize> = (0..self.calls.len()).filter(|index| placed & (1 << index) == 0).collect();
        let deadline = left.iter().map(|index| latest(self.calls[*index].0)).min().unwrap_or(NEVER);
        if deadline == NEVER {
            return true;
        }
        if now > deadline || !self.seen.insert((placed, model.clone(), now)) {
            return false;
        }
        for index in left {
            let (operation, is_contended) = self.calls[index];
            let instant = Instant {
                earliest: now.max(operation.invoked),
                latest: latest(operation),
                short: self.short,
            };
            if instant.earliest > deadline {
                continue;
            }
            for (next, instant) in model.step(operation, instant, is_contended) {
                if self.run(placed | (1 << index), &next, instant.earliest) {
                    return true;
                }
            }
        }
        false
    }
}

/// Returns when a call has taken effect at the latest. One without an answer may never do.
fn latest(operation: &Operation<'_>) -> u64 {
    if operation.answer().is_some() { operation.returned } else { NEVER }
}

#[cfg(test)]
mod tests;
