//! Sets up fan-outs: what is registered at the start, who coordinates, and what handles their slices.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::fanout::{
    Fanout, FanoutDefinition, FanoutKey, FanoutOptions, FanoutService, KnownShards, Planner, RunContinuation,
    Slice, slice_handler,
};
use crate::outbox::Message;
use crate::queue::{Context, Handler, HandlerOutput, TopicPolicy};

use super::OutboxBuilder;

type MakeHandler = Box<dyn FnOnce(Fanout) -> Handler + Send + Sync>;

/// Sets up the fan-outs of a topic.
#[must_use = "return it from the closure"]
pub struct FanoutBuilder {
    topic: String,
    works: Vec<FanoutWorkBuilder>,
    planner: Option<Arc<dyn Planner>>,
    options: FanoutOptions,
    coordinate: bool,
}

impl FanoutBuilder {
    pub(super) fn new(topic: String) -> Self {
        Self { topic, works: Vec::new(), planner: None, options: FanoutOptions::default(), coordinate: true }
    }

    /// Sets up the fan-out of a work key, and registers it at the start.
    pub fn work_key(
        mut self,
        work_key: impl Into<String>,
        set_up: impl FnOnce(FanoutWorkBuilder) -> FanoutWorkBuilder,
    ) -> Self {
        self.works.push(set_up(FanoutWorkBuilder::new(self.topic.clone(), work_key.into())));
        self
    }

    /// Says which shards there are, for all work keys without a planner of their own. Defaults to [`KnownShards`].
    pub fn planner(mut self, planner: impl Planner) -> Self {
        self.planner = Some(Arc::new(planner));
        self
    }

    /// Whether this process makes slices. Defaults to true; with false it only registers and handles them, and another process has to be
    /// the coordinator.
    pub fn coordinate(mut self, coordinate: bool) -> Self {
        self.coordinate = coordinate;
        self
    }

    /// Changes the coordinators' options.
    pub fn options(mut self, change: impl FnOnce(&mut FanoutOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Checks everything, adds handlers and services, and gives what is to be registered.
    pub(super) fn build(
        self,
        fanout: &Fanout,
        mut outbox: OutboxBuilder,
        coordinators: &mut Vec<Arc<FanoutService>>,
    ) -> Result<(OutboxBuilder, Vec<Registration>)> {
        self.options.validate()?;
        let mut registrations = Vec::new();
        for work in self.works {
            let key = work.definition.clone().prepare()?.key().clone();
            work.shards.iter().try_for_each(|shard| FanoutKey::validate_shard("mainstay.build", shard))?;
            if let Some((make, policy)) = work.handler {
                outbox = outbox.register(key.message_topic(), make(fanout.clone()), policy);
            }
            if self.coordinate {
                let known = || Arc::new(KnownShards::new(Arc::clone(fanout.store()))) as Arc<dyn Planner>;
                let planner = work.planner.or_else(|| self.planner.clone()).unwrap_or_else(known);
                let service = FanoutService::new(fanout.clone(), key.clone(), planner, self.options)?;
                coordinators.push(Arc::new(service.with_continuation(work.continuation)?));
            }
            registrations.push(Registration { definition: work.definition, key, shards: work.shards });
        }
        Ok((outbox, registrations))
    }
}

/// What is to be registered at the start.
pub(super) struct Registration {
    definition: FanoutDefinition,
    key: FanoutKey,
    shards: Vec<String>,
}

impl Registration {
    pub(super) async fn make(&self, fanout: &Fanout) -> Result<()> {
        fanout.register(self.definition.clone()).await?;
        fanout.add_shards(self.key.topic(), self.key.work_key(), self.shards.iter().cloned()).await?;
        Ok(())
    }
}

/// Sets up the fan-out of one work key.
#[must_use = "return it from the closure"]
pub struct FanoutWorkBuilder {
    definition: FanoutDefinition,
    planner: Option<Arc<dyn Planner>>,
    shards: Vec<String>,
    handler: Option<(MakeHandler, TopicPolicy)>,
    continuation: RunContinuation,
}

impl FanoutWorkBuilder {
    fn new(topic: String, work_key: String) -> Self {
        let definition = FanoutDefinition::new(topic, work_key);
        let continuation = RunContinuation::default();
        Self { definition, planner: None, shards: Vec::new(), handler: None, continuation }
    }

    fn define(mut self, change: impl FnOnce(FanoutDefinition) -> FanoutDefinition) -> Self {
        self.definition = change(self.definition);
        self
    }

    /// The cadence; see [`FanoutDefinition::every`].
    pub fn every(self, every: Duration) -> Self {
        self.define(|definition| definition.every(every))
    }

    /// Spreads the slices; see [`FanoutDefinition::jitter`].
    pub fn jitter(self, jitter: Duration) -> Self {
        self.define(|definition| definition.jitter(jitter))
    }

    /// Plans at the times of this cron expression; see [`FanoutDefinition::cron`].
    pub fn cron(self, cron: impl Into<String>) -> Self {
        self.define(|definition| definition.cron(cron))
    }

    /// The zone of the cron expression. Defaults to UTC.
    pub fn time_zone(self, time_zone: impl Into<String>) -> Self {
        self.define(|definition| definition.time_zone(time_zone))
    }

    /// Whether anything is planned. Defaults to true.
    pub fn enabled(self, enabled: bool) -> Self {
        self.define(|definition| definition.enabled(enabled))
    }

    /// Says which shards there are. Defaults to the topic's planner.
    pub fn planner(mut self, planner: impl Planner) -> Self {
        self.planner = Some(Arc::new(planner));
        self
    }

    /// Makes shards known at the start, for [`KnownShards`].
    pub fn shards<S: Into<String>>(mut self, shards: impl IntoIterator<Item = S>) -> Self {
        self.shards.extend(shards.into_iter().map(Into::into));
        self
    }

    /// Enqueues this when all slices of a run are done. Each run sends it anew; see [`RunContinuation`].
    pub fn then(mut self, message: Message) -> Self {
        self.continuation = self.continuation.then(message);
        self
    }

    /// Enqueues this when all slices of a run have ended and some have failed.
    pub fn or_else(mut self, message: Message) -> Self {
        self.continuation = self.continuation.or_else(message);
        self
    }

    /// Handles its slices, with the default policy. See [`Slice`] for what a success means.
    pub fn handler<F, Fut>(self, handler: F) -> Self
    where
        F: Fn(Slice, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.handler_with(TopicPolicy::default(), handler)
    }

    /// Handles its slices, with a policy of its own.
    pub fn handler_with<F, Fut>(mut self, policy: TopicPolicy, handler: F) -> Self
    where
        F: Fn(Slice, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        self.handler = Some((Box::new(move |fanout| slice_handler(fanout, handler)), policy));
        self
    }
}
