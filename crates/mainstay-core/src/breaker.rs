//! When something that fails is tried again, and what is known of its trouble: a database of a fleet, the receiver of a webhook.
//!
//! The breaker opens after some failures in a row; while it is open it is left alone. After a pause that doubles, one look is let
//! through (half-open), and its answer closes the breaker or opens it again. What has failed at work, although it answered looks, is closed
//! only by work that succeeds: a database that can be read and not be written must not look well in between.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::{Error, ErrorKind, Result};

const OPTIONS: &str = "breaker.options";

/// When something that fails is tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct BreakerOptions {
    /// The first pause. Defaults to 1 s.
    pub min: Duration,
    /// The longest pause; it doubles with every failure. Defaults to 1 min.
    pub max: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self { min: Duration::from_secs(1), max: Duration::from_secs(60) }
    }
}

impl BreakerOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        if self.min.is_zero() || self.max < self.min {
            let reason =
                format_args!("must be above zero and at most `max` ({:?}), got {:?}", self.max, self.min);
            return Err(Error::invalid(OPTIONS, "breaker.min", reason));
        }
        Ok(())
    }
}

/// Whether it is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// It answers.
    Closed,
    /// It has failed and is left alone for a while.
    Open,
    /// It has failed and is being looked at.
    HalfOpen,
}

/// The breaker of one database, or one receiver.
#[derive(Debug)]
pub struct Breaker {
    options: BreakerOptions,
    /// So many failures in a row open it.
    bears: u32,
    state: BreakerState,
    since: Timestamp,
    failures: u32,
    last_error: Option<(ErrorKind, String)>,
    retry_at: Option<Instant>,
    /// Whether looks say nothing of what was wrong.
    unproven: bool,
}

impl Breaker {
    /// One that is closed, and opens at the first failure.
    pub fn new(options: BreakerOptions) -> Self {
        Self {
            options,
            bears: 1,
            state: BreakerState::Closed,
            since: Timestamp::now(),
            failures: 0,
            last_error: None,
            retry_at: None,
            unproven: false,
        }
    }

    /// The same, opened by so many failures in a row; none is as one.
    #[must_use]
    pub fn opening_after(mut self, failures: u32) -> Self {
        self.bears = failures.max(1);
        self
    }

    /// How it stands.
    pub fn state(&self) -> BreakerState {
        self.state
    }

    /// Since when it is closed, or not.
    pub(crate) fn since(&self) -> Timestamp {
        self.since
    }

    /// Failures in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// What the last failure said, also if it is over.
    pub(crate) fn last_error(&self) -> Option<&(ErrorKind, String)> {
        self.last_error.as_ref()
    }

    /// When it may be looked at again; none if there is nothing to wait for.
    pub fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// A look is under way.
    pub fn tries(&mut self) {
        if self.state == BreakerState::Open {
            self.state = BreakerState::HalfOpen;
        }
    }

    /// A look has come to no answer. The next one is let through at once.
    pub fn tried_in_vain(&mut self) {
        if self.state == BreakerState::HalfOpen {
            self.state = BreakerState::Open;
            self.retry_at = Some(Instant::now());
        }
    }

    /// Lets the next look through at once.
    pub(crate) fn hasten(&mut self) {
        self.retry_at = self.retry_at.map(|_| Instant::now());
    }

