//! What an enqueue gives back.

use crate::id::{MessageId, WorkItemId};

/// The identity of an enqueued message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Enqueued {
    /// The row in the queue.
    pub work_item: WorkItemId,
    /// The message, the same over all retries.
    pub message: MessageId,
    /// False when a message with the same idempotency key was there already; the ids are then that message's.
    pub added: bool,
}
