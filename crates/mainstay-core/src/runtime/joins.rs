//! Sets up what runs in the background for joins.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::join::{
    JOIN_WAIT, JoinGauges, JoinOptions, JoinRetention, JoinService, JoinSweep, Joins, WaitOptions,
    wait_handler,
};
use crate::queue::{Registry, TopicPolicy};

use super::builder::positive;
use super::{Service, SweepClock};

/// Sets up what runs in the background for joins: their deadlines, the topic `join.wait`, retention and gauges.
#[must_use = "return it from the closure"]
#[derive(Debug)]
pub struct JoinsBuilder {
    options: JoinOptions,
    wait: Option<WaitOptions>,
    retention: Option<JoinRetention>,
    gauge_interval: Option<Duration>,
}

impl Default for JoinsBuilder {
    fn default() -> Self {
        Self {
            options: JoinOptions::default(),
            wait: Some(WaitOptions::default()),
            retention: Some(JoinRetention::default()),
            gauge_interval: Some(Duration::from_secs(30)),
        }
    }
}

impl JoinsBuilder {
    /// Changes how deadlines are kept.
    pub fn options(mut self, change: impl FnOnce(&mut JoinOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// How messages of the topic `join.wait` wait; none leaves them to other processes. Defaults to those of [`WaitOptions`]. A process
    /// that handles no other topic of the outbox does not handle this one either.
    pub fn wait(mut self, options: Option<WaitOptions>) -> Self {
        self.wait = options;
        self
    }

    /// How long joins that have ended are kept; none keeps all. Defaults to 30 days.
    pub fn retention(mut self, retention: Option<JoinRetention>) -> Self {
        self.retention = retention;
        self
    }

    /// How often the gauges are published; none switches it off. Defaults to 30 s.
    pub fn gauges_every(mut self, interval: Option<Duration>) -> Self {
        self.gauge_interval = interval;
        self
    }

    /// Adds the handler of `join.wait` to those of the outbox.
    pub(super) fn register(&self, joins: &Joins, registry: &mut Registry) -> Result<()> {
        let Some(options) = self.wait.filter(|_| !registry.is_empty()) else { return Ok(()) };
        options.validate()?;
        registry.add(JOIN_WAIT, wait_handler(joins.clone(), options), TopicPolicy::default())
    }

    /// What all that takes to run.
    pub(super) fn services(
        self,
        joins: &Joins,
        clock: impl Fn(&'static str) -> SweepClock,
        call_limit: Duration,
    ) -> Result<Vec<Arc<dyn Service>>> {
        let mut services: Vec<Arc<dyn Service>> =
            vec![Arc::new(JoinService::new(joins.clone(), self.options)?.with_call_limit(call_limit))];
        if let Some(interval) = positive("joins' gauge interval", self.gauge_interval)? {
            services.push(Arc::new(JoinGauges::new(joins.clone(), interval)));
        }
        if let Some(retention) = self.retention {
            retention.validate()?;
            services.push(Arc::new(JoinSweep::new(joins.clone(), retention, clock("joins"))));
        }
        Ok(services)
    }
}
