//! How long settled messages are remembered.

use std::time::Duration;

use crate::bounds::{validate_batch, validate_interval};
use crate::error::{Error, Result};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long settled messages are remembered, and how they are deleted (R29).
///
/// A message that was forgotten is new again: what counts is how late a sender may still repeat one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxRetention {
    /// How long done messages are remembered. Defaults to 30 days; none remembers them for ever.
    pub done: Option<Duration>,
    /// How long dead messages are remembered. Defaults to none: until told otherwise.
    pub dead: Option<Duration>,
    /// The least that both may be. Defaults to 7 days; whoever wants less says so here.
    pub at_least: Duration,
    /// Rows deleted per transaction, 1 to 100,000. Defaults to 1,000.
    pub batch: u32,
    /// How often to look. Defaults to 10 minutes.
    pub interval: Duration,
}

impl Default for InboxRetention {
    fn default() -> Self {
        let (at_least, interval) = (7 * DAY, Duration::from_secs(600));
        Self { done: Some(30 * DAY), dead: None, at_least, batch: 1_000, interval }
    }
}

impl InboxRetention {
    /// How long done messages are remembered; none remembers them for ever.
    #[must_use]
    pub fn done(mut self, age: Option<Duration>) -> Self {
        self.done = age;
        self
    }
    /// How long dead messages are remembered; none remembers them for ever.
    #[must_use]
    pub fn dead(mut self, age: Option<Duration>) -> Self {
        self.dead = age;
        self
    }
    /// The least that both may be.
    #[must_use]
    pub fn at_least(mut self, age: Duration) -> Self {
        self.at_least = age;
        self
    }
    /// Rows deleted per transaction.
    #[must_use]
    pub fn batch(mut self, rows: u32) -> Self {
        self.batch = rows;
        self
    }
    /// How often to look.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Refuses an age below the least, and a batch or an interval outside its bounds.
    pub fn validate(&self) -> Result<()> {
        const RETENTION: &str = "inbox.retention";
        for (field, age) in [("done", self.done), ("dead", self.dead)] {
            if age.is_some_and(|age| age < self.at_least) {
                let reason = format_args!(
                    "must be at least {:?}, so that a message repeated late is still known; lower `at_least` if that is wanted",
                    self.at_least
                );
                return Err(Error::invalid(RETENTION, field, reason));
            }
        }
        validate_batch(RETENTION, self.batch)?;
        validate_interval(RETENTION, self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_a_week_has_to_be_asked_for() {
        assert!(InboxRetention::default().validate().is_ok());
        let short = InboxRetention::default().done(Some(6 * DAY));
        assert_eq!(short.validate().unwrap_err().field(), Some("done"));
        assert_eq!(InboxRetention::default().dead(Some(DAY)).validate().unwrap_err().field(), Some("dead"));
        assert!(short.at_least(DAY).validate().is_ok());
        assert!(InboxRetention::default().done(None).validate().is_ok());
        assert_eq!(InboxRetention::default().batch(0).validate().unwrap_err().field(), Some("batch"));
    }
}
