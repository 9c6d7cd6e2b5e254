//! How operations are kept alive, given up and forgotten.

use std::time::Duration;

use crate::error::{Error, Result};

use super::OperationRetention;

/// How operations are kept alive, given up and forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationOptions {
    /// How often a scope shows a sign of life. Defaults to 15 seconds.
    pub heartbeat: Duration,
    /// After how long without a sign of life an operation is marked as stalled, by itself. Defaults to never. It must be at least three
    /// heartbeats, and those who start operations without a scope must show signs of life themselves.
    pub stalled_after: Option<Duration>,
    /// How long operations that have ended are kept. Defaults to 30 days.
    pub retention: OperationRetention,
}

impl Default for OperationOptions {
    fn default() -> Self {
        let retention = OperationRetention::default();
        Self { heartbeat: Duration::from_secs(15), stalled_after: None, retention }
    }
}

impl OperationOptions {
    /// How often a scope shows a sign of life.
    #[must_use]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }
    /// After how long without a sign of life an operation is marked as stalled; none leaves that to others.
    #[must_use]
    pub fn stalled_after(mut self, silence: Option<Duration>) -> Self {
        self.stalled_after = silence;
        self
    }
    /// How long operations that have ended are kept.
    #[must_use]
    pub fn retention(mut self, retention: OperationRetention) -> Self {
        self.retention = retention;
        self
    }

    /// Refuses what makes no sense.
    pub fn validate(&self) -> Result<()> {
        const OPTIONS: &str = "operation.options";
        if self.heartbeat.is_zero() {
            return Err(Error::invalid(OPTIONS, "heartbeat", "must be greater than zero"));
        }
        if self.stalled_after.is_some_and(|silence| silence < self.heartbeat.saturating_mul(3)) {
            let reason = format_args!("must be at least three heartbeats of {:?}", self.heartbeat);
            return Err(Error::invalid(OPTIONS, "stalled_after", reason));
        }
        self.retention.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let options = OperationOptions::default();
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        options.stalled_after(Some(minute)).validate().unwrap();
        for (options, field) in [
            (options.heartbeat(Duration::ZERO), "heartbeat"),
            (options.stalled_after(Some(44 * second)), "stalled_after"),
            (options.retention(OperationRetention::default().batch(0)), "batch"),
            (options.retention(OperationRetention::default().interval(Duration::ZERO)), "interval"),
        ] {
            assert_eq!(options.validate().unwrap_err().field(), Some(field));
        }
    }
}
