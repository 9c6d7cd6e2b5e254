//! Deletes records past their age, page by page.

use std::time::Duration;

use crate::error::Result;
use crate::renewing::{TURN_LIMIT, attempt};
use crate::telemetry;

use super::SweepClock;

/// How long records are kept, of one kind of retention.
pub(crate) trait Kept: Copy {
    /// The ages up to which each kind of these records is kept.
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration>;

    /// Returns true if a page that deleted so many rows was the last one.
    fn is_last(&self, deleted: u64) -> bool;
}

/// Deletes pages until nothing is left that is past its age. Returns how many rows.
///
/// A sweep has a `clock`, which it consults before each page: the database's clock may jump while it runs. A purge by an operator has none,
/// and takes the database's clock for the present.
pub(crate) async fn purge_pages<R, F>(
    operation: &'static str,
    retention: R,
    clock: Option<&SweepClock>,
    page: impl Fn(R) -> F,
) -> Result<u64>
where
    R: Kept,
    F: Future<Output = Result<u64>>,
{
    let (mut purged, mut told) = (0, false);
    loop {
        let mut now = retention;
        if let Some(clock) = clock {
            // Without an age nothing is past it.
            let Some(shortest) = now.ages().map(|age| *age).min() else { return Ok(purged) };
            let behind = attempt("retention", TURN_LIMIT, clock.tick(shortest)).await?;
            if !behind.is_zero() && !std::mem::replace(&mut told, true) {
                telemetry::sweep_is_behind(&clock.identifier(), clock.what(), behind);
            }
            now.ages().for_each(|age| *age = age.saturating_add(behind));
        }
        // Each page has its own time limit: how many there are says nothing about the connection.
        let deleted = attempt(operation, TURN_LIMIT, page(now)).await?;
        purged += deleted;
        if retention.is_last(deleted) {
            return Ok(purged);
        }
    }
}
