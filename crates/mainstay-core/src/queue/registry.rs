//! Which handler takes which topic.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::hash::Map;
use crate::text::validate_name;

use super::{DispatcherOptions, Handler, TopicPolicy};

const HANDLER: &str = "dispatcher.handler";

/// Handlers by topic. Topics are matched exactly, with case (OBX-010, OBX-054); what has no handler of its own may have one by how it begins.
#[derive(Debug, Default)]
pub struct Registry {
    topics: Map<String, Arc<Registered>>,
    /// The longest first, so that the first that fits is the one.
    prefixes: Vec<(String, Arc<Registered>)>,
}

/// A handler and how its topic is handled.
#[derive(Debug, Clone)]
pub struct Registered {
    /// What shares the bound on its handlers: the topic, shared by all that is said of its messages, or what stands for a prefix.
    pub(crate) lane: Arc<str>,
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
        let topic = topic.into();
        validate_name(HANDLER, "topic", &topic)?;
        policy.validate()?;
        if self.topics.contains_key(&topic) {
            return Err(Error::invalid(HANDLER, "topic", format_args!("{topic:?} has a handler already")));
        }
        let registered = Registered { lane: topic.as_str().into(), handler, policy };
        self.topics.insert(topic, Arc::new(registered));
        Ok(())
    }

    /// Adds a handler of all topics that begin so, with case, and have none of their own. Of several the longest prefix has it; the empty one
    /// has what is left. They share the policy's bound on concurrency.
    pub fn add_prefix(
        &mut self,
        prefix: impl Into<String>,
        handler: Handler,
        policy: TopicPolicy,
    ) -> Result<()> {
        let prefix = prefix.into();
        if !prefix.is_empty() {
            validate_name(HANDLER, "prefix", &prefix)?;
        }
        policy.validate()?;
        if self.prefixes.iter().any(|(other, _)| *other == prefix) {
            return Err(Error::invalid(HANDLER, "prefix", format_args!("{prefix:?} has a handler already")));
        }
        // No topic has a NUL, so none can be taken for it.
        let registered = Registered { lane: format!("{prefix}\0").into(), handler, policy };
        let at = self.prefixes.partition_point(|(other, _)| other.len() > prefix.len());
        self.prefixes.insert(at, (prefix, Arc::new(registered)));
        Ok(())
    }

    /// The handler of a topic.
    pub fn get(&self, topic: &str) -> Option<&Registered> {
        self.share(topic).map(|registered| &**registered)
    }

    /// The same, to be kept with a message.
    pub(crate) fn share(&self, topic: &str) -> Option<&Arc<Registered>> {
        self.topics.get(topic).or_else(|| {
            let fits = |(prefix, _): &&(String, Arc<Registered>)| topic.starts_with(prefix.as_str());
            self.prefixes.iter().find(fits).map(|(_, registered)| registered)
        })
    }

    /// Whether there is no handler at all.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty() && self.prefixes.is_empty()
    }

    /// The topics that have a handler of their own.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
    }

    /// Whether a topic has a handler of its own.
    pub fn has_topic(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// Whether some have a handler by how they begin.
    pub fn has_prefixes(&self) -> bool {
        !self.prefixes.is_empty()
    }

    /// Topics that have a handler of their own and bound its concurrency.
    pub(crate) fn bounded(&self) -> impl Iterator<Item = (&str, &Registered)> {
        let topics = self.topics.iter().map(|(topic, registered)| (topic.as_str(), &**registered));
        topics.filter(|(_, registered)| registered.policy.concurrency.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_of_its_own_goes_before_the_longest_prefix() {
        let mut registry = Registry::default();
        let handler = || Handler::raw(|_| async {});
        let policy = |attempts| TopicPolicy::default().attempts(attempts);
        registry.add("order.paid", handler(), policy(1)).unwrap();
        registry.add_prefix("order.", handler(), policy(2)).unwrap();
        registry.add_prefix("order.refund.", handler(), policy(3)).unwrap();
        let attempts = |registry: &Registry, topic: &str| registry.get(topic)?.policy.attempts;
        for (topic, wanted) in [
            ("order.paid", Some(1)),
            ("order.paid.twice", Some(2)),
            ("order.", Some(2)),
            ("order.refund.all", Some(3)),
            ("order", None),
            ("Order.x", None),
        ] {
            assert_eq!(attempts(&registry, topic), wanted, "{topic}");
        }
        assert!(registry.add_prefix("order.", handler(), policy(1)).is_err(), "a prefix has one handler");
        registry.add_prefix("", handler(), policy(4)).unwrap();
        assert_eq!(attempts(&registry, "Order.x"), Some(4));
        assert_eq!(attempts(&registry, "order.x"), Some(2));
    }
}
