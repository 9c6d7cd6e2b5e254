//! How long operations that have ended are kept.

use std::time::Duration;

use crate::bounds::{validate_batch, validate_interval};
use crate::error::Result;

/// How long operations that have ended are kept, with their events (R29). Those that are running are never deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationRetention {
    /// How long. Defaults to 30 days; none keeps them for ever.
    pub ended: Option<Duration>,
    /// Operations deleted per transaction, 1 to 100,000. Defaults to 1,000.
    pub batch: u32,
    /// How often to look. Defaults to 10 minutes.
    pub interval: Duration,
}

impl Default for OperationRetention {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3_600);
        Self { ended: Some(30 * day), batch: 1_000, interval: Duration::from_secs(600) }
    }
}

impl OperationRetention {
    /// How long operations are kept once they have ended; none keeps them for ever.
    #[must_use]
    pub fn ended(mut self, age: Option<Duration>) -> Self {
        self.ended = age;
        self
    }
    /// Operations deleted per transaction.
    #[must_use]
    pub fn batch(mut self, operations: u32) -> Self {
        self.batch = operations;
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
        const RETENTION: &str = "operation.retention";
        validate_batch(RETENTION, self.batch)?;
        validate_interval(RETENTION, self.interval)
    }
}
