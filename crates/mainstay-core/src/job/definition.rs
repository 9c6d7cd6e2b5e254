//! A job to be registered, and the rules it must keep.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::outbox::{Limits, Priority};
use crate::text::{validate_name, validate_nul};

use super::{Misfire, Overlap, Schedule};

const DEFINE: &str = "job.define";

/// A job to be registered: what is enqueued, and when.
///
/// ```
/// # use mainstay_core::job::JobDefinition;
/// # use mainstay_core::outbox::Limits;
/// let job = JobDefinition::new("nightly-report", "report.build", "30 2 * * *").time_zone("Europe/Berlin");
/// assert!(job.validate(&Limits::default()).is_ok());
///
/// let error = JobDefinition::new("", "report.build", "@daily").validate(&Limits::default()).unwrap_err();
/// assert_eq!(error.message(), "name must be 1 to 255 characters, got 0");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a job does nothing until it is registered"]
pub struct JobDefinition {
    pub(super) name: String,
    pub(super) topic: String,
    pub(super) payload: String,
    pub(super) cron: String,
    pub(super) time_zone: String,
    pub(super) enabled: Option<bool>,
    pub(super) misfire: Misfire,
    pub(super) overlap: Overlap,
    pub(super) jitter: Duration,
    pub(super) priority: i16,
}

impl JobDefinition {
    /// The widest jitter.
    pub const JITTER_MAX: Duration = Duration::from_secs(24 * 3_600);

    /// A job of this name (1 to 255 characters), whose runs are messages of this topic, at the times of this cron
    /// expression in UTC. It has an empty payload, and everything else is at its default.
    pub fn new(name: impl Into<String>, topic: impl Into<String>, cron: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            topic: topic.into(),
            payload: String::new(),
            cron: cron.into(),
            time_zone: "UTC".to_owned(),
            enabled: None,
            misfire: Misfire::default(),
            overlap: Overlap::default(),
            jitter: Duration::ZERO,
            priority: 0,
        }
    }

    /// The topic of its runs.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = topic.into();
        self
    }

    /// When it fires: a cron expression.
    pub fn cron(mut self, cron: impl Into<String>) -> Self {
        self.cron = cron.into();
        self
    }

    /// The payload of every run. Defaults to empty.
    pub fn payload(mut self, payload: impl Into<String>) -> Self {
        self.payload = payload.into();
        self
    }

    /// A payload that is `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self> {
        let payload = serde_json::to_string(value).map_err(|error| {
            // The category only: serde_json's own text may quote the value.
            let category = error.classify();
            Error::invalid(DEFINE, "payload", format_args!("can't be written as JSON ({category:?})"))
        })?;
        Ok(self.payload(payload))
    }

    /// The zone whose wall clock the expression is read by: an IANA name. Defaults to `UTC`.
    pub fn time_zone(mut self, name: impl Into<String>) -> Self {
        self.time_zone = name.into();
        self
    }

    /// Whether it runs. Defaults to what it was: a new job runs, one that somebody has disabled stays so.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// What becomes of occurrences that nobody was there for. Defaults to [`Misfire::Once`].
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
    }

    /// What happens when it is due while an earlier run is not over. Defaults to [`Overlap::Allow`].
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// Spreads runs over this long after their nominal time, in whole seconds up to a day. Defaults to zero.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// The priority of its runs: -9 to 9, higher first. Defaults to 0.
    pub fn priority(mut self, level: i16) -> Self {
        self.priority = level;
        self
    }

    /// Checks every rule. The error names the field and its bound.
    pub fn validate(&self, limits: &Limits) -> Result<()> {
        self.check(limits).map(drop)
    }

    /// Makes it ready for a provider: checks every rule and reads the schedule.
    pub fn prepare(self, limits: &Limits) -> Result<PreparedJob> {
        let schedule = self.check(limits)?;
        Ok(PreparedJob { definition: self, schedule })
    }

    fn check(&self, limits: &Limits) -> Result<Schedule> {
        validate_name(DEFINE, "name", &self.name)?;
        validate_name(DEFINE, "topic", &self.topic)?;
        let (max, got) = (limits.payload_bytes, self.payload.len());
        if got > max {
            return Err(Error::invalid(
                DEFINE,
                "payload",
                format_args!("must be at most {max} bytes, got {got}"),
            ));
        }
        if !limits.nul_in_payload {
            validate_nul(DEFINE, "payload", &self.payload)?;
        }
        self.misfire.validate(DEFINE)?;
        if self.jitter > Self::JITTER_MAX || self.jitter.subsec_nanos() != 0 {
            let got = self.jitter;
            return Err(Error::invalid(
                DEFINE,
                "jitter",
                format_args!("must be whole seconds and at most 24 h, got {got:?}"),
            ));
        }
        Priority::new(self.priority)?;
        Schedule::parse(&self.cron, &self.time_zone)
    }
}

