//! Bounds that many options share, each told with the operation and the field it is of.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::{Error, Result};

/// Refuses a page of none or of more than 1,000 rows.
pub(crate) fn validate_limit(operation: &'static str, limit: u32) -> Result<()> {
    within(operation, "limit", 1..=1_000, limit, "1 to 1,000")
}

/// Refuses a batch of none or of more than 100,000 rows.
pub(crate) fn validate_batch(operation: &'static str, batch: u32) -> Result<()> {
    within(operation, "batch", 1..=100_000, batch, "1 to 100,000")
}

/// Refuses a chore that would be done without a pause.
pub(crate) fn validate_interval(operation: &'static str, interval: Duration) -> Result<()> {
    if interval.is_zero() {
        return Err(Error::invalid(operation, "interval", "must be greater than zero"));
    }
    Ok(())
}

fn within(
    operation: &'static str,
    field: &'static str,
    bounds: RangeInclusive<u32>,
    got: u32,
    in_words: impl Display,
) -> Result<()> {
    if bounds.contains(&got) {
        return Ok(());
    }
    Err(Error::invalid(operation, field, format_args!("must be {in_words}, got {got}")))
}
