//! How deadlines of joins are kept.

use std::time::Duration;

use crate::error::{Error, Result};

const CONFIG: &str = "join.options";

/// How deadlines of joins are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinOptions {
    /// Joins ended per call of the database, 1 to 10,000. Defaults to 100.
    pub batch: u32,
    /// The longest pause between two looks, above zero and at most 24 h. Defaults to 5 s. The nearest deadline ends a pause
    /// sooner, and so does a join that is started by this process; one that another process starts is noticed by the next look.
    pub poll_max: Duration,
}

impl Default for JoinOptions {
    fn default() -> Self {
        Self { batch: 100, poll_max: Duration::from_secs(5) }
    }
}

impl JoinOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        if !(1..=10_000).contains(&self.batch) {
            let got = self.batch;
            return Err(Error::invalid(CONFIG, "batch", format_args!("must be 1 to 10,000, got {got}")));
        }
        if self.poll_max.is_zero() || self.poll_max > Duration::from_secs(24 * 3_600) {
            let got = self.poll_max;
            let reason = format_args!("must be above zero and at most 24 h, got {got:?}");
            return Err(Error::invalid(CONFIG, "poll_max", reason));
        }
        Ok(())
    }
}
