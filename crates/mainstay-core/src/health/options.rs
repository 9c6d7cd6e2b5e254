//! When something counts as bad.

use std::time::Duration;

use crate::error::{Error, Result};

use super::Patience;

const OPTIONS: &str = "health.options";
const SECOND: Duration = Duration::from_secs(1);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// When something counts as bad, and how long a check may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthOptions {
    /// How long a check waits for its answer, 10 ms to 5 min. The first one tells whether the database answers at all, the others are
    /// asked side by side. Defaults to 5 s.
    pub timeout: Duration,
    /// An answer that takes longer than this is slow, 1 ms to 5 min. Defaults to 1 s.
    pub slow_answer: Duration,
    /// Work that is due for so long makes it degraded, 1 s to 365 d. Defaults to 5 min.
    pub overdue_degraded: Duration,
    /// Work that is due for so long makes it unhealthy, at least [`Self::overdue_degraded`]. Defaults to 30 min.
    pub overdue_unhealthy: Duration,
    /// Work whose lease lapsed so long ago makes it degraded, 1 s to 365 d. Defaults to 2 min.
    pub stuck_degraded: Duration,
    /// Work whose lease lapsed so long ago makes it unhealthy, at least [`Self::stuck_degraded`]. Defaults to 10 min.
    pub stuck_unhealthy: Duration,
    /// With work that is due, workers of whom nothing was seen for so long count as gone, 1 s to 365 d. Defaults to 2 min: that is
    /// longer than they sleep.
    pub silence: Duration,
    /// For how long a lease that lapsed without being released is told of, 1 s to 365 d. Defaults to 1 h.
    pub lapsed_leases: Duration,
    /// Failed messages that retention deletes within this time are told of, 1 s to 365 d. Defaults to 1 day.
    pub expiring_within: Duration,
}

impl Default for HealthOptions {
    fn default() -> Self {
        Self {
            timeout: 5 * SECOND,
            slow_answer: SECOND,
            overdue_degraded: 300 * SECOND,
            overdue_unhealthy: 1_800 * SECOND,
            stuck_degraded: 120 * SECOND,
            stuck_unhealthy: 600 * SECOND,
            silence: 120 * SECOND,
            lapsed_leases: 3_600 * SECOND,
            expiring_within: 86_400 * SECOND,
        }
    }
}

impl HealthOptions {
    /// How long a check waits for its answer.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }
    /// An answer that takes longer than this is slow.
    #[must_use]
    pub fn slow_answer(mut self, longer_than: Duration) -> Self {
        self.slow_answer = longer_than;
        self
    }
    /// For how long work is due before it makes it degraded, and unhealthy.
    #[must_use]
    pub fn overdue(mut self, degraded: Duration, unhealthy: Duration) -> Self {
        (self.overdue_degraded, self.overdue_unhealthy) = (degraded, unhealthy);
        self
    }
    /// How long ago a claim lapsed before it makes it degraded, and unhealthy.
    #[must_use]
    pub fn stuck(mut self, degraded: Duration, unhealthy: Duration) -> Self {
        (self.stuck_degraded, self.stuck_unhealthy) = (degraded, unhealthy);
        self
    }
    /// For how long nothing is seen of workers before they count as gone.
    #[must_use]
    pub fn silence(mut self, silence: Duration) -> Self {
        self.silence = silence;
        self
    }
    /// For how long a lease that lapsed is told of.
    #[must_use]
    pub fn lapsed_leases(mut self, within: Duration) -> Self {
        self.lapsed_leases = within;
        self
    }

    /// How long before retention deletes failed messages that is told.
    #[must_use]
    pub fn expiring_within(mut self, within: Duration) -> Self {
        self.expiring_within = within;
        self
    }

    /// Refuses what is out of bounds.
    pub fn validate(&self) -> Result<()> {
        let longest = Duration::from_secs(300);
        within("timeout", self.timeout, Duration::from_millis(10), longest, "10 ms to 5 min")?;
        within("slow_answer", self.slow_answer, Duration::from_millis(1), longest, "1 ms to 5 min")?;
        for (field, value) in [
            ("overdue_degraded", self.overdue_degraded),
            ("overdue_unhealthy", self.overdue_unhealthy),
            ("stuck_degraded", self.stuck_degraded),
            ("stuck_unhealthy", self.stuck_unhealthy),
            ("silence", self.silence),
            ("lapsed_leases", self.lapsed_leases),
            ("expiring_within", self.expiring_within),
        ] {
            within(field, value, SECOND, YEAR, "1 s to 365 d")?;
        }
        at_least("overdue_unhealthy", self.overdue_unhealthy, "overdue_degraded", self.overdue_degraded)?;
        at_least("stuck_unhealthy", self.stuck_unhealthy, "stuck_degraded", self.stuck_degraded)
    }

    /// From when on something counts.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            overdue: self.overdue_degraded,
            stuck: self.stuck_degraded,
            lapsed_within: self.lapsed_leases,
        }
    }
}

fn within(
    field: &'static str,
    value: Duration,
    least: Duration,
    most: Duration,
    in_words: &str,
) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(OPTIONS, field, format_args!("must be {in_words}, got {value:?}")))
}

fn at_least(field: &'static str, value: Duration, other: &str, least: Duration) -> Result<()> {
    if value >= least {
        return Ok(());
    }
    let reason = format_args!("must be at least {other} ({least:?}), got {value:?}");
    Err(Error::invalid(OPTIONS, field, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_and_the_bound_are_named() {
        let options = HealthOptions::default();
        options.validate().unwrap();
        let minute = 60 * SECOND;
        for (options, field, bound) in [
            (options.timeout(Duration::ZERO), "timeout", "10 ms to 5 min"),
            (options.timeout(301 * SECOND), "timeout", "10 ms to 5 min"),
            (options.slow_answer(Duration::ZERO), "slow_answer", "1 ms to 5 min"),
            (options.overdue(Duration::ZERO, minute), "overdue_degraded", "1 s to 365 d"),
            (options.overdue(minute, 59 * SECOND), "overdue_unhealthy", "overdue_degraded (60s)"),
            (options.stuck(minute, 2 * YEAR), "stuck_unhealthy", "1 s to 365 d"),
            (options.stuck(minute, SECOND), "stuck_unhealthy", "stuck_degraded"),
            (options.silence(Duration::ZERO), "silence", "1 s to 365 d"),
            (options.lapsed_leases(Duration::MAX), "lapsed_leases", "1 s to 365 d"),
            (options.expiring_within(Duration::ZERO), "expiring_within", "1 s to 365 d"),
        ] {
            let error = options.validate().unwrap_err();
            assert_eq!(error.field(), Some(field));
            assert!(error.message().contains(bound), "{error}");
        }
    }
}
