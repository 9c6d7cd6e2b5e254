//! What becomes of occurrences that nobody was there to run in time.
//!
//! An occurrence is *on time* if it is looked at within [`GRACE`] of its nominal time, *late* after that. On-time ones
//! always run; the policy is about the late ones only. The work is bounded however long nobody was there: occurrences
//! are counted by the calendar, and only those that run are ever listed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

use super::Schedule;

/// An occurrence whose nominal time is longer ago than this is late.
pub const GRACE: Duration = Duration::from_secs(60);

/// What becomes of late occurrences: those whose nominal time is more than a minute ago ([`GRACE`]) when a scheduler
/// gets to them, because none was running or the database was away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(tag = "policy", rename_all = "kebab-case")]
pub enum Misfire {
    /// None of them runs.
    Skip,
    /// One run stands for all of them: the newest due occurrence. If one is on time, it is that.
    #[default]
    Once,
    /// All of them run, oldest first; at most the newest `cap`, and none whose nominal time is longer ago than `window`.
    All {
        /// How many at most, 1 to 1,000.
        cap: u32,
        /// How long ago at most, in whole seconds: 1 second to 366 days.
        #[serde(rename = "window_seconds", with = "seconds")]
        window: Duration,
    },
}

/// Durations as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(window: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(window.as_secs())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_secs)
    }
}

impl Misfire {
    /// The highest cap.
    pub const CAP_MAX: u32 = 1_000;
    /// The longest window.
    pub const WINDOW_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

    /// The number in the tables; cap and window stand beside it.
    pub const fn code(self) -> i16 {
        match self {
            Self::Skip => 0,
            Self::Once => 1,
            Self::All { .. } => 2,
        }
    }

    /// As in the program and in records; without cap and window.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::Once => "once",
            Self::All { .. } => "all",
        }
    }

    /// The policy with this number, and with this cap and window if it has them.
    pub fn from_code(code: i16, cap: Option<u32>, window: Option<Duration>) -> Result<Self> {
        match (code, cap, window) {
            (0, ..) => Ok(Self::Skip),
            (1, ..) => Ok(Self::Once),
            (2, Some(cap), Some(window)) => Ok(Self::All { cap, window }),
            (2, ..) => Err(internal("2 (all) lacks its cap or its window".to_owned())),
            _ => Err(internal(format!("{code} is no misfire policy (0 to 2)"))),
        }
    }

    /// The cap, if it has one.
    pub const fn cap(self) -> Option<u32> {
        match self {
            Self::All { cap, .. } => Some(cap),
            Self::Skip | Self::Once => None,
        }
    }

    /// The window, if it has one.
    pub const fn window(self) -> Option<Duration> {
        match self {
            Self::All { window, .. } => Some(window),
            Self::Skip | Self::Once => None,
        }
    }

    /// Refuses a cap or window outside its bounds.
    pub fn validate(&self, operation: &'static str) -> Result<()> {
        let Self::All { cap, window } = *self else { return Ok(()) };
        if !(1..=Self::CAP_MAX).contains(&cap) {
            return Err(Error::invalid(
                operation,
                "misfire cap",
                format_args!("must be 1 to 1,000, got {cap}"),
            ));
        }
        if window.is_zero() || window > Self::WINDOW_MAX || window.subsec_nanos() != 0 {
            return Err(Error::invalid(
                operation,
                "misfire window",
                format_args!("must be whole seconds, 1 second to 366 days, got {window:?}"),
            ));
        }
        Ok(())
    }
}

fn internal(message: String) -> Error {
    Error::new(ErrorKind::Internal, "job.misfire", message)
}

/// What to do about a job whose next nominal time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The nominal times to run, in order. At most those of a minute and the policy's cap.
    pub occurrences: Vec<Timestamp>,
    /// How many due occurrences are passed over. Exact, however many.
    pub skipped: u64,
    /// The next nominal time, after now. None at the end of time.
    pub next: Option<Timestamp>,
}

/// What to run of a job whose stored next nominal time is `next_nominal`, and when to look again.
///
/// `next_nominal` counts as an occurrence whatever the schedule says: it was promised, and the rules of its zone may
/// have changed since. If it is still to come, there is nothing to do until then.
pub fn plan(schedule: &Schedule, next_nominal: Timestamp, now: Timestamp, misfire: Misfire) -> Plan {
    if now < next_nominal {
        return Plan { occurrences: Vec::new(), skipped: 0, next: Some(next_nominal) };
    }
    let due = Due { schedule, first: next_nominal, now };
    let on_time = due.ago(GRACE);
    let mut occurrences = match misfire {
        Misfire::All { cap, window } => due.newest(cap.into(), due.ago(window), on_time),
        Misfire::Skip | Misfire::Once => Vec::new(),
    };
    occurrences.extend(due.between(on_time, now));
    if misfire == Misfire::Once && occurrences.is_empty() {
        occurrences = due.newest(1, next_nominal, on_time);
    }
    let skipped = due.count(next_nominal, now).saturating_sub(occurrences.len() as u64);
    Plan { occurrences, skipped, next: schedule.next_after(now) }
}

/// The occurrences that are due: the promised one, and all of the schedule's from there to now.
struct Due<'a> {
    schedule: &'a Schedule,
    first: Timestamp,
    now: Timestamp,
}

/// The smallest difference between two instants.
const INSTANT: SignedDuration = SignedDuration::from_nanos(1);

impl Due<'_> {
    fn ago(&self, duration: Duration) -> Timestamp {
        self.now.saturating_sub(duration).unwrap_or(Timestamp::MIN)
    }

    /// Those from `from` to `to`, both included.
    fn between(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        let first = Some(self.first).filter(|first| (from..=to).contains(first));
        let after = self.first.max(from.saturating_sub(INSTANT).unwrap_or(from));
        first.into_iter().chain(self.schedule.after(after).take_while(move |at| *at <= to))
    }

    /// How many there are from `from` to `to`, both included.
    fn count(&self, from: Timestamp, to: Timestamp) -> u64 {
        let first = u64::from((from..=to).contains(&self.first));
        let after = self.first.saturating_add(INSTANT).unwrap_or(self.first);
        first + self.schedule.count(from.max(after)..=to)
    }

    /// The newest `most` of those from `from` on and before `before`, in order.
    fn newest(&self, most: u64, from: Timestamp, before: Timestamp) -> Vec<Timestamp> {
        let last = before.saturating_sub(INSTANT).unwrap_or(before);
        let from = from.max(self.first);
        if from > last {
            return Vec::new();
        }
        let fits = |start: Timestamp| self.count(start, last) <= most;
        // Doubles the look back from the end until there is enough: usually that is near, however far `from` is.
        let mut back = SignedDuration::from_mins(1);
        let (mut fitting, mut start) = (last, last);
        while start > from && fits(start) {
            fitting = start;
            start = last.saturating_sub(back).unwrap_or(from).max(from);
            back = back.saturating_mul(2);
        }
        if fits(start) {
            return self.between(start, last).collect();
        }
        // From `fitting` on there are not too many, from `start` on there are: the border is a second in between.
        while fitting.duration_since(start) > SignedDuration::from_secs(1) {
            let middle = start.saturating_add(fitting.duration_since(start) / 2).unwrap_or(fitting);
            if fits(middle) { fitting = middle } else { start = middle }
        }
        self.between(fitting, last).collect()
    }
}
