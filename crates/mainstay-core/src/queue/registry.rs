//! Which handler takes which topic.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hash::Map;
use crate::text::validate_name;

use super::{DispatcherOptions, Handler, TopicPolicy};

/// Handlers by topic. Topics are matched exactly, with case (OBX-010, OBX-054).
#[derive(Debug, Default)]
pub struct Registry {
    topics: Map<String, Arc<Registered>>,
}

/// A handler and how its topic is handled.
#[derive(Debug, Clone)]
pub struct Registered {
    /// The topic, shared by all that is said of its messages.
    pub(crate) topic: Arc<str>,
    /// The handler.
    pub handler: Handler,
    /// How its topic is handled.
    pub policy: TopicPolicy,
}

impl Registered {
    /// Deliveries a message may have.
    pub(crate) fn attempts(&self, options: &DispatcherOptions) -> u32 {
        self.policy.attempts.unwrap_or(options.delivery_limit)
    }
}

impl Registry {
    /// Adds a handler. A topic has one.
    pub fn add(&mut self, topic: impl Into<String>, handler: Handler, policy: TopicPolicy) -> Result<()> {
        const HANDLER: &str = "dispatcher.handler";
        let topic = topic.into();
        validate_name(HANDLER, "topic", &topic)?;
        policy.validate()?;
        if self.topics.contains_key(&topic) {
            return Err(Error::invalid(HANDLER, "topic", format_args!("{topic:?} has a handler already")));
        }
        let registered = Registered { topic: topic.as_str().into(), handler, policy };
        self.topics.insert(topic, Arc::new(registered));
        Ok(())
    }

    /// The handler of a topic.
    pub fn get(&self, topic: &str) -> Option<&Registered> {
        self.share(topic).map(|registered| &**registered)
    }

    /// The same, to be kept with a message.
    pub(crate) fn share(&self, topic: &str) -> Option<&Arc<Registered>> {
        self.topics.get(topic)
    }

    /// Whether there is no handler at all.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    /// Topics that bound their own concurrency.
    pub(crate) fn bounded(&self) -> impl Iterator<Item = &Registered> {
        self.topics.values().map(|registered| &**registered).filter(|it| it.policy.concurrency.is_some())
    }
}
