//! Puts a [`Mainstay`] together.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::job::{JobDefinition, Jobs};
use crate::lease::{LeaseGauges, LeaseOptions, Leases};
use crate::outbox::{Outbox, Retention};
use crate::queue::{Context, Dispatcher, DispatcherOptions, Handler, HandlerOutput, Registry, TopicPolicy};
use crate::store::Provider;
use crate::timer::Timers;

use super::jobs::JobsBuilder;
use super::mainstay::{Inner, Mainstay};
use super::{Gauges, Reaper, RetentionSweep, Service, TimersBuilder};

/// Puts a [`Mainstay`] together. Mistakes are collected and told by [`MainstayBuilder::build`].
#[must_use = "nothing happens until it is built"]
pub struct MainstayBuilder {
    provider: Arc<dyn Provider>,
    outbox: OutboxBuilder,
    leases: LeaseOptions,
    timers: Option<TimersBuilder>,
    jobs: JobsBuilder,
    deploy_schema: bool,
}

impl MainstayBuilder {
    pub(super) fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            outbox: OutboxBuilder::default(),
            leases: LeaseOptions::default(),
            timers: None,
            jobs: JobsBuilder::default(),
            deploy_schema: false,
        }
    }

    /// Sets up the outbox: handlers, policies, options.
    pub fn outbox(mut self, set_up: impl FnOnce(OutboxBuilder) -> OutboxBuilder) -> Self {
        self.outbox = set_up(self.outbox);
        self
    }

    /// How leases are acquired and kept, unless told otherwise. Defaults to those of [`LeaseOptions`].
    pub fn leases(mut self, options: LeaseOptions) -> Self {
        self.leases = options;
        self
    }

    /// Fires timers in this process. Without it timers can be scheduled, but it takes another process to fire them.
    pub fn timers(mut self, set_up: impl FnOnce(TimersBuilder) -> TimersBuilder) -> Self {
        self.timers = Some(set_up(self.timers.unwrap_or_default()));
        self
    }

    /// Registers a job at the start, or changes the one of this name, and makes this process a scheduler. Its runs are messages
    /// of the topic, which is the job's name unless told otherwise.
    pub fn job(
        mut self,
        name: impl Into<String>,
        cron: impl Into<String>,
        set_up: impl FnOnce(JobDefinition) -> JobDefinition,
    ) -> Self {
        let name = name.into();
        self.jobs = self.jobs.define(set_up(JobDefinition::new(name.clone(), name, cron)));
        self
    }

    /// Makes this process a scheduler, also of jobs that others have registered, and sets it up.
    pub fn jobs(mut self, set_up: impl FnOnce(JobsBuilder) -> JobsBuilder) -> Self {
        self.jobs = set_up(self.jobs.wanted());
        self
    }

    /// Brings the schema up to date at the start. Defaults to off: then a missing or old schema is an error.
    pub fn deploy_schema(mut self, deploy: bool) -> Self {
        self.deploy_schema = deploy;
        self
    }

    /// Checks everything and puts it together. Nothing runs yet.
    pub fn build(self) -> Result<Mainstay> {
        let outbox = self.outbox;
        if let Some(error) = outbox.mistake {
            return Err(error);
        }
        let client = Outbox::new(self.provider.outbox()).with_payload_limit(outbox.payload_limit);
        self.leases.validate()?;
        let leases = Leases::new(self.provider.leases()).with_options(self.leases);
        let jobs = Jobs::new(self.provider.jobs()).with_payload_limit(outbox.payload_limit);
        let mut services: Vec<Arc<dyn Service>> = Vec::new();
        if outbox.registry.is_empty() {
            outbox.options.validate()?;
        } else {
            let dispatcher = Dispatcher::new(client.clone(), outbox.registry, outbox.options)?;
            services.push(Arc::new(dispatcher.noting_runs_in(jobs.clone())));
        }
        let definitions = self.jobs.build(&jobs, &mut services)?;
        if let Some(interval) = positive("reap interval", outbox.reap_interval)? {
            services.push(Arc::new(Reaper::new(client.clone(), interval)));
        }
        if let Some(interval) = positive("gauge interval", outbox.gauge_interval)? {
            services.push(Arc::new(Gauges::new(client.clone(), interval)));
            services.push(Arc::new(LeaseGauges::new(leases.clone(), interval)));
        }
        if let Some(retention) = outbox.retention {
            retention.validate()?;
            services.push(Arc::new(RetentionSweep::new(client.clone(), retention)));
        }
        let timers = Timers::new(self.provider.as_ref()).with_payload_limit(outbox.payload_limit);
        if let Some(builder) = self.timers {
            services.extend(builder.services(&timers)?);
        }
        Ok(Mainstay::new(Inner {
            provider: self.provider,
            outbox: client,
            leases,
            timers,
            jobs,
            definitions,
            services,
            deploy_schema: self.deploy_schema,
        }))
    }
}

/// Refuses an interval of zero.
pub(super) fn positive(field: &'static str, interval: Option<Duration>) -> Result<Option<Duration>> {
    match interval {
        Some(interval) if interval.is_zero() => {
            Err(Error::invalid("mainstay.build", field, "must be above zero; none switches it off"))
        }
        other => Ok(other),
    }
}

/// Sets up an outbox.
#[must_use = "return it from the closure"]
pub struct OutboxBuilder {
    registry: Registry,
    options: DispatcherOptions,
    retention: Option<Retention>,
    reap_interval: Option<Duration>,
    gauge_interval: Option<Duration>,
    payload_limit: usize,
    mistake: Option<Error>,
}

impl Default for OutboxBuilder {
    fn default() -> Self {
        Self {
            registry: Registry::default(),
            options: DispatcherOptions::default(),
            retention: Some(Retention::default()),
            reap_interval: Some(Duration::from_secs(60)),
            gauge_interval: Some(Duration::from_secs(30)),
            payload_limit: 64 << 20,
            mistake: None,
        }
    }
}

impl OutboxBuilder {
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

    fn register(mut self, topic: impl Into<String>, handler: Handler, policy: TopicPolicy) -> Self {
        if let Err(error) = self.registry.add(topic, handler, policy) {
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
    pub fn retention(mut self, retention: Option<Retention>) -> Self {
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
