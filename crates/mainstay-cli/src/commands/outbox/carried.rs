//! A message as a line of an export: all that it takes to enqueue it again, and how it stood.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use mainstay::outbox::{ExportedMessage, Headers, Message, OnFailure, RESERVED_HEADER};
use mainstay::queue::{FailureReason, Status};
use mainstay::{MessageId, WorkItemId};
use serde::{Deserialize, Serialize};

/// One line. What can't be told of a message is left out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Carried {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<WorkItemId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) message_id: Option<MessageId>,
    topic: String,
    /// None where the payloads of done messages are not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// The same in base64, for programs that write bytes. An export has no need of it: payloads are texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    hold_on_failure: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    priority: i16,
    /// The due time it was enqueued with.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    /// When it is due now: after a delay, say.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    processed_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<i64>,
}

/// What is not carried of messages that are enqueued again.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftBehind {
    /// Those that Mainstay keeps to itself: they belong to a timer or a job of the database that the message comes from.
    pub(super) headers: u64,
    /// Those that had passed, of messages that were begun or have ended.
    pub(super) expiries: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl From<ExportedMessage> for Carried {
    fn from(exported: ExportedMessage) -> Self {
        let ExportedMessage { seq, message, hold_on_failure, .. } = exported;
        Self {
            id: Some(message.id),
            message_id: Some(message.message_id),
            topic: message.topic,
            payload: message.payload,
            payload_base64: None,
            headers: message.headers,
            correlation_id: message.correlation_id,
            idempotency_key: message.idempotency_key,
            ordering_key: message.ordering_key,
            hold_on_failure,
            priority: message.priority,
            due_at: message.due_at,
            next_attempt_at: Some(message.next_attempt_at),
            expires_at: message.expires_at,
            created_at: Some(message.created_at),
            status: Some(message.status.to_string()),
            reason: message.reason.map(|reason: FailureReason| reason.to_string()),
            attempts: message.attempts,
            processed_at: message.processed_at,
            last_error: message.last_error,
            seq: Some(seq),
        }
    }
}

impl Carried {
    /// Where it stood; ready unless it says otherwise.
    pub(super) fn status(&self) -> Result<Status, String> {
        let status = self.status.as_deref().map(str::parse::<Status>).transpose();
        Ok(status.map_err(|error| format!("status: {}", error.message()))?.unwrap_or(Status::Ready))
    }

    /// The message to be enqueued now, with all its attempts, and what of it is left behind.
    pub(super) fn into_message(self, now: Timestamp) -> Result<(Message, LeftBehind), String> {
        if self.id.is_none() && self.idempotency_key.is_none() {
            return Err("id must be given, or idempotency_key: without either it would be enqueued again with every run".to_owned());
        }
        let status = self.status()?;
        let payload = match (self.payload, self.payload_base64) {
            (Some(payload), None) => payload,
            (None, Some(text)) => {
                let bytes = STANDARD.decode(text).map_err(|_| "payload_base64 must be base64".to_owned())?;
                String::from_utf8(bytes)
                    .map_err(|_| "payload_base64 must be the base64 of a text in UTF-8".to_owned())?
            }
            (Some(_), Some(_)) => return Err("payload and payload_base64 must not both be given".to_owned()),
            (None, None) if status == Status::Done => {
                return Err(
                    "payload is not there: the database it comes from does not keep those of done messages"
                        .to_owned(),
                );
            }
            (None, None) => return Err("payload must be given; an empty text is one".to_owned()),
        };
        let mut message = Message::new(self.topic, payload).priority(self.priority);
        if self.hold_on_failure {
            message = message.on_failure(OnFailure::Hold);
        }
        if let Some(id) = self.id {
            message = message.work_item_id(id);
        }
        if let Some(id) = self.message_id {
            message = message.message_id(id);
        }
        if let Some(id) = self.correlation_id {
            message = message.correlation(id);
        }
        if let Some(key) = self.idempotency_key {
            message = message.idempotency_key(key);
        }
        if let Some(key) = self.ordering_key {
            message = message.ordering_key(key);
        }
        // What waits keeps waiting; what has ended, or was in somebody's hands, is due at once.
        let due = if status == Status::Ready { self.next_attempt_at.or(self.due_at) } else { None };
        if let Some(due) = due {
            message = message.due_at(due);
        }
        let mut left = LeftBehind::default();
        match self.expires_at {
            // As a requeue does: whoever asks for what was begun or has ended wants it to run, and it would only expire again.
            Some(expiry) if expiry <= now && status != Status::Ready => left.expiries += 1,
            Some(expiry) => message = message.expires_at(expiry),
            None => {}
        }
        for (name, value) in self.headers {
            match name.starts_with(RESERVED_HEADER) {
                true => left.headers += 1,
                false => message = message.header(name, value),
            }
        }
        Ok((message, left))
    }
}
