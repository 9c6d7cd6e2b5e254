//! What a fan-out is known by.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::validate_nul;

/// What a fan-out is known by: a topic and a work key, such as `etl` and `payments`.
///
/// Its slices are messages of the topic `fanout:{topic}:{work key}`. So that no two fan-outs share one, a topic has no colon; a work
/// key may have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct FanoutKey {
    topic: String,
    work_key: String,
}

impl FanoutKey {
    /// The longest topic and work key, in characters.
    pub const NAME_MAX: usize = 100;
    /// The longest shard key, in characters.
    pub const SHARD_MAX: usize = 256;

    /// Both are 1 to 100 characters; the topic has no colon.
    pub fn new(topic: impl Into<String>, work_key: impl Into<String>) -> Result<Self> {
        const KEY: &str = "fanout.key";
        let (topic, work_key) = (topic.into(), work_key.into());
        bounded(KEY, "topic", &topic, Self::NAME_MAX)?;
        bounded(KEY, "work_key", &work_key, Self::NAME_MAX)?;
        if topic.contains(':') {
            return Err(Error::invalid(
                KEY,
                "topic",
                format_args!("must not contain a colon, got {topic:?}"),
            ));
        }
        Ok(Self { topic, work_key })
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The work key.
    pub fn work_key(&self) -> &str {
        &self.work_key
    }

    /// The topic of its slices in the outbox.
    pub fn message_topic(&self) -> String {
        format!("fanout:{}:{}", self.topic, self.work_key)
    }

    /// The lease whose holder coordinates it.
    pub fn lease_name(&self) -> String {
        self.message_topic()
    }

    /// Refuses a shard key that is empty or too long, or has a NUL character.
    pub fn validate_shard(operation: &'static str, shard_key: &str) -> Result<()> {
        bounded(operation, "shard_key", shard_key, Self::SHARD_MAX)
    }
}

fn bounded(operation: &'static str, field: &'static str, value: &str, max: usize) -> Result<()> {
    validate_nul(operation, field, value)?;
    let got = value.chars().count();
    if !(1..=max).contains(&got) {
        return Err(Error::invalid(
            operation,
            field,
            format_args!("must be 1 to {max} characters, got {got}"),
        ));
    }
    Ok(())
}

impl fmt::Display for FanoutKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic, self.work_key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::NAME_MAX;

    #[test]
    fn keys_are_bounded_and_their_topics_are_their_own() {
        let field =
            |topic: &str, work_key: &str| FanoutKey::new(topic, work_key).unwrap_err().field().unwrap();
        assert_eq!((field("", "w"), field("t", "")), ("topic", "work_key"));
        assert_eq!((field(&"t".repeat(101), "w"), field("t", &"w".repeat(101))), ("topic", "work_key"));
        assert_eq!((field("a:b", "c"), field("t\0", "w")), ("topic", "topic"));
        // The longest ones fit the outbox, counted in characters.
        let longest = FanoutKey::new("ü".repeat(100), "ü".repeat(100)).unwrap();
        assert!(longest.message_topic().chars().count() <= NAME_MAX);
        assert_eq!(FanoutKey::new("a", "b:c").unwrap().message_topic(), "fanout:a:b:c");
    }
}
