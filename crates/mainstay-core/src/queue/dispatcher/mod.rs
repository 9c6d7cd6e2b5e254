//! The dispatcher: claims messages, runs their handlers, renews, settles.
//!
//! One task owns all state ([`engine`]); handlers and database calls run beside it. Nothing here
//! decides by a clock of this machine what only the database may decide: local deadlines are measured on the monotonic
//! clock from before a request was sent, so they end no later than the database's own.

mod admission;
mod delivery;
mod ended_runs;
mod engine;
mod in_flight;
mod renewing;
mod seen;
mod settling;
#[cfg(test)]
mod silence;
mod source;
mod stopping;

use std::sync::Arc;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::job::Jobs;
use crate::outbox::Outbox;
use crate::runtime::{Lifecycle, Service};

use self::seen::Seen;
use super::context::Ends;
use super::slots::Slots;
use super::{DispatcherOptions, Registry};

/// Hands claimed messages to handlers. See [`Service`] for how it starts and stops.
#[derive(Debug)]
pub struct Dispatcher {
    name: &'static str,
    queue: Outbox,
    outbox: Outbox,
    jobs: Option<Jobs>,
    registry: Arc<Registry>,
    options: DispatcherOptions,
    slots: Slots,
    seen: Seen,
}

impl Dispatcher {
    /// A dispatcher of `queue` to the handlers of `registry`.
    pub fn new(queue: Outbox, registry: Registry, options: DispatcherOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self {
            name: "dispatcher",
            outbox: queue.clone(),
            queue,
            jobs: None,
            registry: Arc::new(registry),
            options,
            slots: Slots::default(),
            seen: Seen::default(),
        })
    }

    /// Calls it something else, where there are several.
    pub(crate) fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Where the handlers' own messages go. Defaults to the queue itself, which is right for an outbox.
    #[must_use]
    pub fn enqueueing_in(mut self, outbox: Outbox) -> Self {
        self.outbox = outbox;
        self
    }

    /// Shares how many handlers run at once with others.
    pub(crate) fn sharing(mut self, slots: Slots) -> Self {
        self.slots = slots;
        self
    }

    /// Claims one batch of what is due, and handles and settles it: returns how many messages that were. A stop gives back what no handler
    /// has begun with; running handlers then get their grace period.
    pub async fn run_batch(&self, stop: &CancellationToken) -> Result<usize> {
        self.engine((stop.clone(), stop.clone())).run_batch().await
    }

    fn engine(&self, stop: (CancellationToken, CancellationToken)) -> engine::Engine {
        // A new owner for every run: what an earlier run left behind is not ours to settle.
        let owner = OwnerToken::new();
        let ends = Ends { queue: self.queue.clone(), outbox: self.outbox.clone(), jobs: self.jobs.clone() };
        let (registry, shared) = (Arc::clone(&self.registry), (self.slots.clone(), self.seen.clone()));
        engine::Engine::new(ends, registry, self.options, owner, shared, stop)
    }

    /// Where the starts, the outputs and the ends of jobs' runs are noted. Defaults to nowhere.
    #[must_use]
    pub fn noting_runs_in(mut self, jobs: Jobs) -> Self {
        self.jobs = Some(jobs);
        self
    }
}

#[async_trait]
impl Service for Dispatcher {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let engine = self.engine((lifecycle.stopping().clone(), lifecycle.hurrying().clone()));
        lifecycle.started();
        engine.run().await;
        Ok(())
    }
}
