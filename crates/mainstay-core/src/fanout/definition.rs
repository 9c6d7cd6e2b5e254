//! A fan-out to be registered, and the rules its policy must keep.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::Schedule;

use super::FanoutKey;

const DEFINE: &str = "fanout.define";

/// A fan-out to be registered: how often its shards are due.
///
/// ```
/// # use std::time::Duration;
/// # use mainstay_core::fanout::FanoutDefinition;
/// let payments = FanoutDefinition::new("etl", "payments").every(Duration::from_secs(600)).jitter(Duration::from_secs(60));
/// assert!(payments.prepare().is_ok());
///
/// let error = FanoutDefinition::new("etl", "payments").prepare().unwrap_err();
/// assert_eq!(error.field(), Some("every"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a fan-out does nothing until it is registered"]
pub struct FanoutDefinition {
    topic: String,
    work_key: String,
    every: Duration,
    jitter: Duration,
    cron: Option<String>,
    time_zone: String,
    enabled: bool,
}

impl FanoutDefinition {
    /// The longest cadence.
    pub const EVERY_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
    /// The widest jitter.
    pub const JITTER_MAX: Duration = Duration::from_secs(24 * 3_600);
    /// The longest expression, in characters.
    pub const CRON_MAX: usize = 1_000;

    /// A fan-out of this topic and work key; see [`FanoutKey`]. It needs a cadence or a cron expression.
    pub fn new(topic: impl Into<String>, work_key: impl Into<String>) -> Self {
        Self {
            topic: topic.into(),
            work_key: work_key.into(),
            every: Duration::ZERO,
            jitter: Duration::ZERO,
            cron: None,
            time_zone: "UTC".to_owned(),
            enabled: true,
        }
    }

    /// How long after the last completion of a shard its next slice is due, in whole seconds, up to 366 days. With a cron expression it
    /// is the least distance between two slices of a shard, and may be zero. Defaults to zero.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Spreads the slices: each is due up to this much later, in whole seconds, up to a day. The same for the same shard and window on
    /// every machine. Defaults to none.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = jitter;
        self
    }

    /// Plans at the times of this cron expression, all shards together, instead of each shard by its cadence.
    pub fn cron(mut self, cron: impl Into<String>) -> Self {
        self.cron = Some(cron.into());
        self
    }

    /// The zone of the cron expression. Defaults to UTC.
    pub fn time_zone(mut self, time_zone: impl Into<String>) -> Self {
        self.time_zone = time_zone.into();
        self
    }

    /// Whether anything is planned. Defaults to true.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// Checks every rule.
    pub fn prepare(self) -> Result<PreparedFanout> {
        let key = FanoutKey::new(self.topic, self.work_key)?;
        check_every(self.every)?;
        check_jitter(self.jitter)?;
        match &self.cron {
            Some(cron) => check_cron(cron, &self.time_zone)?,
            None if self.every.is_zero() => {
                return Err(Error::invalid(
                    DEFINE,
                    "every",
                    "must be above zero where there is no cron expression",
                ));
            }
            None => {
                check_cron("@daily", &self.time_zone)?;
            }
        }
        let Self { every, jitter, cron, time_zone, enabled, .. } = self;
        Ok(PreparedFanout { key, every, jitter, cron, time_zone, enabled })
    }
}

pub(super) fn check_every(every: Duration) -> Result<()> {
    check(every, "every", FanoutDefinition::EVERY_MAX, "366 days")
}

pub(super) fn check_jitter(jitter: Duration) -> Result<()> {
    check(jitter, "jitter", FanoutDefinition::JITTER_MAX, "a day")
}

fn check(span: Duration, field: &'static str, max: Duration, most: &str) -> Result<()> {
    if span > max || span.subsec_nanos() != 0 {
        return Err(Error::invalid(
            DEFINE,
            field,
            format_args!("must be whole seconds, at most {most}, got {span:?}"),
        ));
    }
    Ok(())
}

pub(super) fn check_cron(cron: &str, time_zone: &str) -> Result<()> {
    let (max, got) = (FanoutDefinition::CRON_MAX, cron.chars().count());
    if got > max {
        return Err(Error::invalid(DEFINE, "cron", format_args!("must be 1 to {max} characters, got {got}")));
    }
    Schedule::parse(cron, time_zone).map(drop)
}

/// A fan-out that keeps every rule. Providers take these, so none of them checks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedFanout {
    key: FanoutKey,
    every: Duration,
    jitter: Duration,
    cron: Option<String>,
    time_zone: String,
    enabled: bool,
}

impl PreparedFanout {
    /// What it is known by.
    pub fn key(&self) -> &FanoutKey {
        &self.key
    }
    /// The cadence, in whole seconds.
    pub fn every(&self) -> Duration {
        self.every
    }
    /// The widest jitter, in whole seconds.
    pub fn jitter(&self) -> Duration {
        self.jitter
    }
    /// The cron expression.
    pub fn cron(&self) -> Option<&str> {
        self.cron.as_deref()
    }
    /// Its zone.
    pub fn time_zone(&self) -> &str {
        &self.time_zone
    }
    /// Whether anything is planned.
    pub fn enabled(&self) -> bool {
        self.enabled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_names_its_field() {
        let fine = || FanoutDefinition::new("etl", "payments").every(Duration::from_secs(1));
        assert!(fine().prepare().is_ok());
        let field = |definition: FanoutDefinition| definition.prepare().unwrap_err().field().unwrap();
        assert_eq!(field(fine().every(Duration::from_millis(1_500))), "every");
        assert_eq!(field(fine().every(Duration::from_secs(367 * 24 * 3_600))), "every");
        assert_eq!(field(fine().every(Duration::ZERO)), "every");
        assert_eq!(field(fine().jitter(Duration::from_secs(24 * 3_600 + 1))), "jitter");
        assert_eq!(field(fine().cron("nonsense")), "cron");
        assert_eq!(field(fine().cron("@daily").time_zone("Nowhere")), "time_zone");
        assert_eq!(field(fine().time_zone("Nowhere")), "time_zone");
        assert!(fine().every(Duration::ZERO).cron("@daily").prepare().is_ok());
    }
}
