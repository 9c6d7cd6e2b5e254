//! The days of a cron expression.
//!
//! Worked out by the month: the days that match are the bits of a number, so a search goes by months and the rules
//! for weekdays, the last day and the nearest weekday are plain arithmetic on the month's length and first weekday.

use jiff::civil::{self, Date};

use super::field::Item;

/// The days on which it fires.
///
/// If day of month and day of week are both given, a day that matches either of them is one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Days {
    months: u64,
    of_month: Option<DaysOfMonth>,
    of_week: Option<DaysOfWeek>,
}

/// Bit n is day n.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DaysOfMonth {
    days: u32,
    last: bool,
    last_weekday: bool,
    nearest_weekday: u32,
}

/// Bit 0 is Sunday.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct DaysOfWeek {
    every: u8,
    nth: [u8; 5],
    last: u8,
}

impl Days {
    /// From the items of the three fields.
    pub(super) fn new(of_month: &[Item], months: u64, of_week: &[Item]) -> Self {
        let any = |items: &[Item]| items == [Item::Any];
        Self {
            months,
            of_month: (!any(of_month)).then(|| DaysOfMonth::new(of_month)),
            of_week: (!any(of_week)).then(|| DaysOfWeek::new(of_week)),
        }
    }

    /// Whether there are any. 28 years hold every kind of year: each weekday to begin with, leap or not.
    pub(super) fn exist(&self) -> bool {
        self.next(civil::date(2001, 1, 1), civil::date(2028, 12, 31)).is_some()
    }

    /// Whether it is one of them.
    pub(super) fn contains(&self, date: Date) -> bool {
        self.in_month(date.year(), date.month()) >> date.day() & 1 == 1
    }

    /// The first one that is not before `from` nor after `until`.
    pub(super) fn next(&self, from: Date, until: Date) -> Option<Date> {
        let mut day = from.day();
        for (year, month) in months(from, until) {
            let rest = self.in_month(year, month) & (u32::MAX << day);
            if rest != 0 {
                let date = civil::date(year, month, rest.trailing_zeros() as i8);
                return (date <= until).then_some(date);
            }
            day = 1;
        }
        None
    }

    /// How many there are from `from` to the day before `before`.
    pub(super) fn count(&self, from: Date, before: Date) -> u64 {
        if from >= before {
            return 0;
        }
        let mut total = 0;
        for (year, month) in months(from, before) {
            let mut days = self.in_month(year, month);
            if (year, month) == (from.year(), from.month()) {
                days &= u32::MAX << from.day();
            }
            if (year, month) == (before.year(), before.month()) {
                days &= !(u32::MAX << before.day());
            }
            total += u64::from(days.count_ones());
        }
        total
    }

    /// The days of a month: bit n is day n.
    fn in_month(&self, year: i16, month: i8) -> u32 {
        if self.months >> month & 1 == 0 {
            return 0;
        }
        let month = Month::new(year, month);
        match (&self.of_month, &self.of_week) {
            (None, None) => month.all(),
            (Some(days), None) => days.in_month(&month),
            (None, Some(days)) => days.in_month(&month),
            (Some(of_month), Some(of_week)) => of_month.in_month(&month) | of_week.in_month(&month),
        }
    }
}

impl DaysOfMonth {
    fn new(items: &[Item]) -> Self {
        let mut days = Self::default();
        for item in items {
            match *item {
                Item::Values(values) => days.days |= values as u32,
                Item::LastDay => days.last = true,
                Item::LastWeekday => days.last_weekday = true,
                Item::NearestWeekday(day) => days.nearest_weekday |= 1 << day,
                // The others are not read in this field.
                Item::Any | Item::LastOf(_) | Item::NthOf(..) => {}
            }
        }
        days
    }

    fn in_month(&self, month: &Month) -> u32 {
        let mut days = self.days & month.all();
        if self.last {
            days |= 1 << month.length;
        }
        if self.last_weekday {
            days |= 1 << month.nearest_weekday(month.length);
        }
        for day in 1..=month.length {
            if self.nearest_weekday >> day & 1 == 1 {
                days |= 1 << month.nearest_weekday(day);
            }
        }
        days
    }
}

impl DaysOfWeek {
    fn new(items: &[Item]) -> Self {
        let mut days = Self::default();
        for item in items {
            match *item {
                // Bit 7 is Sunday once more.
                Item::Values(values) => days.every |= (values as u8 & 0x7f) | (values >> 7 & 1) as u8,
                Item::LastOf(weekday) => days.last |= 1 << weekday,
                Item::NthOf(weekday, nth) => days.nth[usize::from(nth) - 1] |= 1 << weekday,
                // The others are not read in this field.
                Item::Any | Item::LastDay | Item::LastWeekday | Item::NearestWeekday(_) => {}
            }
        }
        days
    }

    fn in_month(&self, month: &Month) -> u32 {
        let mut days = 0;
        for weekday in 0..7 {
            let all = month.weekdays(weekday);
            if self.every >> weekday & 1 == 1 {
                days |= all;
            }
            if self.last >> weekday & 1 == 1 {
                days |= 1 << all.ilog2();
            }
            let mut rest = all;
            for nth in self.nth {
                if nth >> weekday & 1 == 1 {
                    days |= lowest_bit(rest);
                }
                rest &= !lowest_bit(rest);
            }
        }
        days
    }
}

/// The shape of a month: its length, and the weekday (0 is Sunday) of its first day.
struct Month {
    length: u32,
    first_weekday: u32,
}

impl Month {
    fn new(year: i16, month: i8) -> Self {
        let first = civil::date(year, month, 1);
        Self {
            length: first.days_in_month() as u32,
            first_weekday: first.weekday().to_sunday_zero_offset() as u32,
        }
    }

    fn all(&self) -> u32 {
        // Bits 1 to `length`; a month of 31 days takes the topmost.
        u32::MAX >> (31 - self.length) & !1
    }

    /// Every such weekday. Never empty: a month has each at least four times.
    fn weekdays(&self, weekday: u32) -> u32 {
        const EVERY_SEVENTH: u32 = 1 | 1 << 7 | 1 << 14 | 1 << 21 | 1 << 28;
        let first = 1 + (weekday + 7 - self.first_weekday) % 7;
        (EVERY_SEVENTH << first) & self.all()
    }

    /// The day from Monday to Friday that is nearest to `day` without leaving the month.
    fn nearest_weekday(&self, day: u32) -> u32 {
        match (self.first_weekday + day - 1) % 7 {
            6 if day == 1 => 3,
            6 => day - 1,
            0 if day == self.length => day - 2,
            0 => day + 1,
            _ => day,
        }
    }
}

fn lowest_bit(set: u32) -> u32 {
    set & set.wrapping_neg()
}

/// The months from that of `from` to that of `until`.
fn months(from: Date, until: Date) -> impl Iterator<Item = (i16, i8)> {
    let last = (until.year(), until.month());
    let mut next = Some((from.year(), from.month())).filter(|first| *first <= last);
    std::iter::from_fn(move || {
        let (year, month) = next?;
        let following = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        next = Some(following).filter(|following| *following <= last);
        Some((year, month))
    })
}
