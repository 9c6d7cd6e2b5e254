//! A cron expression: which wall-clock times it names.
//!
//! It knows the calendar but no time zone: what happens where a zone's clock is put forward or back is for the
//! [`Schedule`](super::Schedule) to say. Everything here is arithmetic on sets of bits; a search never goes second by
//! second.

mod days;
mod error;
mod field;
mod times;

use std::fmt;
use std::str::FromStr;

use jiff::civil::DateTime;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use error::CronError;
pub use field::CronField;

use days::Days;
use field::Item;
use times::TimesOfDay;

/// A cron expression of five fields (minute first) or six (second first).
///
/// | Field | Values | Beside `*`, lists, ranges and steps |
/// |---|---|---|
/// | second (only of six) | 0 to 59 | |
/// | minute | 0 to 59 | |
/// | hour | 0 to 23 | |
/// | day of month | 1 to 31 | `L` last day, `LW` last weekday, `15W` weekday nearest to the 15th |
/// | month | 1 to 12, JAN to DEC | |
/// | day of week | 0 to 7, SUN to SAT; 0 and 7 are Sunday | `FRIL` last Friday, `FRI#2` second Friday |
///
/// If both day fields are given (neither is `*`), a day that matches either of them is enough.
/// `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight` and `@hourly` are short for the usual ones.
///
/// ```
/// # use mainstay_core::job::{Cron, CronField};
/// let cron: Cron = "30 2 * * MON-FRI".parse()?;
/// assert!(cron.is_fixed_time());
///
/// let error = Cron::parse("30 25 * * *").unwrap_err();
/// assert_eq!(error.field(), Some(CronField::Hour));
/// assert_eq!(error.to_string(), r#"field 2 (hour), "25": 25 is not in 0 to 23"#);
/// assert_eq!(error.pointer(), "30 25 * * *\n   ^^");
/// # Ok::<(), mainstay_core::job::CronError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Cron {
    text: String,
    times: TimesOfDay,
    days: Days,
    fixed_time: bool,
}

impl Cron {
    /// The longest expression, in characters.
    pub const MAX: usize = 255;

    /// Reads an expression. One that names no day of any year, like 30 February, is refused.
    pub fn parse(expression: &str) -> Result<Self, CronError> {
        let text = expression.split_whitespace().collect::<Vec<_>>().join(" ");
        check_whole(&text)?;
        let fields = match text.strip_prefix('@') {
            Some(_) => nickname(&text)?,
            None => &text,
        };
        let mut texts: Vec<_> = fields.split(' ').collect();
        let all = match texts.len() {
            5 => &CronField::ALL[1..],
            6 => &CronField::ALL[..],
            got => return Err(wrong_count(&text, got)),
        };
        let mut items = Vec::with_capacity(6);
        let mut start = 0;
        for (position, (&field, &part)) in (1..).zip(all.iter().zip(&texts)) {
            items.push(field::parse(field, part).map_err(|problem| {
                let at = start + problem.at.start..start + problem.at.end;
                CronError::in_field(&text, (field, position), at, problem.reason)
            })?);
            start += part.len() + 1;
        }
        if texts.len() == 5 {
            // Without a field of its own, the second is 0.
            items.insert(0, vec![Item::Values(1)]);
            texts.insert(0, "0");
        }
        let times = TimesOfDay {
            seconds: values(CronField::Second, &items[0]),
            minutes: values(CronField::Minute, &items[1]),
            hours: values(CronField::Hour, &items[2]),
        };
        let days = Days::new(&items[3], values(CronField::Month, &items[4]), &items[5]);
        if !days.exist() {
            return Err(never(&text, &texts));
        }
        let fixed_time = !texts[1..=2].iter().any(|field| field.contains(['*', '/']));
        Ok(Self { times, days, fixed_time, text })
    }

    /// The expression, with one blank between its fields.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names times of day, not an interval: neither its minute nor its hour field has a `*` or a step.
    ///
    /// The two are treated differently where a clock is put forward or back; see [`Schedule`](super::Schedule).
    pub fn is_fixed_time(&self) -> bool {
        self.fixed_time
    }

