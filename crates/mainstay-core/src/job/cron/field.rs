//! One field of a cron expression: what it allows, and how its text becomes a set of values.
//!
//! Stricter than most: what two crons would read differently (`0/15`, `?`, a range that wraps, an empty item) is
//! refused with the unambiguous way to write it, never guessed.

use std::fmt;
use std::ops::{Range, RangeInclusive};

/// A field of a cron expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CronField {
    /// 0 to 59; only in an expression of six fields.
    Second,
    /// 0 to 59.
    Minute,
    /// 0 to 23.
    Hour,
    /// 1 to 31, `L`, `LW`, `15W`.
    DayOfMonth,
    /// 1 to 12, `JAN` to `DEC`.
    Month,
    /// 0 to 7 (0 and 7 are Sunday), `SUN` to `SAT`, `FRIL`, `FRI#2`.
    DayOfWeek,
}

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl CronField {
    /// All six, in the order they are written.
    pub const ALL: [Self; 6] =
        [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek];

    /// The numbers it allows.
    pub const fn bounds(self) -> RangeInclusive<u8> {
        match self {
            Self::Second | Self::Minute => 0..=59,
            Self::Hour => 0..=23,
            Self::DayOfMonth => 1..=31,
            Self::Month => 1..=12,
            Self::DayOfWeek => 0..=7,
        }
    }

    /// Its name in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
        }
    }

    /// What a value of it may be, for messages.
    const fn allowed(self) -> &'static str {
        match self {
            Self::Second | Self::Minute => "0 to 59",
            Self::Hour => "0 to 23",
            Self::DayOfMonth => "1 to 31, L, LW or a day with W",
            Self::Month => "1 to 12 or JAN to DEC",
            Self::DayOfWeek => "0 to 7 (0 and 7 are Sunday), SUN to SAT, or a day with L or #1 to #5",
        }
    }

    /// The number of a name (in upper case), if the field has names.
    fn named(self, text: &str) -> Option<u8> {
        let (names, first): (&[&str], _) = match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&WEEKDAYS, 0),
            _ => return None,
        };
        (first..).zip(names).find_map(|(number, name)| (*name == text).then_some(number))
    }
}

impl fmt::Display for CronField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What is wrong with a field's text, and where in it.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) at: Range<usize>,
    pub(super) reason: String,
}

/// One item of a field's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Item {
    /// `*`, alone in its field.
    Any,
    /// Numbers, ranges and steps: a bit for each value.
    Values(u64),
    /// `L`: the last day of the month.
    LastDay,
    /// `LW`: the last weekday (Monday to Friday) of the month.
    LastWeekday,
    /// `15W`: the weekday (Monday to Friday) nearest to the day, in the same month.
    NearestWeekday(u8),
    /// `FRIL`: the last one of the month.
    LastOf(u8),
    /// `FRI#2`: the second one of the month.
    NthOf(u8, u8),
}

/// Reads a field: its list of items.
pub(super) fn parse(field: CronField, text: &str) -> Result<Vec<Item>, Problem> {
    if text == "*" {
        return Ok(vec![Item::Any]);
    }
    let mut items = Vec::new();
    let mut start = 0;
    for part in text.split(',') {
        let at = start..start + part.len();
        start = at.end + 1;
        let item = parse_item(field, &part.to_ascii_uppercase());
        // An empty item has nothing to point at, so the comma is.
        let at = if part.is_empty() { at.start.saturating_sub(1)..text.len().min(at.start + 1) } else { at };
        items.push(item.map_err(|reason| Problem { at, reason })?);
    }
    Ok(items)
}

fn parse_item(field: CronField, part: &str) -> Result<Item, String> {
    if part.is_empty() {
        return Err("an item of the list is empty; take the comma out".to_owned());
    }
    if part == "*" {
        return Err(format!("* must be alone in its field; a list is of {}", field.allowed()));
    }
    if part == "?" {
        return Err("? is not known here; write * for any".to_owned());
    }
    if let Some(item) = parse_special(field, part)? {
        return Ok(item);
    }
    let (range, step) = match part.split_once('/') {
        Some((range, step)) => (range, Some(parse_step(field, step)?)),
        None => (part, None),
    };
    let (low, high) = parse_range(field, range, step)?;
    let values = (low..=high).step_by(step.unwrap_or(1).into());
    Ok(Item::Values(values.fold(0, |set, value| set | 1 << value)))
}

