//! How well something is.

use std::cmp::Ordering;
use std::fmt;

use serde::Serialize;

/// How well something is. In order of how bad it is, so the largest of several is what counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HealthStatus {
    /// There is nothing of the kind here.
    NotApplicable,
    /// As it should be.
    Healthy,
    /// It works, but somebody should look at it.
    Degraded,
    /// It could not be told: there was no answer in time, or no right to ask.
    Unknown,
    /// It does not work.
    Unhealthy,
}

impl HealthStatus {
    /// Its name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotApplicable => "not_applicable",
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unknown => "unknown",
            Self::Unhealthy => "unhealthy",
        }
    }

    /// Whether it may be relied on: all is as it should be, or works nonetheless. What could not be told may not.
    pub fn is_fit(self) -> bool {
        self < Self::Unknown
    }

    /// The worst of several; healthy if there is none.
    pub fn worst(of: impl IntoIterator<Item = Self>) -> Self {
        of.into_iter().fold(Self::Healthy, Self::max)
    }
}

impl Ord for HealthStatus {
    fn cmp(&self, other: &Self) -> Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

impl PartialOrd for HealthStatus {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotApplicable => "does not apply",
            Self::Unknown => "could not tell",
            other => other.as_str(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::HealthStatus::{self, *};

    #[test]
    fn what_is_known_to_be_bad_is_worse_than_what_is_not_known() {
        assert_eq!(HealthStatus::worst([Healthy, Unhealthy, Unknown]), Unhealthy);
        assert_eq!(HealthStatus::worst([Degraded, Unknown, Healthy]), Unknown);
        assert_eq!(HealthStatus::worst([NotApplicable]), Healthy);
        assert_eq!(HealthStatus::worst([]), Healthy);
        assert!(Degraded.is_fit() && !Unknown.is_fit() && !Unhealthy.is_fit());
    }
}
