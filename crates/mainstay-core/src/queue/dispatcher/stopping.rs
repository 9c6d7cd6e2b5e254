//! How a stop goes on: running handlers get a grace period, and the last settles a little longer.

use std::time::{Duration, Instant};

/// How long the last settles may take after the grace period, should the database be gone.
const LAST_SETTLES: Duration = Duration::from_secs(10);

/// A stop that has begun.
#[derive(Debug)]
pub(super) struct Stopping {
    grace: Duration,
    /// When running handlers are dropped; none until there is a hurry.
    grace_ends: Option<Instant>,
    /// Whether they have been.
    grace_over: bool,
}

impl Stopping {
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, grace_ends: None, grace_over: false }
    }

    /// From now on running handlers have their grace period.
    pub(super) fn hurry(&mut self) {
        self.grace_ends.get_or_insert_with(|| Instant::now() + self.grace);
    }

    /// Whether there is a hurry.
    pub(super) fn hurries(&self) -> bool {
        self.grace_ends.is_some()
    }

    /// When something changes next.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        if self.grace_over { self.gives_up_at() } else { self.grace_ends }
    }

    /// Whether the grace period has just ended. True once.
    pub(super) fn ends_grace(&mut self, now: Instant) -> bool {
        let ends = !self.grace_over && self.grace_ends.is_some_and(|ends| ends <= now);
        self.grace_over |= ends;
        ends
    }

    /// Whether it is time to leave, whatever is left.
    pub(super) fn gives_up(&self) -> bool {
        self.gives_up_at().is_some_and(|when| when <= Instant::now())
    }

    /// When to leave even with claims unsettled, because the database does not answer.
    fn gives_up_at(&self) -> Option<Instant> {
        self.grace_ends.map(|ends| ends + LAST_SETTLES)
    }
}