    /// Whether it names this wall-clock time.
    pub fn matches(&self, wall: DateTime) -> bool {
        wall.subsec_nanosecond() == 0
            && self.days.contains(wall.date())
            && self.times.next(wall.time()) == Some(wall.time())
    }

    /// The first wall-clock time it names from `from` on and before `before`. Both on a whole second.
    pub(crate) fn next_wall(&self, from: DateTime, before: DateTime) -> Option<DateTime> {
        if from >= before {
            return None;
        }
        let today = self.days.contains(from.date()).then(|| self.times.next(from.time())).flatten();
        let found = match today {
            Some(time) => from.date().to_datetime(time),
            None => {
                let date = self.days.next(from.date().tomorrow().ok()?, before.date())?;
                date.to_datetime(self.times.first())
            }
        };
        (found < before).then_some(found)
    }

    /// How many wall-clock times it names from `from` on and before `before`. Both on a whole second.
    pub(crate) fn count_walls(&self, from: DateTime, before: DateTime) -> u64 {
        if from >= before {
            return 0;
        }
        let whole = self.days.count(from.date(), before.date()) * self.times.per_day();
        let of_day =
            |wall: DateTime| if self.days.contains(wall.date()) { self.times.before(wall.time()) } else { 0 };
        whole + of_day(before) - of_day(from)
    }
}

/// The set of values of a field without special items.
fn values(field: CronField, items: &[Item]) -> u64 {
    items.iter().fold(0, |set, item| match item {
        Item::Values(values) => set | values,
        _ => field.bounds().fold(set, |set, value| set | 1 << value),
    })
}

fn check_whole(text: &str) -> Result<(), CronError> {
    if text.is_empty() {
        return Err(CronError::whole(text, "it is empty; every five minutes, for example, is */5 * * * *"));
    }
    let got = text.chars().count();
    if got > Cron::MAX {
        let start: String = text.chars().take(40).collect();
        let max = Cron::MAX;
        return Err(CronError::whole(
            &format!("{start}…"),
            format!("it has {got} characters, at most {max} are allowed"),
        ));
    }
    let first = text.split(' ').next().unwrap_or_default();
    if first.contains('=') {
        return Err(CronError::whole(
            text,
            "it begins with a setting; the time zone is given beside the expression",
        ));
    }
    Ok(())
}

fn nickname(text: &str) -> Result<&'static str, CronError> {
    let reason = match text.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => return Ok("0 0 1 1 *"),
        "@monthly" => return Ok("0 0 1 * *"),
        "@weekly" => return Ok("0 0 * * 0"),
        "@daily" | "@midnight" => return Ok("0 0 * * *"),
        "@hourly" => return Ok("0 * * * *"),
        "@reboot" => {
            "refused: with many schedulers on one database there is no one start to run it at; trigger the job \
             when your program starts"
        }
        every if every.starts_with("@every") => {
            "refused: it counts from a start that no two schedulers agree on; write the times, like */5 * * * *"
        }
        _ => "not known; there are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly",
    };
    Err(CronError::whole(text, reason))
}

fn wrong_count(text: &str, got: usize) -> CronError {
    let year = if got == 7 { "; there is no field for years" } else { "" };
    let fields = if got == 1 { "field" } else { "fields" };
    CronError::whole(
        text,
        format!(
            "it has {got} {fields}, and takes five (minute, hour, day of month, month, day of week) or six (second first){year}"
        ),
    )
}

/// Only days of month can be such that no month in question has them: every month has every weekday.
fn never(text: &str, texts: &[&str]) -> CronError {
    let position = if text.split(' ').count() == 6 { 4 } else { 3 };
    let start: usize = text.split(' ').take(position - 1).map(|field| field.len() + 1).sum();
    let at = start..start + texts[3].len();
    let months = texts[4];
    let reason =
        format!("no month in field {} ({months}) has such a day, so it would never fire", position + 1);
    CronError::in_field(text, (CronField::DayOfMonth, position), at, reason)
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        Self::parse(text)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&self.text).finish()
    }
}

impl Serialize for Cron {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Cron {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
