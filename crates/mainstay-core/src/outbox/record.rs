//! A message as it stands in the database.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::id::{MessageId, OwnerToken, WorkItemId};
use crate::queue::{FailureReason, Status};

use super::Headers;

/// One message, open or settled, as it stands in the database.
#[derive(Clone, Serialize)]
#[non_exhaustive]
pub struct OutboxMessage {
    /// The row's id.
    pub id: WorkItemId,
    /// The message's id.
    pub message_id: MessageId,
    /// The topic.
    pub topic: String,
    /// The payload; none once it is settled, if the outbox does not keep the payloads of done messages.
    pub payload: Option<String>,
    /// Where it came from.
    pub correlation_id: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// Why it failed, if it did.
    pub reason: Option<FailureReason>,
    /// Deliveries so far that count.
    pub attempts: u32,
    /// When it was enqueued, by the database's clock.
    pub created_at: Timestamp,
    /// The due time it was enqueued with, if any.
    pub due_at: Option<Timestamp>,
    /// Not handed out before this.
    pub next_attempt_at: Timestamp,
    /// Not handed out from this on.
    pub expires_at: Option<Timestamp>,
    /// Who holds it, while it is in progress.
    pub owner: Option<OwnerToken>,
    /// Until when it is held.
    pub locked_until: Option<Timestamp>,
    /// Which claim was the last, or 0; part of every claim's handle. It grows with every claim and never repeats for an id.
    pub generation: i64,
    /// When it was settled.
    pub processed_at: Option<Timestamp>,
    /// Who settled it.
    pub processed_by: Option<OwnerToken>,
    /// The last error.
    pub last_error: Option<String>,
    /// -9 to 9.
    pub priority: i16,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// Its headers.
    pub headers: Headers,
}

impl OutboxMessage {
    /// A record with the given identity and everything else at its start; providers fill in the rest.
    pub fn new(id: WorkItemId, message_id: MessageId, topic: String, created_at: Timestamp) -> Self {
        Self {
            id,
            message_id,
            topic,
            payload: None,
            correlation_id: None,
            status: Status::Ready,
            reason: None,
            attempts: 0,
            created_at,
            due_at: None,
            next_attempt_at: created_at,
            expires_at: None,
            owner: None,
            locked_until: None,
            generation: 0,
            processed_at: None,
            processed_by: None,
            last_error: None,
            priority: 0,
            ordering_key: None,
            idempotency_key: None,
            headers: Headers::new(),
        }
    }

    /// Whether it was handled successfully.
    pub fn is_processed(&self) -> bool {
        self.status == Status::Done
    }

    /// How often it was claimed. [`Self::attempts`] counts only claims that were deliveries.
    pub fn claims(&self) -> i64 {
        // Providers count generations from a number of the row's own, with as many bits behind it.
        self.generation & 0xffff
    }

    /// Deliveries that failed: all that count, but the one under way or the one that succeeded.
    pub fn retry_count(&self) -> u32 {
        let ended_by_a_delivery = matches!(self.reason, None | Some(FailureReason::Handler));
        match self.status {
            Status::Ready => self.attempts,
            Status::Failed if !ended_by_a_delivery => self.attempts,
            Status::InProgress | Status::Done | Status::Failed => self.attempts.saturating_sub(1),
        }
    }
}

/// No payload and no header: neither belongs in a log (R27).
impl fmt::Debug for OutboxMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxMessage")
            .field("id", &self.id)
            .field("message_id", &self.message_id)
            .field("topic", &self.topic)
            .field("status", &self.status)
            .field("reason", &self.reason)
            .field("attempts", &self.attempts)
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}
