//! The next fires of a schedule, and what each clock change on the way does to them.

use std::fmt;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset};
use serde::{Serialize, Serializer};

use super::Schedule;
use super::stretch::offset_before;

/// The next fires of a schedule, and the clock changes met on the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The fires, in order.
    pub fires: Vec<Fire>,
    /// The clock changes of the zone from the start to the last fire, in order.
    pub shifts: Vec<Shift>,
}

/// One fire of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fire {
    /// When.
    pub at: Timestamp,
    /// What the clock on the wall shows then.
    pub local: DateTime,
    /// How far that is from UTC.
    #[serde(serialize_with = "offset")]
    pub offset: Offset,
    /// What a clock change has to do with it, if one has.
    pub note: Option<DstNote>,
}

/// What a clock change has to do with a fire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DstNote {
    /// It stands for fixed times that the clock skipped: it fires at the first instant after the gap.
    Moved {
        /// The first of the skipped times.
        from: DateTime,
        /// How many were skipped; this one fire stands for them all.
        skipped: u64,
    },
    /// The clock shows this fixed time twice: it fires at the first, and not at the second.
    FirstOnly {
        /// When the clock shows the time again.
        again_at: Timestamp,
    },
    /// The clock shows this time of an interval twice, and it fires both times: this is the first.
    FirstOfTwo {
        /// When the clock shows the time again.
        again_at: Timestamp,
    },
    /// The clock shows this time of an interval twice, and it fires both times: this is the second.
    SecondOfTwo {
        /// When the clock showed the time before.
        before_at: Timestamp,
    },
}

/// A clock change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Shift {
    /// When.
    pub at: Timestamp,
    /// Forward or back.
    pub kind: ShiftKind,
    /// The first wall-clock time that is skipped or comes twice.
    pub from: DateTime,
    /// The first after `from` that is not.
    pub to: DateTime,
    /// The offset before.
    #[serde(serialize_with = "offset")]
    pub before: Offset,
    /// The offset after.
    #[serde(serialize_with = "offset")]
    pub after: Offset,
    /// How many times the schedule names from `from` to `to`.
    pub named: u64,
    /// What becomes of them.
    pub treatment: Treatment,
}

/// Whether a clock change skips times or repeats them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShiftKind {
    /// The clock is put forward: the times in between don't exist that day.
    Gap,
    /// The clock is put back: the times in between come twice that day.
    Overlap,
}

/// What becomes of the times that a clock change skips or repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// The schedule names none of them.
    None,
    /// Times of an interval in a gap: they don't fire.
    Skipped,
    /// Fixed times in a gap: they fire once, together, at its end.
    MovedToEnd,
    /// Fixed times in an overlap: each fires once, the first time.
    FiresFirst,
    /// Times of an interval in an overlap: each fires both times.
    FiresBoth,
}

impl Schedule {
    /// The next `count` fires after `after`, and every clock change on the way.
    pub fn explain(&self, after: Timestamp, count: usize) -> Explanation {
        let fires: Vec<_> = self.after(after).take(count).map(|at| self.fire(at)).collect();
        let last = fires.last().map_or(after, |fire| fire.at);
        Explanation { shifts: self.shifts(after, last), fires }
    }

    /// The clock changes after `after` up to `until`, with what each does to this schedule.
    pub fn shifts(&self, after: Timestamp, until: Timestamp) -> Vec<Shift> {
        let changes = self.zone().time_zone().following(after);
        let changes = changes.take_while(|change| change.timestamp() <= until);
        changes.filter_map(|change| self.shift(change.timestamp())).collect()
    }

    fn fire(&self, at: Timestamp) -> Fire {
        let offset = self.zone().time_zone().to_offset(at);
        let local = offset.to_datetime(at);
        Fire { at, local, offset, note: self.note(at, local, offset) }
    }

    fn note(&self, at: Timestamp, local: DateTime, offset: Offset) -> Option<DstNote> {
        let zone = self.zone().time_zone();
        let fixed = self.cron().is_fixed_time();
        if fixed && offset_before(zone, at) < offset {
            let gap = offset_before(zone, at).to_datetime(at);
            if let Some(from) = self.cron().next_wall(gap, local) {
                return Some(DstNote::Moved { from, skipped: self.cron().count_walls(gap, local) });
            }
        }
        let AmbiguousOffset::Fold { before, after } = zone.to_ambiguous_timestamp(local).offset() else {
            return None;
        };
        if offset == before {
            let again_at = after.to_timestamp(local).ok()?;
            return Some(if fixed {
                DstNote::FirstOnly { again_at }
            } else {
                DstNote::FirstOfTwo { again_at }
            });
        }
        let before_at = before.to_timestamp(local).ok()?;
        Some(DstNote::SecondOfTwo { before_at })
    }

    /// None if only the name of the offset changes.
    fn shift(&self, at: Timestamp) -> Option<Shift> {
        let zone = self.zone().time_zone();
        let (before, after) = (offset_before(zone, at), zone.to_offset(at));
        let (old, new) = (before.to_datetime(at), after.to_datetime(at));
        let (kind, from, to) = match old.cmp(&new) {
            std::cmp::Ordering::Less => (ShiftKind::Gap, old, new),
            std::cmp::Ordering::Greater => (ShiftKind::Overlap, new, old),
            std::cmp::Ordering::Equal => return None,
        };
        let named = self.cron().count_walls(from, to);
        let treatment = match (kind, self.cron().is_fixed_time()) {
            _ if named == 0 => Treatment::None,
            (ShiftKind::Gap, false) => Treatment::Skipped,
            (ShiftKind::Gap, true) => Treatment::MovedToEnd,
            (ShiftKind::Overlap, true) => Treatment::FiresFirst,
            (ShiftKind::Overlap, false) => Treatment::FiresBoth,
        };
        Some(Shift { at, kind, from, to, before, after, named, treatment })
    }
}

impl fmt::Display for ShiftKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gap => "gap",
            Self::Overlap => "overlap",
        })
    }
}

/// An offset as RFC 3339 writes it.
fn offset<S: Serializer>(offset: &Offset, serializer: S) -> Result<S::Ok, S::Error> {
    let seconds = offset.seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    let mut text = format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60);
    if seconds % 60 != 0 {
        // Only long ago, when towns kept the time of their own sun.
        text.push_str(&format!(":{:02}", seconds.unsigned_abs() % 60));
    }
    serializer.serialize_str(&text)
}
