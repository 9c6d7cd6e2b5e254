//! A cron expression in a time zone: when it fires.
//!
//! The contract for clock changes, which the guide on cron writes out with examples:
//!
//! - A *fixed-time* schedule ([`Cron::is_fixed_time`]) fires when the wall clock first reaches or passes a time it
//!   names. So a time that is skipped fires once, at the first instant after the gap, together with any others the gap
//!   swallowed; a time that is repeated fires once, at the first of the two.
//! - An *interval* schedule goes by real time: it fires whenever the wall clock shows a time it names. So a time that
//!   is skipped doesn't fire, and a time that is repeated fires both times.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;

use super::stretch::{SECOND, Stretch};
use super::{Cron, Zone};

/// A cron expression in a time zone.
///
/// ```
/// # use mainstay_core::job::Schedule;
/// // On 28 March 2027 the clocks of Berlin go from 02:00 straight to 03:00.
/// let schedule = Schedule::parse("30 2 * * *", "Europe/Berlin")?;
/// let fires: Vec<_> = schedule.after("2027-03-27T00:00:00Z".parse()?).take(3).map(|at| at.to_string()).collect();
/// assert_eq!(fires, ["2027-03-27T01:30:00Z", "2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    cron: Cron,
    #[serde(rename = "time_zone", default)]
    zone: Zone,
}

impl Schedule {
    /// This expression in this zone.
    pub fn new(cron: Cron, zone: Zone) -> Self {
        Self { cron, zone }
    }

    /// Reads both from their texts. The error names `cron` or `time_zone`.
    pub fn parse(cron: &str, time_zone: &str) -> Result<Self> {
        Ok(Self::new(Cron::parse(cron)?, Zone::get(time_zone)?))
    }

    /// The expression.
    pub fn cron(&self) -> &Cron {
        &self.cron
    }

    /// The zone.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first occurrence after `after`, on a whole second. None only at the end of time (the year 9999).
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.after(after).next()
    }

    /// All occurrences after `after`, each later than the one before.
    pub fn after(&self, after: Timestamp) -> Occurrences<'_> {
        Occurrences::new(self, second_after(after))
    }

    /// How many occurrences there are from one instant to another, both included.
    ///
    /// Calculated, not walked: the work depends on the months in between, not on the number of occurrences.
    pub fn count(&self, between: RangeInclusive<Timestamp>) -> u64 {
        let (first, last) = between.into_inner();
        let (Some(mut from), Some(last)) = (second_from(first), second_after(last)) else { return 0 };
        let mut total = 0;
        let mut stretch = Some(Stretch::at(self.zone.time_zone(), from));
        while let Some(this) = stretch
            && from < last
        {
            let until = this.end.map_or(last, |end| end.min(last));
            total += self.count_in(&this, from, until);
            from = until;
            stretch = this.next(self.zone.time_zone());
        }
        total
    }

    /// The first occurrence in a stretch from `from` on.
    fn first_in(&self, stretch: &Stretch, from: Timestamp) -> Option<Timestamp> {
        if self.catches_up(stretch, from) {
            return Some(from);
        }
        let wall = self.cron.next_wall(self.unseen(stretch, from), stretch.end_wall())?;
        stretch.instant(wall)
    }

    /// How many occurrences a stretch has from `from` on and before `until`.
    fn count_in(&self, stretch: &Stretch, from: Timestamp, until: Timestamp) -> u64 {
        let named = self.cron.count_walls(self.unseen(stretch, from), stretch.wall(until));
        // What the gap swallowed and the time right after it are one occurrence.
        let caught_up = self.catches_up(stretch, from) && !self.cron.matches(stretch.wall(from));
        named + u64::from(caught_up)
    }

    /// Whether it fires at `from` because the stretch begins there with a gap, and the gap swallowed a fixed time.
    fn catches_up(&self, stretch: &Stretch, from: Timestamp) -> bool {
        self.cron.is_fixed_time()
            && stretch.start == Some(from)
            && self.cron.next_wall(stretch.seen, stretch.wall(from)).is_some()
    }

    /// The wall-clock time to look from: a fixed time that the clock showed already does not come again.
    fn unseen(&self, stretch: &Stretch, from: Timestamp) -> jiff::civil::DateTime {
        let wall = stretch.wall(from);
        if self.cron.is_fixed_time() { wall.max(stretch.seen) } else { wall }
    }
}

/// The occurrences of a schedule, in order; see [`Schedule::after`].
#[derive(Debug, Clone)]
pub struct Occurrences<'a> {
    schedule: &'a Schedule,
    /// Where to look on, and the stretch it is in. None at the end of time.
    place: Option<(Timestamp, Stretch)>,
}

impl<'a> Occurrences<'a> {
    fn new(schedule: &'a Schedule, from: Option<Timestamp>) -> Self {
        let place = from.map(|from| (from, Stretch::at(schedule.zone.time_zone(), from)));
        Self { schedule, place }
    }
}

impl Iterator for Occurrences<'_> {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        loop {
            let (from, stretch) = self.place.take()?;
            if let Some(found) = self.schedule.first_in(&stretch, from) {
                self.place = second_after(found).map(|from| (from, stretch));
                return Some(found);
            }
            // At the end of time there is no next stretch, and so no next place.
            let next = stretch.next(self.schedule.zone.time_zone())?;
            self.place = next.start.map(|start| (start, next));
        }
    }
}

/// The first whole second that is not before `at`.
fn second_from(at: Timestamp) -> Option<Timestamp> {
    if at.subsec_nanosecond() == 0 { Some(at) } else { second_after(at) }
}

/// The first whole second after `at`.
fn second_after(at: Timestamp) -> Option<Timestamp> {
    // Seconds are cut towards 1970: before it, what is left over is negative.
    let floor = at.as_second() - i64::from(at.subsec_nanosecond() < 0);
    Timestamp::new(floor, 0).ok()?.checked_add(SECOND).ok()
}
