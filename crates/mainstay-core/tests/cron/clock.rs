//! A zone's clock, looked at tick by tick.

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil::DateTime};

use crate::expression::Moment;

/// What the clock shows, from one instant to another, at every tick.
pub(crate) struct Clock {
    pub(crate) tick: i64,
    /// Each instant, and the wall-clock time at it as seconds of a calendar without zones.
    pub(crate) shown: Vec<(i64, i64)>,
}

impl Clock {
    pub(crate) fn watch(zone: &TimeZone, from: i64, until: i64, tick: i64) -> Self {
        let offset = |at: i64| i64::from(zone.to_offset(Timestamp::from_second(at).unwrap()).seconds());
        let ticks = (0..).map(|n| from + n * tick).take_while(|at| *at < until);
        Self { tick, shown: ticks.map(|at| (at, at + offset(at))).collect() }
    }
}

/// The instants at which a zone's offset changes, found by looking at it twice a day and closing in.
pub(crate) fn changes(zone: &TimeZone, from: i64, until: i64) -> Vec<i64> {
    let offset = |at: i64| zone.to_offset(Timestamp::from_second(at).unwrap());
    let mut found = Vec::new();
    let mut low = from;
    while low < until {
        let high = low + 12 * 3_600;
        if offset(low) != offset(high) {
            let (mut before, mut after) = (low, high);
            while after - before > 1 {
                let middle = before.midpoint(after);
                if offset(middle) == offset(before) { before = middle } else { after = middle }
            }
            found.push(after);
        }
        low = high;
    }
    found
}

/// The calendar at a wall-clock time.
pub(crate) fn moment(wall: i64) -> Moment {
    let time = calendar(wall);
    Moment {
        second: time.second() as usize,
        minute: time.minute() as usize,
        hour: time.hour() as usize,
        day: time.day() as usize,
        month: time.month() as usize,
        weekday: time.weekday().to_sunday_zero_offset() as usize,
    }
}

pub(crate) fn calendar(wall: i64) -> DateTime {
    jiff::tz::Offset::UTC.to_datetime(Timestamp::from_second(wall).unwrap())
}
