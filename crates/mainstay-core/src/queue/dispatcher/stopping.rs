//! How a stop goes on: running handlers get a grace period, and the last settles a little longer.

use std::time::{Duration, Instant};

/// How long the last settles may take after the grace period, should the database be gone.
const LAST_SETTLES: Duration = Duration::from_secs(10);

/// A stop that has begun.
#[derive(Debug)]
pub(super) struct Stopping {
    /// When running handlers are dropped.
    grace_ends: Instant,
    /// Whether they have been.
    grace_over: bool,
    /// When to leave even with claims unsettled, because the database does not answer.
    gives_up: Instant,
}

impl Stopping {
    pub(super) fn new(grace: Duration) -> Self {
        let grace_ends = Instant::now() + grace;
        Self { grace_ends, grace_over: false, gives_up: grace_ends + LAST_SETTLES }
    }

    /// When something changes next.
    pub(super) fn next_tick(&self) -> Instant {
        if self.grace_over { self.gives_up } else { self.grace_ends }
    }

    /// Whether the grace period has just ended. True once.
    pub(super) fn ends_grace(&mut self, now: Instant) -> bool {
        let ends = !self.grace_over && self.grace_ends <= now;
        self.grace_over |= ends;
        ends
    }

    /// Whether it is time to leave, whatever is left.
    pub(super) fn gives_up(&self) -> bool {
        self.gives_up <= Instant::now()
    }
}
