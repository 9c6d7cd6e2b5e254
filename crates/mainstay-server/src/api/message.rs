//! Messages: as they are sent here, and as they are shown.

use std::collections::BTreeMap;

use jiff::Timestamp;
use mainstay_core::outbox::{Enqueued, Message, OnFailure, OutboxMessage, When};
use mainstay_core::{JoinId, MessageId, WorkItemId};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

use super::time;
use crate::problem::Problem;

/// A message to be enqueued.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewMessage {
    /// What it is about; workers claim by it.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) topic: String,
    /// The payload, a text that is kept to the byte. Empty if there is neither this nor `payload_json`.
    payload: Option<String>,
    /// The payload as any JSON value instead, `null` included, kept as it was written.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = serde_json::Value, required = false)]
    payload_json: Option<Box<RawValue>>,
    /// Where it comes from.
    #[schema(max_length = 255)]
    correlation_id: Option<String>,
    /// Not before this moment.
    due_at: Option<Timestamp>,
    /// Not before this many seconds from the database's now.
    #[schema(minimum = 0, maximum = 31536000000_f64)]
    due_in_seconds: Option<f64>,
    /// Not handed out from this moment on.
    expires_at: Option<Timestamp>,
    /// Not handed out later than this many seconds from the database's now.
    #[schema(minimum = 0, maximum = 31536000000_f64)]
    expires_in_seconds: Option<f64>,
    /// Enqueued at most once per key. The header `Idempotency-Key` says the same of a single message.
    #[schema(min_length = 1, max_length = 255)]
    pub(super) idempotency_key: Option<String>,
    /// Messages of one key are handled one at a time, in their order.
    #[schema(min_length = 1, max_length = 255)]
    ordering_key: Option<String>,
    /// What its failing for good does to the rest of its ordering key. Defaults to `skip`.
    on_failure: Option<OnFailureBody>,
    /// Higher first. Defaults to 0.
    #[schema(minimum = -9, maximum = 9)]
    priority: Option<i16>,
    /// Texts that travel with it.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Its id here. Defaults to a new one. An id is used once: a known one is refused, 409 `already-exists`.
    id: Option<Uuid>,
    /// Its id for receivers. Defaults to a new one.
    message_id: Option<Uuid>,
    /// The joins it is a step of.
    #[serde(default)]
    joins: Vec<Uuid>,
}

/// A value that is there, also when it is `null`: serde would take that for none.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// What a failed message does to the rest of its ordering key.
#[derive(Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = OnFailure)]
enum OnFailureBody {
    /// The next one goes ahead.
    Skip,
    /// The key waits until it is requeued, or the key is released.
    Hold,
}

impl NewMessage {
    /// When a timer of it is due, which must be given.
    pub(super) fn take_due(&mut self) -> Result<When, Problem> {
        let when = time::when("due", self.due_at.take(), self.due_in_seconds.take())?;
        when.ok_or_else(|| Problem::invalid("due_at", "must be given, or due_in_seconds: one of the two"))
    }

    /// As the core has it. Without a trace of its own it continues that of the request.
    pub(super) fn into_message(self) -> Result<Message, Problem> {
        let payload = match (self.payload, self.payload_json) {
            (Some(_), Some(_)) => {
                return Err(Problem::invalid("payload", "must not be given together with payload_json"));
            }
            (Some(text), None) => text,
            (None, Some(json)) => json.get().to_owned(),
            (None, None) => String::new(),
        };
        let mut message = Message::new(self.topic, payload).priority(self.priority.unwrap_or_default());
        if let Some(id) = self.correlation_id {
            message = message.correlation(id);
        }
        match time::when("due", self.due_at, self.due_in_seconds)? {
            Some(When::At(at)) => message = message.due_at(at),
            Some(When::In(delay)) => message = message.due_in(delay),
            None => {}
        }
        match time::when("expires", self.expires_at, self.expires_in_seconds)? {
            Some(When::At(at)) => message = message.expires_at(at),
            Some(When::In(life)) => message = message.expires_in(life),
            None => {}
        }
        if let Some(key) = self.idempotency_key {
            message = message.idempotency_key(key);
        }
        if let Some(key) = self.ordering_key {
            message = message.ordering_key(key);
        }
        if let Some(OnFailureBody::Hold) = self.on_failure {
            message = message.on_failure(OnFailure::Hold);
        }
        if let Some(id) = self.id {
            message = message.work_item_id(WorkItemId::from_uuid(id));
        }
        if let Some(id) = self.message_id {
            message = message.message_id(MessageId::from_uuid(id));
        }
        for (name, value) in self.headers {
            message = message.header(name, value);
        }
        for join in self.joins {
            message = message.join(JoinId::from_uuid(join));
        }
        Ok(message)
    }
}

