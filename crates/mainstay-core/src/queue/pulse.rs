//! What the dispatchers of a store show of it to whoever watches over them: how much they have in hand, and whether claims succeed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, ErrorKind};

/// So many claims in a row fail before that counts for anything: one can meet a deadlock, or a connection that has just broken.
const MISSES: u32 = 2;

/// What the dispatchers of a store show of it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    in_hand: AtomicUsize,
    /// How often something has come into hand.
    taken: AtomicU64,
    /// How claims go, by dispatcher: one queue can fail while the other does not.
    claims: Mutex<BTreeMap<u64, Claims>>,
    dispatchers: AtomicU64,
}

#[derive(Debug, Default)]
struct Claims {
    succeeded: bool,
    /// In a row.
    failed: u32,
    /// How often something had come into hand, of any dispatcher, when the first of these failed.
    taken: u64,
    last: Option<(ErrorKind, String)>,
}

impl Pulse {
    /// One more dispatcher of the store. It shows nothing yet.
    pub(crate) fn join(self: &Arc<Self>) -> Beat {
        let number = self.dispatchers.fetch_add(1, Ordering::Relaxed);
        self.claims().insert(number, Claims::default());
        Beat { pulse: Arc::clone(self), number, in_hand: 0 }
    }

    /// How many messages the dispatchers have in hand: claimed and not settled.
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand.load(Ordering::Relaxed)
    }

    /// How often something has come into hand. Any change means that there was work since.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether something has come into hand since it had done so `before` times, or else the last claims of all dispatchers have
    /// succeeded. One that brings nothing has hardly written anything, and proves little while another fails.
    pub(crate) fn has_claimed(&self, before: u64) -> bool {
        let claims = self.claims();
        self.taken() != before || (!claims.is_empty() && claims.values().all(|claims| claims.succeeded))
    }

    /// What is wrong with a store whose claims fail again and again, also while it answers whoever only reads. Not as long as another
    /// dispatcher gets something out of it: then it is not the store.
    pub(crate) fn trouble(&self) -> Option<Error> {
        let (taken, claims) = (self.taken(), self.claims());
        let failing = claims.values().find(|claims| claims.failed >= MISSES && claims.taken == taken)?;
        let (kind, text) = failing.last.as_ref()?;
        Some(Error::new(*kind, "fleet.claim", text.clone()))
    }

    fn claims(&self) -> MutexGuard<'_, BTreeMap<u64, Claims>> {
        // A few plain values are whole whatever panicked beside them.
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one dispatcher shows, until it is dropped.
#[derive(Debug)]
pub(crate) struct Beat {
    pulse: Arc<Pulse>,
    number: u64,
    in_hand: usize,
}

impl Beat {
    /// So many messages are in hand.
    pub(crate) fn in_hand(&mut self, now: usize) {
        if now > self.in_hand {
            self.pulse.taken.fetch_add(1, Ordering::Relaxed);
        }
        self.pulse.in_hand.fetch_add(now, Ordering::Relaxed);
        self.pulse.in_hand.fetch_sub(self.in_hand, Ordering::Relaxed);
        self.in_hand = now;
    }

    /// A claim was answered.
    pub(crate) fn claimed(&self) {
        self.pulse.claims().insert(self.number, Claims { succeeded: true, ..Claims::default() });
    }

    pub(crate) fn could_not_claim(&self, error: &Error) {
        let (taken, mut claims) = (self.pulse.taken(), self.pulse.claims());
        let claims = claims.entry(self.number).or_default();
        if claims.failed == 0 || claims.taken != taken {
            (claims.failed, claims.taken) = (0, taken);
        }
        let failed = claims.failed.saturating_add(1);
        *claims = Claims { succeeded: false, failed, taken, last: Some((error.kind(), error.to_string())) };
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.pulse.in_hand.fetch_sub(self.in_hand, Ordering::Relaxed);
        self.pulse.claims().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failure_is_no_trouble_and_two_in_a_row_are() {
        let (pulse, full) = (Arc::new(Pulse::default()), Error::new(ErrorKind::Full, "test", "full"));
        let beat = pulse.join();
        beat.could_not_claim(&full);
        assert!(pulse.trouble().is_none() && !pulse.has_claimed(0));
        beat.claimed();
        beat.could_not_claim(&full);
        assert!(pulse.trouble().is_none() && !pulse.has_claimed(0), "a claim between them");
        beat.could_not_claim(&full);
        assert_eq!(pulse.trouble().unwrap().kind(), ErrorKind::Full);
        drop(beat);
        assert!(pulse.trouble().is_none() && !pulse.has_claimed(0));
    }

    #[test]
    fn what_one_queue_shows_does_not_hide_what_the_other_does() {
        let (pulse, full) = (Arc::new(Pulse::default()), Error::new(ErrorKind::Full, "test", "full"));
        let (one, other) = (pulse.join(), pulse.join());
        one.claimed();
        assert!(!pulse.has_claimed(0), "the other has yet to");
        other.could_not_claim(&full);
        one.claimed();
        other.could_not_claim(&full);
        assert!(pulse.trouble().is_some());
        other.claimed();
        assert!(pulse.trouble().is_none() && pulse.has_claimed(0));
    }

    #[test]
    fn a_queue_that_fails_beside_one_that_is_worked_on_is_not_the_stores_trouble() {
        let (pulse, denied) = (Arc::new(Pulse::default()), Error::new(ErrorKind::Config, "test", "denied"));
        let (mut one, other) = (pulse.join(), pulse.join());
        for round in 1..=3 {
            other.could_not_claim(&denied);
            assert!(pulse.trouble().is_none(), "{round}");
            one.in_hand(1);
            one.in_hand(0);
        }
        assert!(pulse.has_claimed(0) && !pulse.has_claimed(3));
        other.could_not_claim(&denied);
        other.could_not_claim(&denied);
        assert!(pulse.trouble().is_some(), "nobody gets anything out of it");
    }

    #[test]
    fn what_came_and_went_is_still_seen() {
        let pulse = Arc::new(Pulse::default());
        let (mut one, mut other) = (pulse.join(), pulse.join());
        one.in_hand(2);
        other.in_hand(1);
        assert_eq!((pulse.in_hand(), pulse.taken()), (3, 2));
        one.in_hand(0);
        assert_eq!((pulse.in_hand(), pulse.taken()), (1, 2));
        drop(other);
        assert_eq!(pulse.in_hand(), 0);
    }
}
