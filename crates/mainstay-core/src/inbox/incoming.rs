//! A received message on its way into the queue.

use std::fmt;

use crate::error::{Error, Result};
use crate::outbox::{Limits, Message, PreparedMessage};

use super::{ContentHash, InboxKey};

/// The reserved headers by which a handler learns where its message comes from.
pub(crate) const SOURCE: &str = "source";
pub(crate) const MESSAGE_ID: &str = "message-id";

/// A message that came from elsewhere, to be put into the inbox.
///
/// What a message may have in the outbox it may have here, but for an idempotency key, since source and message id are that, and for
/// joins, whose steps are messages of the outbox.
///
/// ```
/// # use mainstay_core::{inbox::Incoming, outbox::Message};
/// let incoming = Incoming::new("billing", "inv-17", Message::new("invoice.paid", "{}").ordering_key("customer-3"));
/// # let _ = incoming;
/// ```
#[derive(Clone)]
#[must_use = "a message does nothing until it is enqueued"]
pub struct Incoming {
    source: String,
    message_id: String,
    message: Message,
    hash: Option<ContentHash>,
}

impl Incoming {
    /// The message that `source` calls `message_id`.
    pub fn new(source: impl Into<String>, message_id: impl Into<String>, message: Message) -> Self {
        Self { source: source.into(), message_id: message_id.into(), message, hash: None }
    }

    /// Compares by this hash. Defaults to that of the payload.
    pub fn hash(mut self, hash: ContentHash) -> Self {
        self.hash = Some(hash);
        self
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Makes it ready for a provider: checks every rule.
    pub fn prepare(self, limits: &Limits) -> Result<PreparedIncoming> {
        let key = InboxKey::new(self.source, self.message_id)?;
        if self.message.idempotency_key.is_some() {
            let reason = "must not be set: source and message id are what tells messages apart";
            return Err(Error::invalid("inbox.enqueue", "idempotency_key", reason));
        }
        self.message.refuse_joins("inbox.enqueue")?;
        let hash = self.hash.unwrap_or_else(|| ContentHash::of(&self.message.payload));
        let message = self
            .message
            .reserved_header(SOURCE, key.source())
            .reserved_header(MESSAGE_ID, key.message_id())
            .prepare(limits)?;
        Ok(PreparedIncoming { key, message, hash })
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming")
            .field("source", &self.source)
            .field("message_id", &self.message_id)
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}

/// A received message that keeps every rule. Providers take these, so none of them checks again.
#[derive(Debug, Clone)]
pub struct PreparedIncoming {
    key: InboxKey,
    message: PreparedMessage,
    hash: ContentHash,
}

impl PreparedIncoming {
    /// A message that keeps every rule, under a key.
    pub fn new(key: InboxKey, message: PreparedMessage, hash: ContentHash) -> Self {
        Self { key, message, hash }
    }
    /// What it is known by.
    pub fn key(&self) -> &InboxKey {
        &self.key
    }
    /// What goes into the queue.
    pub fn message(&self) -> &PreparedMessage {
        &self.message
    }
    /// What its content is compared by.
    pub fn hash(&self) -> &ContentHash {
        &self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_the_inbox_is_no_step_of_a_join() {
        let step = Incoming::new("s", "m", Message::new("t", "").join(crate::JoinId::new()));
        assert_eq!(step.prepare(&Limits::default()).unwrap_err().field(), Some("joins"));
    }

    #[test]
    fn a_key_of_the_outbox_has_no_meaning_here() {
        let keyed = Incoming::new("s", "m", Message::new("t", "").idempotency_key("k"));
        assert_eq!(keyed.prepare(&Limits::default()).unwrap_err().field(), Some("idempotency_key"));
        let plain = Incoming::new("s", "m", Message::new("t", "x")).prepare(&Limits::default()).unwrap();
        assert_eq!(*plain.hash(), ContentHash::of("x"));
        let headers = plain.message().headers_json().unwrap();
        assert_eq!(headers, r#"{"mainstay-message-id":"m","mainstay-source":"s"}"#);
    }
}
