//! Until when a lease is surely held, to be asked from anywhere.
//!
//! It is one number that the holder moves and everybody else reads, without a lock and without asking the database. Once the time is
//! over it stays over: whoever was told so has stopped.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;

/// Until when a lease is surely held.
pub(crate) struct Tenure {
    since: Instant,
    /// Microseconds after `since`; zero once it is over.
    until: AtomicU64,
}

impl Tenure {
    /// From now until `deadline`.
    pub(crate) fn new(deadline: Instant) -> Self {
        let since = clock::now();
        Self { since, until: AtomicU64::new(micros(deadline.saturating_duration_since(since))) }
    }

    /// Whether it lasts.
    pub(crate) fn holds(&self) -> bool {
        self.holds_at(clock::now())
    }

    fn holds_at(&self, now: Instant) -> bool {
        micros(now.saturating_duration_since(self.since)) < self.until.load(Ordering::SeqCst)
    }

    /// When it ends unless it is extended. A moment that has passed once it is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + Duration::from_micros(self.until.load(Ordering::SeqCst))
    }

    /// Moves its end on. False when it was over.
    pub(crate) fn extend(&self, deadline: Instant) -> bool {
        self.extend_at(clock::now(), deadline)
    }

    fn extend_at(&self, now: Instant, deadline: Instant) -> bool {
        let now = micros(now.saturating_duration_since(self.since));
        let until = micros(deadline.saturating_duration_since(self.since));
        let further = |known: u64| (now < known).then_some(known.max(until));
        self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, further).is_ok()
    }

    /// Ends it now.
    pub(crate) fn end(&self) {
        self.until.store(0, Ordering::SeqCst);
    }
}

/// Rounded down: a part of a microsecond less is on the safe side.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure").field("holds", &self.holds()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_is_over() {
        let (now, minute) = (clock::now(), Duration::from_secs(60));
        let tenure = Tenure::new(now + minute);
        assert!(tenure.holds());
        assert!(tenure.extend(now + 2 * minute));
        assert!(tenure.holds_at(now + minute) && tenure.deadline() > now + minute);
        assert!(tenure.extend_at(now + minute, now + minute), "an end that is nearer is no news");
        let later = now + 2 * minute;
        assert!(!tenure.holds_at(later));
        assert!(!tenure.extend_at(later, later + minute), "lapsed is lost");
        assert!(!tenure.holds_at(later));

        let tenure = Tenure::new(now + minute);
        tenure.end();
        assert!(!tenure.holds() && !tenure.extend(now + minute));
        assert!(!Tenure::new(now).holds(), "granted too late");
    }
}
