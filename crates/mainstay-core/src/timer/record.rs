//! A timer as it stands in the database.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::id::{MessageId, WorkItemId};
use crate::outbox::OutboxMessage;
use crate::queue::{FailureReason, Status};

use super::new::take_ordering_key;

/// One timer, waiting or over: the engine's record, as seen by somebody who thinks of timers.
///
/// Ready, it waits for its due time; Done, it has fired; Failed, it never will, and the reason says why. InProgress are only
/// those that somebody has claimed instead of letting them fire.
#[derive(Clone, Serialize)]
#[serde(transparent)]
pub struct Timer(OutboxMessage);

impl From<OutboxMessage> for Timer {
    fn from(mut record: OutboxMessage) -> Self {
        if let Some(key) = take_ordering_key(&mut record.headers) {
            record.ordering_key = Some(key);
        }
        Self(record)
    }
}

impl Timer {
    /// Its id, which is also that of the message's row in the outbox.
    pub fn id(&self) -> WorkItemId {
        self.0.id
    }
    /// The id of the message it becomes.
    pub fn message_id(&self) -> MessageId {
        self.0.message_id
    }
    /// The topic.
    pub fn topic(&self) -> &str {
        &self.0.topic
    }
    /// The payload; none once it has fired, if the provider does not keep the payloads of what is done.
    pub fn payload(&self) -> Option<&str> {
        self.0.payload.as_deref()
    }
    /// Where it came from.
    pub fn correlation_id(&self) -> Option<&str> {
        self.0.correlation_id.as_deref()
    }
    /// When it is due, or was: the moment it was last scheduled for.
    pub fn due_at(&self) -> Timestamp {
        self.0.due_at.unwrap_or(self.0.next_attempt_at)
    }
    /// Where it stands.
    pub fn status(&self) -> Status {
        self.0.status
    }
    /// Why it never fires, if it is Failed.
    pub fn reason(&self) -> Option<FailureReason> {
        self.0.reason
    }
    /// Whether it still waits for its due time.
    pub fn is_pending(&self) -> bool {
        self.0.status == Status::Ready
    }
    /// Whether it has become a message, or was acked by somebody who claimed it.
    pub fn has_fired(&self) -> bool {
        self.0.status == Status::Done
    }
    /// Whether somebody cancelled it.
    pub fn is_cancelled(&self) -> bool {
        self.0.reason == Some(FailureReason::Cancelled)
    }
    /// When it was scheduled first, by the database's clock.
    pub fn created_at(&self) -> Timestamp {
        self.0.created_at
    }
    /// When it fired, or was cancelled, or failed.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.0.processed_at
    }
    /// The ordering key of its message.
    pub fn ordering_key(&self) -> Option<&str> {
        self.0.ordering_key.as_deref()
    }
    /// Its idempotency key.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.0.idempotency_key.as_deref()
    }
    /// All that is known of it.
    pub fn record(&self) -> &OutboxMessage {
        &self.0
    }
}

/// No payload and no header: neither belongs in a log (R27).
impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let due_at = self.due_at();
        f.debug_struct("Timer").field("due_at", &due_at).field("record", &self.0).finish()
    }
}