    /// Whether only work can tell that the database is well again.
    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven
    }

    /// Whether it answers looks and is being tried at work.
    pub(crate) fn is_tried_at_work(&self) -> bool {
        self.unproven && self.state == BreakerState::HalfOpen && self.retry_at.is_none()
    }

    /// Forgets what was wrong: it is somebody else's to find out.
    pub(crate) fn forget(&mut self) {
        if self.state != BreakerState::Closed {
            *self = Self {
                last_error: self.last_error.take(),
                ..Self::new(self.options).opening_after(self.bears)
            };
        }
    }

    /// The database has answered a look, and is to be tried at work.
    pub(crate) fn tries_at_work(&mut self) {
        self.tries();
        self.retry_at = None;
    }

    /// The database has failed at work, although it answers looks. Returns as [`Self::failed`] does.
    pub(crate) fn failed_at_work(&mut self, error: &Error) -> (Duration, bool) {
        self.unproven = true;
        self.failed(error)
    }

    /// It is well. Returns whether that is news.
    pub fn succeeded(&mut self) -> bool {
        let news = self.state != BreakerState::Closed;
        if news {
            self.since = Timestamp::now();
        }
        (self.state, self.failures, self.retry_at) = (BreakerState::Closed, 0, None);
        self.unproven = false;
        news
    }

    /// It has failed. Returns the pause, and whether it has opened by that; a breaker that stays closed asks for none.
    pub fn failed(&mut self, error: &Error) -> (Duration, bool) {
        self.failures = self.failures.saturating_add(1);
        self.last_error = Some((error.kind(), error.to_string()));
        let Some(beyond) = self.failures.checked_sub(self.bears) else {
            return (Duration::ZERO, false);
        };
        let news = self.state == BreakerState::Closed;
        if news {
            self.since = Timestamp::now();
        }
        let doubled = self.options.min.saturating_mul(2u32.saturating_pow(beyond.min(30)));
        // Between half and all of it, so that many that failed together don't come back together.
        let part = f64::from(Uuid::new_v4().as_u128() as u16) / f64::from(u16::MAX);
        let pause = doubled.min(self.options.max).mul_f64(0.5 + part / 2.0);
        self.state = BreakerState::Open;
        self.retry_at = Some(Instant::now() + pause);
        (pause, news)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error() -> Error {
        Error::new(ErrorKind::Unavailable, "test", "down")
    }

    #[test]
    fn it_opens_at_the_first_failure_and_closes_at_the_first_answer() {
        let mut breaker = Breaker::new(BreakerOptions::default());
        assert!(breaker.failed(&error()).1);
        assert_eq!(breaker.state(), BreakerState::Open);
        breaker.tries();
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        assert!(!breaker.failed(&error()).1, "no news the second time");
        assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Open, 2));
        assert!(breaker.succeeded());
        assert_eq!((breaker.state(), breaker.failures()), (BreakerState::Closed, 0));
        assert!(breaker.last_error().is_some(), "what was wrong is still to be read");
        assert!(!breaker.succeeded());
    }

    #[test]
    fn it_can_bear_some_failures_before_it_opens() {
        let options = BreakerOptions::default();
        let mut breaker = Breaker::new(options).opening_after(3);
        for _ in 0..2 {
            assert_eq!(breaker.failed(&error()), (Duration::ZERO, false));
            assert_eq!((breaker.state(), breaker.retry_at()), (BreakerState::Closed, None));
        }
        breaker.succeeded();
        assert_eq!(breaker.failures(), 0, "they count in a row only");
        breaker.failed(&error());
        breaker.failed(&error());
        let (pause, news) = breaker.failed(&error());
        assert!(news && pause <= options.min && breaker.state() == BreakerState::Open);
        breaker.tries();
        breaker.tried_in_vain();
        assert_eq!(breaker.state(), BreakerState::Open);
        assert!(
            breaker.retry_at().is_some_and(|at| at <= Instant::now()),
            "the next look is let through at once"
        );
    }

    #[test]
    fn what_failed_at_work_is_not_closed_by_a_look() {
        let mut breaker = Breaker::new(BreakerOptions::default());
        breaker.failed_at_work(&error());
        breaker.tries_at_work();
        assert_eq!((breaker.state(), breaker.retry_at()), (BreakerState::HalfOpen, None));
        assert!(breaker.is_unproven() && breaker.failures() == 1);
        breaker.failed(&error());
        assert!(breaker.is_unproven(), "it does not even answer now, which proves nothing");
        assert!(breaker.succeeded());
        assert!(!breaker.is_unproven());
    }

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let mut breaker = Breaker::new(BreakerOptions::default());
        for bound in [1, 2, 4, 8, 16, 32, 60, 60] {
            let (pause, _) = breaker.failed(&error());
            let bound = Duration::from_secs(bound);
            assert!(pause <= bound && pause >= bound / 2, "{pause:?} of {bound:?}");
        }
        for _ in 0..100 {
            breaker.failed(&error());
        }
    }
}
