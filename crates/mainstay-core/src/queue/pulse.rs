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

    /// Whether the last claims of all dispatchers have succeeded.
    pub(crate) fn has_claimed(&self) -> bool {
        let claims = self.claims();
        !claims.is_empty() && claims.values().all(|claims| claims.succeeded)
    }

    /// What is wrong with a store whose claims fail again and again, also while it answers whoever only reads.
    pub(crate) fn trouble(&self) -> Option<Error> {
        let claims = self.claims();
        let failing = claims.values().find(|claims| claims.failed >= MISSES)?;
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
        let mut claims = self.pulse.claims();
        let claims = claims.entry(self.number).or_default();
        let failed = claims.failed.saturating_add(1);
        *claims = Claims { succeeded: false, failed, last: Some((error.kind(), error.to_string())) };
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
        assert!(pulse.trouble().is_none() && !pulse.has_claimed());
        beat.claimed();
        beat.could_not_claim(&full);
        assert!(pulse.trouble().is_none() && !pulse.has_claimed(), "a claim between them");
        beat.could_not_claim(&full);
        assert_eq!(pulse.trouble().unwrap().kind(), ErrorKind::Full);
        drop(beat);
        assert!(pulse.trouble().is_none() && !pulse.has_claimed());
    }

    #[test]
    fn what_one_queue_shows_does_not_hide_what_the_other_does() {
        let (pulse, full) = (Arc::new(Pulse::default()), Error::new(ErrorKind::Full, "test", "full"));
        let (one, other) = (pulse.join(), pulse.join());
        one.claimed();
        assert!(!pulse.has_claimed(), "the other has yet to");
        other.could_not_claim(&full);
        one.claimed();
        other.could_not_claim(&full);
        assert!(pulse.trouble().is_some());
        other.claimed();
        assert!(pulse.trouble().is_none() && pulse.has_claimed());
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
