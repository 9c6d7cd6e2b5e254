//! How long settled messages are kept.

use std::time::Duration;

use crate::bounds::{validate_batch, validate_interval};
use crate::error::Result;

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long settled messages are kept, and how they are deleted (R29).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retention {
    /// How long done messages are kept. Defaults to 30 days; none keeps them for ever.
    pub done: Option<Duration>,
    /// How long failed messages are kept. Defaults to none: they are kept until told otherwise.
    pub failed: Option<Duration>,
    /// Rows deleted per transaction, 1 to 100,000. Defaults to 1,000.
    pub batch: u32,
    /// How often to look. Defaults to 10 minutes.
    pub interval: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { done: Some(30 * DAY), failed: None, batch: 1_000, interval: Duration::from_secs(600) }
    }
}

impl Retention {
    /// How long done messages are kept; none keeps them for ever.
    #[must_use]
    pub fn done(mut self, age: Option<Duration>) -> Self {
        self.done = age;
        self
    }
    /// How long failed messages are kept; none keeps them for ever.
    #[must_use]
    pub fn failed(mut self, age: Option<Duration>) -> Self {
        self.failed = age;
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

    /// Refuses a batch or an interval outside its bounds.
    pub fn validate(&self) -> Result<()> {
        const RETENTION: &str = "outbox.retention";
        validate_batch(RETENTION, self.batch)?;
        validate_interval(RETENTION, self.interval)
    }
}
