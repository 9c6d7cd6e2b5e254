//! The transactional outbox: messages enqueued in the application's own transaction, handled at least once.

mod client;
mod enqueued;
mod export;
mod filter;
mod message;
mod pause;
mod record;
mod retention;
mod stats;

pub use client::{EnqueueIn, EnqueueInBlocking, Outbox};
pub use enqueued::Enqueued;
pub use export::{ExportedMessage, MessageExport};
pub use filter::{MessageFilter, Page};
pub use message::{Headers, Limits, Message, OnFailure, PreparedMessage, Priority, RESERVED_HEADER, When};
pub use pause::PausedTopic;
pub use record::OutboxMessage;
pub use retention::Retention;
pub use stats::{OutboxStats, TopicStats};