/// A message that was enqueued, or was there already.
#[derive(Serialize, ToSchema)]
#[schema(as = Enqueued)]
pub(super) struct EnqueuedView {
    /// Its id here.
    pub(super) id: Uuid,
    /// Its id for receivers.
    message_id: Uuid,
    /// False if the idempotency key was known: the ids are then those of the first message.
    pub(super) added: bool,
}

impl From<Enqueued> for EnqueuedView {
    fn from(enqueued: Enqueued) -> Self {
        let Enqueued { work_item, message, added } = enqueued;
        Self { id: work_item.as_uuid(), message_id: message.as_uuid(), added }
    }
}

/// A message as it stands.
#[derive(Serialize, ToSchema)]
#[schema(as = Message)]
pub(super) struct MessageView {
    /// Its id here.
    id: Uuid,
    /// Its id for receivers.
    message_id: Uuid,
    /// What it is about.
    topic: String,
    /// Where it stands: `ready`, `in-progress`, `done` or `failed`.
    status: String,
    /// Why it failed, if it did: `handler`, `delivery-limit`, `expired` or `cancelled`.
    reason: Option<String>,
    /// The payload. Null where it is not kept, or not shown: to viewers, and in a list that was not asked for it.
    payload: Option<String>,
    /// Texts that travel with it. Null where they are not shown.
    headers: Option<BTreeMap<String, String>>,
    /// Whether payload and headers are left out because the role does not show them.
    hidden: bool,
    /// Where it comes from.
    correlation_id: Option<String>,
    /// Deliveries so far that count.
    attempts: u32,
    /// When it was enqueued.
    created_at: Timestamp,
    /// The due time it was enqueued with.
    due_at: Option<Timestamp>,
    /// Not handed out before this.
    next_attempt_at: Timestamp,
    /// Not handed out from this on.
    expires_at: Option<Timestamp>,
    /// Until when it is held, while it is in progress.
    locked_until: Option<Timestamp>,
    /// When it was settled.
    processed_at: Option<Timestamp>,
    /// The last error.
    last_error: Option<String>,
    /// Higher first.
    priority: i16,
    /// Its ordering key.
    ordering_key: Option<String>,
    /// Its idempotency key.
    idempotency_key: Option<String>,
}

impl MessageView {
    /// Of a record. The owner is left out: with it, others could settle what is not theirs.
    pub(super) fn new(record: OutboxMessage, shows: bool) -> Self {
        Self {
            id: record.id.as_uuid(),
            message_id: record.message_id.as_uuid(),
            topic: record.topic,
            status: record.status.to_string(),
            reason: record.reason.map(|reason| reason.to_string()),
            payload: record.payload.filter(|_| shows),
            headers: Some(record.headers).filter(|_| shows),
            hidden: !shows,
            correlation_id: record.correlation_id,
            attempts: record.attempts,
            created_at: record.created_at,
            due_at: record.due_at,
            next_attempt_at: record.next_attempt_at,
            expires_at: record.expires_at,
            locked_until: record.locked_until,
            processed_at: record.processed_at,
            last_error: record.last_error,
            priority: record.priority,
            ordering_key: record.ordering_key,
            idempotency_key: record.idempotency_key,
        }
    }
}

/// Ids.
pub(super) fn ids(items: &[WorkItemId]) -> Vec<Uuid> {
    items.iter().map(WorkItemId::as_uuid).collect()
}

/// Items.
pub(super) fn items(ids: &[Uuid]) -> Vec<WorkItemId> {
    ids.iter().copied().map(WorkItemId::from_uuid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_of_json_is_any_value_as_it_was_written() {
        let payload = |text: &str| {
            let message: NewMessage = serde_json::from_str(&format!("{{\"topic\":\"t\"{text}}}")).unwrap();
            message.into_message().ok().unwrap().prepare(&Default::default()).unwrap().payload().to_owned()
        };
        assert_eq!(payload(""), "");
        assert_eq!(payload(",\"payload_json\":null"), "null");
        assert_eq!(payload(",\"payload_json\":[ 1,  2 ]"), "[ 1,  2 ]");
        assert_eq!(payload(",\"payload_json\":7"), "7");
        assert_eq!(payload(",\"payload\":null"), "");
    }
}
