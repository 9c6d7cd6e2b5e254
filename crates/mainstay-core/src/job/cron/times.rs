//! The times of day of a cron expression.

use jiff::civil::{self, Time};

/// The times of day at which it fires: a bit for each hour, minute and second. None of the three is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimesOfDay {
    pub(super) hours: u64,
    pub(super) minutes: u64,
    pub(super) seconds: u64,
}

impl TimesOfDay {
    /// The first one of a day.
    pub(super) fn first(&self) -> Time {
        time(first(self.hours), first(self.minutes), first(self.seconds))
    }

    /// The first one that is not before `from`.
    pub(super) fn next(&self, from: Time) -> Option<Time> {
        let (hour, minute) = (from.hour() as u32, from.minute() as u32);
        if holds(self.hours, hour) {
            if holds(self.minutes, minute)
                && let Some(second) = lowest(self.seconds, from.second() as u32)
            {
                return Some(time(hour, minute, second));
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return Some(time(hour, minute, first(self.seconds)));
            }
        }
        let hour = lowest(self.hours, hour + 1)?;
        Some(time(hour, first(self.minutes), first(self.seconds)))
    }

    /// How many there are in a day.
    pub(super) fn per_day(&self) -> u64 {
        count(self.hours) * count(self.minutes) * count(self.seconds)
    }

    /// How many of a day are before `until`.
    pub(super) fn before(&self, until: Time) -> u64 {
        let (hour, minute, second) = (until.hour() as u32, until.minute() as u32, until.second() as u32);
        let (per_minute, per_hour) = (count(self.seconds), count(self.minutes) * count(self.seconds));
        let mut total = count(below(self.hours, hour)) * per_hour;
        if holds(self.hours, hour) {
            total += count(below(self.minutes, minute)) * per_minute;
            if holds(self.minutes, minute) {
                total += count(below(self.seconds, second));
            }
        }
        total
    }
}

/// Hours, minutes and seconds come out of sets that hold only valid ones.
fn time(hour: u32, minute: u32, second: u32) -> Time {
    civil::time(hour as i8, minute as i8, second as i8, 0)
}

fn holds(set: u64, value: u32) -> bool {
    set >> value & 1 == 1
}

fn first(set: u64) -> u32 {
    set.trailing_zeros()
}

fn lowest(set: u64, from: u32) -> Option<u32> {
    let rest = set & (u64::MAX << from);
    (rest != 0).then(|| first(rest))
}

fn below(set: u64, value: u32) -> u64 {
    set & !(u64::MAX << value)
}

fn count(set: u64) -> u64 {
    set.count_ones().into()
}