/// No payload: it doesn't belong in a log (R27).
impl fmt::Debug for JobDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobDefinition")
            .field("name", &self.name)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("cron", &self.cron)
            .field("time_zone", &self.time_zone)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

/// A job that keeps every rule. Providers take these, so none of them checks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedJob {
    definition: JobDefinition,
    schedule: Schedule,
}

impl PreparedJob {
    /// When it fires. The first next nominal time is `schedule().next_after(now)`.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }
    /// The name.
    pub fn name(&self) -> &str {
        &self.definition.name
    }
    /// The topic of its runs.
    pub fn topic(&self) -> &str {
        &self.definition.topic
    }
    /// The payload of its runs.
    pub fn payload(&self) -> &str {
        &self.definition.payload
    }
    /// The cron expression, as it is stored.
    pub fn cron(&self) -> &str {
        self.schedule.cron().as_str()
    }
    /// The name of its zone, as it is stored.
    pub fn time_zone(&self) -> &str {
        self.schedule.zone().name()
    }
    /// Whether it runs; none leaves that as it is, and lets a new one run.
    pub fn enabled(&self) -> Option<bool> {
        self.definition.enabled
    }
    /// What becomes of late occurrences.
    pub fn misfire(&self) -> Misfire {
        self.definition.misfire
    }
    /// What happens while an earlier run is not over.
    pub fn overlap(&self) -> Overlap {
        self.definition.overlap
    }
    /// The widest jitter, in whole seconds.
    pub fn jitter(&self) -> Duration {
        self.definition.jitter
    }
    /// -9 to 9.
    pub fn priority(&self) -> i16 {
        self.definition.priority
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> JobDefinition {
        JobDefinition::new("report", "report.build", "30 2 * * *")
    }

    #[track_caller]
    fn refused(job: JobDefinition, field: &str, says: &str) {
        let error = job.validate(&Limits::default()).unwrap_err();
        assert_eq!(error.field(), Some(field), "{error}");
        assert!(error.message().starts_with(field) && error.message().contains(says), "{error}");
    }

    #[test]
    fn each_rule_names_its_field_and_bound() {
        let long = || "x".repeat(256);
        let all = |cap, window| Misfire::All { cap, window };
        refused(JobDefinition::new("", "t", "@daily"), "name", "1 to 255");
        refused(JobDefinition::new(long(), "t", "@daily"), "name", "got 256");
        refused(JobDefinition::new("a\0", "t", "@daily"), "name", "NUL");
        refused(JobDefinition::new("n", "", "@daily"), "topic", "1 to 255");
        refused(JobDefinition::new("n", "t", "60 * * * *"), "cron", "field 1 (minute)");
        refused(JobDefinition::new("n", "t", "0 0 30 2 *"), "cron", "never fire");
        refused(fine().time_zone("Europe/Berln"), "time_zone", "Europe/Berlin");
        refused(fine().payload("a\0"), "payload", "NUL");
        refused(fine().payload("x".repeat((64 << 20) + 1)), "payload", "at most 67108864 bytes");
        refused(fine().priority(10), "priority", "-9 to 9");
        refused(fine().jitter(Duration::from_secs(86_401)), "jitter", "at most 24 h");
        refused(fine().jitter(Duration::from_millis(1_500)), "jitter", "whole seconds");
        refused(fine().misfire(all(0, Duration::from_secs(1))), "misfire cap", "1 to 1,000");
        refused(fine().misfire(all(1_001, Duration::from_secs(1))), "misfire cap", "got 1001");
        refused(fine().misfire(all(1, Duration::ZERO)), "misfire window", "366 days");
        refused(fine().misfire(all(1, Duration::MAX)), "misfire window", "366 days");
        refused(fine().misfire(all(1, Duration::from_millis(1))), "misfire window", "whole seconds");
        for fits in [
            fine().jitter(JobDefinition::JITTER_MAX),
            fine().misfire(all(1_000, Misfire::WINDOW_MAX)),
            JobDefinition::new("ü".repeat(255), "t", "@hourly"),
        ] {
            fits.validate(&Limits::default()).unwrap();
        }
    }

    #[test]
    fn what_is_stored_is_tidy() {
        let job = JobDefinition::new("n", "t", "  30\t2 * *  * ").time_zone("europe/berlin");
        let job = job.prepare(&Limits::default()).unwrap();
        assert_eq!((job.cron(), job.time_zone()), ("30 2 * * *", "Europe/Berlin"));
    }

    #[test]
    fn debug_shows_no_payload() {
        let job = fine().payload("secret");
        assert!(!format!("{job:?}").contains("secret"));
        assert!(!format!("{:?}", job.prepare(&Limits::default()).unwrap()).contains("secret"));
    }
}
