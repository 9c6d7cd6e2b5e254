//! A stretch of time during which a zone's clock runs on undisturbed.
//!
//! Within one, wall-clock time and real time go hand in hand. All that is special about daylight saving is in where
//! stretches meet, and what a schedule makes of it. Each is looked at with the one before it and no other, which is
//! enough because no zone has ever changed its clock twice within the hours that a change skips or repeats.

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

/// A second, the step of every schedule.
pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A stretch of time in which a zone keeps its offset.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    /// The clock change it begins with, unless it is the first.
    pub(super) start: Option<Timestamp>,
    /// The clock change it ends before, unless it is the last.
    pub(super) end: Option<Timestamp>,
    pub(super) offset: Offset,
    /// What the clock would have shown at the start without the change: all before it was shown, or skipped, already.
    pub(super) seen: DateTime,
}

impl Stretch {
    /// The one that holds `at`, which is on a whole second.
    pub(super) fn at(zone: &TimeZone, at: Timestamp) -> Self {
        let start = previous_change(zone, at.saturating_add(SECOND).unwrap_or(at));
        let seen = start.map_or(DateTime::MIN, |start| offset_before(zone, start).to_datetime(start));
        Self { start, end: next_change(zone, at), offset: zone.to_offset(at), seen }
    }

    /// The one after it.
    pub(super) fn next(&self, zone: &TimeZone) -> Option<Self> {
        let start = self.end?;
        let (offset, seen) = (zone.to_offset(start), self.wall(start));
        Some(Self { start: Some(start), end: next_change(zone, start), offset, seen })
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

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZoneDatabase;

    use super::*;

    #[test]
    fn no_zone_changes_its_clock_twice_within_what_a_change_can_skip() {
        // Offsets are less than 26 hours from UTC, so no change is of 52 hours or more.
        let most = SignedDuration::from_hours(52);
        let database = TimeZoneDatabase::bundled();
        let mut changes = 0;
        for name in database.available() {
            let zone = database.get(name.as_str()).unwrap();
            let mut last = None;
            // From the first there ever was until long after the last that is not by rule.
            let until = "2045-01-01T00:00:00Z".parse().unwrap();
            for change in zone.following(Timestamp::MIN).take_while(|change| change.timestamp() < until) {
                let at = change.timestamp();
                assert_eq!(change.offset(), zone.to_offset(at), "{name} at {at}");
                assert!(last.is_none_or(|last| at.duration_since(last) > most), "{name} at {at}");
                last = Some(at);
                changes += 1;
            }
        }
        assert!(changes > 40_000, "{changes}");
    }
}
