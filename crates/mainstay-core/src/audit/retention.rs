//! How long records are kept.

use std::time::Duration;

use crate::bounds::{validate_batch, validate_interval};
use crate::error::Result;

/// How long records of the audit trail are kept, and how they are deleted. Unless told otherwise they are kept for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditRetention {
    /// How long records are kept. Defaults to none: for ever.
    pub age: Option<Duration>,
    /// Records deleted per transaction, 1 to 100,000. Defaults to 1,000.
    pub batch: u32,
    /// How often to look. Defaults to 1 hour.
    pub interval: Duration,
}

impl Default for AuditRetention {
    fn default() -> Self {
        Self { age: None, batch: 1_000, interval: Duration::from_secs(3_600) }
    }
}

impl AuditRetention {
    /// How long records are kept; none keeps them for ever.
    #[must_use]
    pub fn age(mut self, age: Option<Duration>) -> Self {
        self.age = age;
        self
    }
    /// Records deleted per transaction.
    #[must_use]
    pub fn batch(mut self, records: u32) -> Self {
        self.batch = records;
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
        const RETENTION: &str = "audit.retention";
        validate_batch(RETENTION, self.batch)?;
        validate_interval(RETENTION, self.interval)
    }
}
