//! Messages as they are carried to another database: all of them, in the order in which they were enqueued.

use async_trait::async_trait;
use serde::Serialize;

use crate::error::Result;

use super::OutboxMessage;

/// A message with what it takes to enqueue it again.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ExportedMessage {
    /// Its place: they were enqueued in this order, which is that of the messages of an ordering key.
    pub seq: i64,
    /// The message.
    #[serde(flatten)]
    pub message: OutboxMessage,
    /// Whether its ordering key is held if it fails.
    pub hold_on_failure: bool,
}

impl ExportedMessage {
    /// A message at its place.
    pub fn new(seq: i64, message: OutboxMessage, hold_on_failure: bool) -> Self {
        Self { seq, message, hold_on_failure }
    }
}

/// Reads messages, some at a time, however many there are. What is enqueued after it began may be among them.
#[async_trait]
pub trait MessageExport: Send {
    /// The next ones; none at the end.
    async fn next(&mut self) -> Result<Vec<ExportedMessage>>;
}
