//! Fires timers: makes messages of those that are due, and sleeps until the next one is.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::renewing::{TURN_LIMIT, attempt};
use crate::runtime::{Lifecycle, Service, Turn, Waited, Watch};
use crate::store::OutboxStore;
use crate::telemetry;

use super::{TimerOptions, Timers};

/// Fires timers. Any number of them may run, in any number of processes: each timer fires once.
#[derive(Debug)]
pub struct TimerService {
    timers: Timers,
    options: TimerOptions,
    call_limit: Duration,
}

impl TimerService {
    pub(crate) const NAME: &'static str = "timers";

    /// Fires `timers`.
    pub fn new(timers: Timers, options: TimerOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { timers, options, call_limit: TURN_LIMIT })
    }

    /// Gives each call up after so long. Defaults to 60 s.
    #[must_use]
    pub(crate) fn with_call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }
}

#[async_trait]
impl Service for TimerService {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store: &Arc<dyn OutboxStore> = self.timers.queue().store();
        let batch = self.options.batch;
        let watch = Watch {
            waited: Waited::Items(store.as_ref()),
            service: self.name(),
            operation: "forward",
            poll: (self.options.poll_min, self.options.poll_max),
            call_limit: self.call_limit,
        };
        let fire = |owner| async move {
            let fired = attempt("timer.forward", self.call_limit, store.forward(owner, batch)).await?;
            telemetry::fired(store.identifier(), &fired);
            Ok(match fired.len() {
                0 => Turn::Nothing,
                count if count < batch as usize => Turn::Done,
                _ => Turn::More,
            })
        };
        watch.run(&lifecycle, fire).await
    }
}
