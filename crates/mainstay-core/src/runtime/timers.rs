//! Sets up the firing of timers.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::outbox::Retention;
use crate::timer::{TimerOptions, TimerService, Timers};

use super::builder::positive;
use super::{Gauges, Reaper, RetentionSweep, Service, SweepClock};

/// Sets up the firing of timers.
#[must_use = "return it from the closure"]
#[derive(Debug)]
pub struct TimersBuilder {
    options: TimerOptions,
    retention: Option<Retention>,
    reap_interval: Option<Duration>,
    gauge_interval: Option<Duration>,
}

impl Default for TimersBuilder {
    fn default() -> Self {
        Self {
            options: TimerOptions::default(),
            retention: Some(Retention::default()),
            reap_interval: Some(Duration::from_secs(60)),
            gauge_interval: Some(Duration::from_secs(30)),
        }
    }
}

impl TimersBuilder {
    /// Changes how timers are fired.
    pub fn options(mut self, change: impl FnOnce(&mut TimerOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// How long timers that are over are kept; none keeps all. Defaults to 30 days for those that fired, failed and cancelled
    /// ones for ever.
    pub fn retention(mut self, retention: Option<Retention>) -> Self {
        self.retention = retention;
        self
    }

    /// How often lapsed leases of claimed timers are freed; none switches it off. Defaults to 60 s.
    pub fn reap_every(mut self, interval: Option<Duration>) -> Self {
        self.reap_interval = interval;
        self
    }

    /// How often the gauges are published; none switches it off. Defaults to 30 s.
    pub fn gauges_every(mut self, interval: Option<Duration>) -> Self {
        self.gauge_interval = interval;
        self
    }

    /// What all that takes to run.
    pub(super) fn services(
        self,
        timers: &Timers,
        clock: impl Fn(&'static str) -> SweepClock,
        call_limit: Duration,
    ) -> Result<Vec<Arc<dyn Service>>> {
        let mut services: Vec<Arc<dyn Service>> =
            vec![Arc::new(TimerService::new(timers.clone(), self.options)?.with_call_limit(call_limit))];
        if let Some(interval) = positive("timers' reap interval", self.reap_interval)? {
            services.push(Arc::new(Reaper::new(timers.queue().clone(), interval)));
        }
        if let Some(interval) = positive("timers' gauge interval", self.gauge_interval)? {
            services.push(Arc::new(Gauges::of_timers(timers, interval)));
        }
        if let Some(retention) = self.retention {
            retention.validate()?;
            services.push(Arc::new(RetentionSweep::new(timers.queue().clone(), retention, clock("timers"))));
        }
        Ok(services)
    }
}
