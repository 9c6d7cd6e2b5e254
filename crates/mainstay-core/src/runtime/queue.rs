//! What is done with the messages of a queue: handlers, policies, chores. The same for an outbox and an inbox.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::inbox::InboxRetention;
use crate::job::Jobs;
use crate::outbox::{Outbox, Retention};
use crate::queue::slots::Slots;
use crate::queue::{Context, Dispatcher, DispatcherOptions, Handler, HandlerOutput, Registry, TopicPolicy};

use super::builder::positive;
use super::{Gauges, Reaper, Service};

/// Sets up an outbox.
pub type OutboxBuilder = QueueBuilder<Retention>;

/// Sets up an inbox.
pub type InboxBuilder = QueueBuilder<InboxRetention>;

/// Sets up what is done with the messages of a queue: an outbox or an inbox, which differ in how long settled messages are kept.
#[must_use = "return it from the closure"]
pub struct QueueBuilder<R> {
    pub(super) registry: Registry,
    pub(super) options: DispatcherOptions,
    pub(super) retention: Option<R>,
    pub(super) reap_interval: Option<Duration>,
    pub(super) gauge_interval: Option<Duration>,
    pub(super) payload_limit: usize,
    pub(super) mistake: Option<Error>,
}

impl<R: Default> Default for QueueBuilder<R> {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            options: DispatcherOptions::default(),
            retention: Some(R::default()),
            reap_interval: Some(Duration::from_secs(60)),
            gauge_interval: Some(Duration::from_secs(30)),
            payload_limit: 64 << 20,
            mistake: None,
        }
    }
}

impl<R> QueueBuilder<R> {
    /// Handles a topic whose payloads are JSON of `T`, with the default policy.
    pub fn handler<T, F, Fut>(self, topic: impl Into<String>, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.handler_with(topic, TopicPolicy::default(), handler)
    }

    /// Handles a topic whose payloads are JSON of `T`, with its own policy.
    pub fn handler_with<T, F, Fut>(self, topic: impl Into<String>, policy: TopicPolicy, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.register(topic, Handler::typed(handler), policy)
    }

    /// Handles a topic with raw payloads, with the default policy.
    pub fn raw_handler<F, Fut>(self, topic: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.raw_handler_with(topic, TopicPolicy::default(), handler)
    }

    /// Handles a topic with raw payloads, with its own policy.
    pub fn raw_handler_with<F, Fut>(self, topic: impl Into<String>, policy: TopicPolicy, handler: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.register(topic, Handler::raw(handler), policy)
    }

    /// Handles all topics that begin so and have no handler of their own, with raw payloads. Of several the longest prefix has it.
    pub fn raw_prefix_handler_with<F, Fut>(
        mut self,
        prefix: impl Into<String>,
        policy: TopicPolicy,
        handler: F,
    ) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        let added = self.registry.add_prefix(prefix, Handler::raw(handler), policy);
        self.noting(added)
    }

    pub(super) fn register(
        mut self,
        topic: impl Into<String>,
        handler: Handler,
        policy: TopicPolicy,
    ) -> Self {
        let added = self.registry.add(topic, handler, policy);
        self.noting(added)
    }

    fn noting(mut self, added: Result<()>) -> Self {
        if let Err(error) = added {
            // The first mistake is the one to tell.
            self.mistake.get_or_insert(error);
        }
        self
    }

    /// Changes the dispatcher's options.
    pub fn options(mut self, change: impl FnOnce(&mut DispatcherOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Handlers at once, in this process. Defaults to 16.
    pub fn concurrency(self, handlers: usize) -> Self {
        self.options(|options| options.concurrency = handlers)
    }

    /// How long settled messages are kept; none keeps all. Defaults to 30 days for done ones, failed ones for ever.
    pub fn retention(mut self, retention: Option<R>) -> Self {
        self.retention = retention;
        self
    }

    /// How often lapsed leases are freed; none switches it off. Defaults to 60 s.
    pub fn reap_every(mut self, interval: Option<Duration>) -> Self {
        self.reap_interval = interval;
        self
    }

    /// How often the gauges are published; none switches it off. Defaults to 30 s.
    pub fn gauges_every(mut self, interval: Option<Duration>) -> Self {
        self.gauge_interval = interval;
        self
    }

    /// The largest payload in bytes. Defaults to 64 MiB.
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.payload_limit = bytes;
        self
    }
}

/// Where a queue's handlers get their messages from, and where what they make goes.
pub(super) struct Ends {
    /// What the dispatcher is called.
    pub(super) name: &'static str,
    pub(super) queue: Outbox,
    pub(super) outbox: Outbox,
    pub(super) jobs: Jobs,
    pub(super) slots: Slots,
}

/// What a queue takes to run.
pub(super) struct QueueServices {
    /// None without a handler.
    pub(super) dispatcher: Option<Arc<Dispatcher>>,
    pub(super) chores: Vec<Arc<dyn Service>>,
}

impl<R> QueueBuilder<R> {
    /// Checks everything and makes the services of a queue. `gauges` and `sweep` are its own.
    pub(super) fn services(
        self,
        ends: Ends,
        gauges: impl FnOnce(Gauges) -> Gauges,
        sweep: impl FnOnce(R) -> Result<Arc<dyn Service>>,
    ) -> Result<QueueServices> {
        if let Some(error) = self.mistake {
            return Err(error);
        }
        let Ends { name, queue, outbox, jobs, slots } = ends;
        let mut dispatcher = None;
        let mut services: Vec<Arc<dyn Service>> = Vec::new();
        if self.registry.is_empty() {
            self.options.validate()?;
        } else {
            let own = Dispatcher::new(queue.clone(), self.registry, self.options)?.named(name);
            dispatcher = Some(Arc::new(own.enqueueing_in(outbox).noting_runs_in(jobs).sharing(slots)));
        }
        if let Some(interval) = positive("reap interval", self.reap_interval)? {
            services.push(Arc::new(Reaper::new(queue.clone(), interval)));
        }
        if let Some(interval) = positive("gauge interval", self.gauge_interval)? {
            services.push(Arc::new(gauges(Gauges::new(queue, interval))));
        }
        if let Some(retention) = self.retention {
            services.push(sweep(retention)?);
        }
        Ok(QueueServices { dispatcher, chores: services })
    }
}
