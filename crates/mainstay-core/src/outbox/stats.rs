//! Counts of an outbox.

use std::time::Duration;

use serde::{Serialize, Serializer};

/// How many messages stand where.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct OutboxStats {
    /// Ready and due.
    pub ready: u64,
    /// Ready, but not due yet.
    pub scheduled: u64,
    /// Held by a worker.
    pub in_progress: u64,
    /// Held, but the lease has lapsed: the next claim takes them.
    pub lapsed: u64,
    /// Handled (as far as retention has kept them).
    pub done: u64,
    /// Failed for good.
    pub failed: u64,
    /// Ordering keys held by a failed message.
    pub held_keys: u64,
    /// How long the oldest due message has been waiting.
    pub oldest_ready: Option<Duration>,
    /// The same by topic, sorted by name.
    pub topics: Vec<TopicStats>,
}

impl OutboxStats {
    /// The same without the counts by topic.
    #[must_use]
    pub fn without_topics(mut self) -> Self {
        self.topics = Vec::new();
        self
    }

    /// Messages that are neither done nor failed.
    pub fn open(&self) -> u64 {
        self.ready + self.scheduled + self.in_progress
    }
}

/// How many messages of one topic stand where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopicStats {
    /// The topic.
    pub topic: String,
    /// Ready and due.
    pub ready: u64,
    /// Ready, but not due yet.
    pub scheduled: u64,
    /// Held by a worker.
    pub in_progress: u64,
    /// Failed for good.
    pub failed: u64,
    /// How long the oldest due message of it has been waiting; in seconds where it is serialised.
    #[serde(rename = "oldest_ready_seconds", serialize_with = "in_seconds")]
    pub oldest_ready: Option<Duration>,
}

fn in_seconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration.map(|duration| duration.as_secs_f64()).serialize(serializer)
}
