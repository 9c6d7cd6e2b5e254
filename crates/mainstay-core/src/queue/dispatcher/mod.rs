//! The dispatcher: claims messages, runs their handlers, renews, settles.
//!
//! One task owns all state ([`engine`]); handlers and database calls run beside it. Nothing here
//! decides by a clock of this machine what only the database may decide: local deadlines are measured on the monotonic
//! clock from before a request was sent, so they end no later than the database's own.

mod admission;
mod delivery;
mod engine;
mod in_flight;
mod renewing;
mod settling;
mod source;
mod stopping;

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::outbox::Outbox;
use crate::runtime::{Lifecycle, Service};

use super::{DispatcherOptions, Registry};

/// Hands claimed messages to handlers. See [`Service`] for how it starts and stops.
#[derive(Debug)]
pub struct Dispatcher {
    outbox: Outbox,
    registry: Arc<Registry>,
    options: DispatcherOptions,
}

impl Dispatcher {
    /// A dispatcher of `outbox` to the handlers of `registry`.
    pub fn new(outbox: Outbox, registry: Registry, options: DispatcherOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { outbox, registry: Arc::new(registry), options })
    }
}

#[async_trait]
impl Service for Dispatcher {
    fn name(&self) -> &'static str {
        "dispatcher"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        // A new owner for every run: what an earlier run left behind is not ours to settle.
        let owner = OwnerToken::new();
        let engine = engine::Engine::new(
            self.outbox.clone(),
            Arc::clone(&self.registry),
            self.options,
            owner,
            lifecycle.stopping().clone(),
        );
        lifecycle.started();
        engine.run().await;
        Ok(())
    }
}
