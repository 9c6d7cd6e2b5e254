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

/// How many messages are read at a time: few while they are large.
#[derive(Debug, Clone, Copy)]
pub struct ExportPace(u32);

impl Default for ExportPace {
    fn default() -> Self {
        Self(32)
    }
}

impl ExportPace {
    const MOST: u32 = 1_000;
    const SMALL: usize = 1 << 20;
    const LARGE: usize = 8 << 20;

    /// How many to read next.
    pub fn rows(self) -> u32 {
        self.0
    }

    /// Learns from what was read.
    pub fn learn(&mut self, read: &[ExportedMessage]) {
        let bytes: usize = read.iter().filter_map(|one| one.message.payload.as_ref()).map(String::len).sum();
        self.0 = match bytes {
            _ if bytes > Self::LARGE => (self.0 / 4).max(1),
            _ if bytes < Self::SMALL => (self.0 * 2).min(Self::MOST),
            _ => self.0,
        };
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::id::{MessageId, WorkItemId};

    #[test]
    fn large_messages_are_read_few_at_a_time() {
        let of = |bytes: usize| {
            let (id, message_id) = (WorkItemId::new(), MessageId::new());
            let mut message = OutboxMessage::new(id, message_id, "t".to_owned(), Timestamp::UNIX_EPOCH);
            message.payload = Some("x".repeat(bytes));
            [ExportedMessage::new(1, message, false)]
        };
        let mut pace = ExportPace::default();
        pace.learn(&of(2 << 20));
        assert_eq!(pace.rows(), 32);
        for _ in 0..10 {
            pace.learn(&of(10));
        }
        assert_eq!(pace.rows(), ExportPace::MOST);
        for _ in 0..10 {
            pace.learn(&of(9 << 20));
        }
        assert_eq!(pace.rows(), 1);
    }
}