/// The items that only the fields of days have.
fn parse_special(field: CronField, part: &str) -> Result<Option<Item>, String> {
    let item = match field {
        CronField::DayOfMonth if part == "L" => Item::LastDay,
        CronField::DayOfMonth if part == "LW" => Item::LastWeekday,
        CronField::DayOfMonth => match part.strip_suffix('W') {
            Some(day) => Item::NearestWeekday(parse_value(field, day)?),
            None => return Ok(None),
        },
        CronField::DayOfWeek if part == "L" => {
            return Err("L needs a day, as in FRIL for the last Friday of the month".to_owned());
        }
        CronField::DayOfWeek => match (part.split_once('#'), part.strip_suffix('L')) {
            (Some((day, nth)), _) => match nth.as_bytes() {
                [digit @ b'1'..=b'5'] => Item::NthOf(parse_value(field, day)? % 7, digit - b'0'),
                _ => return Err("after the # must be a number from 1 to 5".to_owned()),
            },
            (None, Some(day)) => Item::LastOf(parse_value(field, day)? % 7),
            (None, None) => return Ok(None),
        },
        _ => return Ok(None),
    };
    Ok(Some(item))
}

fn parse_range(field: CronField, range: &str, step: Option<u8>) -> Result<(u8, u8), String> {
    let (min, max) = field.bounds().into_inner();
    if range == "*" {
        // 7 is Sunday once more: counting on to it from Sunday would add a day to the steps.
        return Ok((min, if field == CronField::DayOfWeek { 6 } else { max }));
    }
    let Some((low, high)) = range.split_once('-') else {
        let value = parse_value(field, range)?;
        return match step {
            None => Ok((value, value)),
            Some(step) => Err(format!("a step needs a range; write {value}-{max}/{step} or */{step}")),
        };
    };
    let (from, mut to) = (parse_value(field, low)?, parse_value(field, high)?);
    if field == CronField::DayOfWeek && to == 0 && from > 0 {
        // Friday to Sunday goes up to 7, the other number of Sunday.
        to = 7;
    }
    if from > to {
        return Err(format!(
            "a range must go up; write {} for one that goes past the end",
            unwrapped(field, low, high)
        ));
    }
    Ok((from, to))
}

/// A range that goes past the end, in two that don't.
fn unwrapped(field: CronField, low: &str, high: &str) -> String {
    let named = low.starts_with(|c: char| c.is_ascii_alphabetic());
    let (first, last) = match (field, named) {
        (CronField::DayOfWeek, true) => ("MON".to_owned(), "SUN".to_owned()),
        (CronField::DayOfWeek, false) => ("1".to_owned(), "7".to_owned()),
        (CronField::Month, true) => ("JAN".to_owned(), "DEC".to_owned()),
        _ => (field.bounds().start().to_string(), field.bounds().end().to_string()),
    };
    if first == high { format!("{low}-{last},{high}") } else { format!("{low}-{last},{first}-{high}") }
}

fn parse_step(field: CronField, text: &str) -> Result<u8, String> {
    let max = *field.bounds().end();
    match number(text) {
        Some(step @ 1..) if step <= max.into() => Ok(step as u8),
        _ => Err(format!("the step must be 1 to {max}")),
    }
}

fn parse_value(field: CronField, text: &str) -> Result<u8, String> {
    if let Some(value) = field.named(text) {
        return Ok(value);
    }
    match number(text) {
        Some(value) if value <= 255 && field.bounds().contains(&(value as u8)) => Ok(value as u8),
        Some(value) => Err(format!("{value} is not in {}", field.allowed())),
        None if text.is_empty() => Err(format!("a number is missing: {}", field.allowed())),
        None => Err(format!("{text:?} is not in {}", field.allowed())),
    }
}

