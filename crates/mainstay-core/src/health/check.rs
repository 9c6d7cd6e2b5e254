//! One check, and what it found.

use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::error::Error;

use super::HealthStatus;

/// What a check found, in words, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How bad it is.
    pub status: HealthStatus,
    /// What was found.
    pub summary: String,
    /// What to do next, if there is anything to do.
    pub advice: Option<String>,
}

impl Finding {
    /// What was found.
    pub fn new(status: HealthStatus, summary: impl Into<String>) -> Self {
        Self { status, summary: summary.into(), advice: None }
    }

    /// As it should be.
    pub fn healthy(summary: impl Into<String>) -> Self {
        Self::new(HealthStatus::Healthy, summary)
    }

    /// Not to be told.
    pub fn unknown(summary: impl Into<String>) -> Self {
        Self::new(HealthStatus::Unknown, summary)
    }

    /// The answer was an error.
    pub fn failed(error: &Error) -> Self {
        Self::unknown(error.message())
    }

    /// Says what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }
}

/// One check of a report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// What was checked: `connectivity`, `schema`, `overdue.outbox`, …
    pub name: &'static str,
    /// How bad it is.
    pub status: HealthStatus,
    /// What was found.
    pub summary: String,
    /// What to do next, if there is anything to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
    /// How long it took; in milliseconds where it is serialised.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
}

impl Check {
    /// A check that took so long.
    pub fn new(name: &'static str, finding: Finding, duration: Duration) -> Self {
        let Finding { status, summary, advice } = finding;
        Self { name, status, summary, advice, duration }
    }
}

pub(super) fn milliseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // To the microsecond, so that nobody reads digits which mean nothing.
    serializer.serialize_f64((duration.as_secs_f64() * 1e6).round() / 1e3)
}

/// A duration as people say it: in the largest unit that fits.
pub(super) fn told(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A count with its noun; one that was cut is so many or more.
pub(super) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ if count >= super::SEEN_AT_MOST => format!("{count} or more {noun}s"),
        _ => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_are_told_as_people_do() {
        let ages = [(0, "0 ms"), (59, "59 s"), (60, "1 min"), (7_199, "1 h"), (172_800, "2 d")];
        for (seconds, text) in ages {
            assert_eq!(told(Duration::from_secs(seconds)), text);
        }
        assert_eq!(told(Duration::from_millis(12)), "12 ms");
        assert_eq!(counted(1, "item"), "1 item");
        assert_eq!(counted(7, "item"), "7 items");
        assert_eq!(counted(1_000, "item"), "1000 or more items");
    }
}
