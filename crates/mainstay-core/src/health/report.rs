//! What the checks of one database found, as data.

use std::cmp::Reverse;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::check::milliseconds;
use super::{Check, HealthStatus, Probe, Startup};

/// What the checks of one database found. Holds no secret, and can be serialised as it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HealthReport {
    /// That of the worst check.
    pub status: HealthStatus,
    /// What was asked.
    pub probe: Probe,
    /// The database, as logs name it.
    pub database: String,
    /// `sqlite`, `postgres`, …
    pub provider: &'static str,
    /// Where this process stands, if it is one that works on the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// Whether the database answered. Otherwise only that is known of it. None if it was not asked.
    pub reached: Option<bool>,
    /// When, by this machine's clock.
    pub checked_at: Timestamp,
    /// How long all of it took; in milliseconds where it is serialised.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    /// The checks, the worst first.
    pub checks: Vec<Check>,
}

impl HealthReport {
    /// An empty report of a database, of the time it is made at.
    pub fn new(probe: Probe, database: impl Into<String>, provider: &'static str) -> Self {
        Self {
            status: HealthStatus::Healthy,
            probe,
            database: database.into(),
            provider,
            startup: None,
            reached: None,
            checked_at: Timestamp::now(),
            duration: Duration::ZERO,
            checks: Vec::new(),
        }
    }

    /// The same with these checks, the worst first, and with the worst one's status.
    #[must_use]
    pub fn with_checks(mut self, mut checks: Vec<Check>) -> Self {
        // Those that are as bad as each other stay in their order.
        checks.sort_by_key(|check| Reverse(check.status));
        self.status = HealthStatus::worst(checks.iter().map(|check| check.status));
        self.checks = checks;
        self
    }

    /// The same after so long.
    #[must_use]
    pub fn took(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }

    /// The check of this name.
    pub fn check(&self, name: &str) -> Option<&Check> {
        self.checks.iter().find(|check| check.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Finding;
    use super::*;

    #[test]
    fn a_report_is_as_bad_as_its_worst_check_which_comes_first() {
        let check = |name, status| Check::new(name, Finding::new(status, name), Duration::from_micros(1_500));
        let report = HealthReport::new(Probe::Full, "d", "sqlite").with_checks(vec![
            check("connectivity", HealthStatus::Healthy),
            check("schema", HealthStatus::Degraded),
            check("stuck", HealthStatus::Unhealthy),
            check("leases", HealthStatus::Healthy),
        ]);
        assert_eq!(report.status, HealthStatus::Unhealthy);
        let names: Vec<_> = report.checks.iter().map(|check| check.name).collect();
        assert_eq!(names, ["stuck", "schema", "connectivity", "leases"]);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!((&json["status"], &json["probe"]), (&"unhealthy".into(), &"full".into()));
        assert_eq!(json["checks"][0]["duration_ms"], 1.5);
        assert!(json["checks"][0].get("advice").is_none() && json.get("startup").is_none());
    }
}
