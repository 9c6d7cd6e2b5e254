//! A change of a policy at run time.

use std::time::Duration;

use crate::error::{Error, Result};

use super::FanoutPolicy;
use super::definition::{check_cron, check_every, check_jitter};

/// A change of a policy at run time. What is not named stays as it is.
///
/// It holds until the program registers other values than before: registering the same ones again, as every start does, does not
/// undo it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a change does nothing until it is applied"]
pub struct FanoutChange {
    pub(super) every: Option<Duration>,
    pub(super) jitter: Option<Duration>,
    pub(super) cron: Option<Option<String>>,
    pub(super) time_zone: Option<String>,
    pub(super) enabled: Option<bool>,
}

impl FanoutChange {
    /// Another cadence.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }
    /// Another jitter.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = Some(jitter);
        self
    }
    /// Another cron expression, or none.
    pub fn cron(mut self, cron: Option<String>) -> Self {
        self.cron = Some(cron);
        self
    }
    /// Another zone.
    pub fn time_zone(mut self, time_zone: impl Into<String>) -> Self {
        self.time_zone = Some(time_zone.into());
        self
    }
    /// Plans, or stops planning.
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// Whether it names anything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The policy as it would be. Refuses one that breaks a rule.
    pub fn applied_to(&self, policy: &FanoutPolicy) -> Result<FanoutPolicy> {
        let mut changed = policy.clone();
        if let Some(every) = self.every {
            check_every(every)?;
            changed.every = every;
        }
        if let Some(jitter) = self.jitter {
            check_jitter(jitter)?;
            changed.jitter = jitter;
        }
        if let Some(cron) = &self.cron {
            changed.cron.clone_from(cron);
        }
        if let Some(time_zone) = &self.time_zone {
            changed.time_zone.clone_from(time_zone);
        }
        changed.enabled = self.enabled.unwrap_or(changed.enabled);
        // Only what the change names: a policy that was broken by hand can still be disabled.
        if self.cron.is_some() || self.time_zone.is_some() {
            check_cron(changed.cron.as_deref().unwrap_or("@daily"), &changed.time_zone)?;
        }
        if changed.cron.is_none() && changed.every.is_zero() {
            return Err(Error::invalid(
                "fanout.set",
                "every",
                "must be above zero where there is no cron expression",
            ));
        }
        Ok(changed)
    }
}