/// A number of plain digits; no sign, and none so long that it could overflow.
fn number(text: &str) -> Option<u16> {
    let plain = (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(field: CronField, text: &str) -> Vec<u8> {
        let set = parse(field, text).unwrap().into_iter().fold(0, |set, item| match item {
            Item::Values(values) => set | values,
            other => panic!("{other:?}"),
        });
        (0..64).filter(|value| set >> value & 1 == 1).collect()
    }

    #[test]
    fn numbers_ranges_steps_names_and_lists() {
        assert_eq!(values(CronField::Minute, "*/20"), [0, 20, 40]);
        assert_eq!(values(CronField::Minute, "5,10-12,50-59/4"), [5, 10, 11, 12, 50, 54, 58]);
        assert_eq!(values(CronField::Hour, "8-17/2"), [8, 10, 12, 14, 16]);
        assert_eq!(values(CronField::Month, "jan,Mar-MAY"), [1, 3, 4, 5]);
        assert_eq!(values(CronField::DayOfWeek, "mon-fri"), [1, 2, 3, 4, 5]);
        assert_eq!(values(CronField::DayOfWeek, "FRI-SUN"), [5, 6, 7]);
        assert_eq!(values(CronField::DayOfWeek, "SUN-TUE"), [0, 1, 2]);
        assert_eq!(values(CronField::DayOfWeek, "*/2"), [0, 2, 4, 6]);
        assert_eq!(values(CronField::DayOfMonth, "*/10"), [1, 11, 21, 31]);
    }

    #[test]
    fn days_have_items_of_their_own() {
        let read = |field, text| parse(field, text).unwrap();
        assert_eq!(read(CronField::DayOfMonth, "L,15w"), [Item::LastDay, Item::NearestWeekday(15)]);
        assert_eq!(read(CronField::DayOfMonth, "LW"), [Item::LastWeekday]);
        assert_eq!(read(CronField::DayOfWeek, "fril,7L"), [Item::LastOf(5), Item::LastOf(0)]);
        assert_eq!(read(CronField::DayOfWeek, "WED#3"), [Item::NthOf(3, 3)]);
    }

    #[test]
    fn what_is_wrong_is_pointed_at() {
        for (field, text, part, says) in [
            (CronField::Minute, "60", "60", "0 to 59"),
            (CronField::Minute, "0,75", "75", "0 to 59"),
            (CronField::Minute, "-1", "-1", "0 to 59"),
            (CronField::Minute, "+1", "+1", "0 to 59"),
            (CronField::Minute, "99999", "99999", "0 to 59"),
            (CronField::Minute, "1,*", "*", "alone"),
            (CronField::Minute, "0/15", "0/15", "write 0-59/15 or */15"),
            (CronField::Minute, "*/60", "*/60", "1 to 59"),
            (CronField::Minute, "*/0", "*/0", "1 to 59"),
            (CronField::Minute, "*/", "*/", "1 to 59"),
            (CronField::Minute, "/5", "/5", "is missing"),
            (CronField::Minute, "1-", "1-", "is missing"),
            (CronField::Minute, "1-2-3", "1-2-3", "0 to 59"),
            (CronField::Minute, "1,,2", ",,", "empty"),
            (CronField::Minute, "1,", ",", "empty"),
            (CronField::Minute, ",1", ",", "empty"),
            (CronField::Minute, "MON", "MON", "0 to 59"),
            (CronField::Minute, "L", "L", "0 to 59"),
            (CronField::Hour, "22-2", "22-2", "write 22-23,0-2"),
            (CronField::Month, "nov-feb", "nov-feb", "write NOV-DEC,JAN-FEB"),
            (CronField::DayOfWeek, "5-1", "5-1", "write 5-7,1 "),
            (CronField::Hour, "24", "24", "0 to 23"),
            (CronField::DayOfMonth, "0", "0", "1 to 31"),
            (CronField::DayOfMonth, "?", "?", "write *"),
            (CronField::DayOfMonth, "L-3", "L-3", "1 to 31"),
            (CronField::DayOfMonth, "40W", "40W", "1 to 31"),
            (CronField::DayOfMonth, "1-5W", "1-5W", "1 to 31"),
            (CronField::Month, "13", "13", "1 to 12 or JAN to DEC"),
            (CronField::Month, "MON", "MON", "JAN to DEC"),
            (CronField::DayOfWeek, "8", "8", "0 to 7"),
            (CronField::DayOfWeek, "L", "L", "FRIL"),
            (CronField::DayOfWeek, "MON#6", "MON#6", "1 to 5"),
            (CronField::DayOfWeek, "1-5#2", "1-5#2", "SUN to SAT"),
            (CronField::DayOfWeek, "MONDAY", "MONDAY", "SUN to SAT"),
            (CronField::DayOfWeek, "ü", "ü", "SUN to SAT"),
        ] {
            let problem = parse(field, text).unwrap_err();
            assert_eq!(&text[problem.at.clone()], part, "{field} {text:?}");
            assert!(problem.reason.contains(says), "{field} {text:?}: {}", problem.reason);
        }
    }
}
