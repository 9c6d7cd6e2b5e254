//! A stretch of time during which a zone's clock runs on undisturbed.
//!
//! Within one, wall-clock time and real time go hand in hand. All that is special about daylight saving is in where
//! stretches meet, and what a schedule makes of it.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// A second, the step of every schedule.
pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// No two clock changes that could show the same wall-clock time are further apart: an offset is less than 26 hours
/// from UTC, so the largest thinkable change is less than 52.
const MEMORY: SignedDuration = SignedDuration::from_hours(52);

/// A stretch of time in which a zone keeps its offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// The clock change it begins with, unless it is the first.
    pub(super) start: Option<Timestamp>,
    /// The clock change it ends before, unless it is the last.
    pub(super) end: Option<Timestamp>,
    pub(super) offset: Offset,
    /// Up to here (exclusive) the clock had been before this stretch began.
    pub(super) seen: DateTime,
}

impl Stretch {
    /// The one that holds `at`, which is on a whole second.
    pub(super) fn at(zone: &TimeZone, at: Timestamp) -> Self {
        let start = previous_change(zone, at.saturating_add(SECOND).unwrap_or(at));
        let mut seen = DateTime::MIN;
        let mut change = start;
        while let (Some(this), Some(start)) = (change, start)
            && start.duration_since(this) <= MEMORY
        {
            seen = seen.max(offset_before(zone, this).to_datetime(this));
            change = previous_change(zone, this);
        }
        Self { start, end: next_change(zone, at), offset: zone.to_offset(at), seen }
    }

    /// The one after it.
    pub(super) fn next(&self, zone: &TimeZone) -> Option<Self> {
        let start = self.end?;
        let seen = self.seen.max(self.offset.to_datetime(start));
        Some(Self { start: Some(start), end: next_change(zone, start), offset: zone.to_offset(start), seen })
    }

    /// What the clock shows at `at`.
    pub(super) fn wall(&self, at: Timestamp) -> DateTime {
        self.offset.to_datetime(at)
    }

    /// What the clock would show at the stretch's end.
    pub(super) fn end_wall(&self) -> DateTime {
        self.end.map_or(DateTime::MAX, |end| self.wall(end))
    }

    /// When the clock shows `wall`. None beyond the end of time.
    pub(super) fn instant(&self, wall: DateTime) -> Option<Timestamp> {
        self.offset.to_timestamp(wall).ok()
    }
}

/// The offset that a clock change ends.
pub(super) fn offset_before(zone: &TimeZone, change: Timestamp) -> Offset {
    zone.to_offset(change.saturating_sub(SECOND).unwrap_or(change))
}

fn previous_change(zone: &TimeZone, before: Timestamp) -> Option<Timestamp> {
    zone.preceding(before).next().map(|change| change.timestamp())
}

fn next_change(zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    zone.following(after).next().map(|change| change.timestamp())
}
