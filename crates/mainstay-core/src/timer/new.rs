//! A timer to be scheduled.

use std::fmt;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::Result;
use crate::id::{MessageId, WorkItemId};
use crate::outbox::{Headers, Limits, Message, OnFailure, PreparedMessage, RESERVED_HEADER, When};
use crate::text::validate_name;
use crate::trace::TraceContext;

pub(super) const SCHEDULE: &str = "timers.schedule";

/// The header in which a timer keeps the ordering key of its message: `mainstay-` and this. Not the queue's own key, because a
/// timer must never wait for one of the same key that is due later. `queue_forward.sql` of PostgreSQL knows the name.
const ORDERING_KEY: &str = "ordering-key";

/// Takes the ordering key of its message out of a timer's headers, where it is kept until the timer fires. For providers.
pub fn take_ordering_key(headers: &mut Headers) -> Option<String> {
    headers.remove(&format!("{RESERVED_HEADER}{ORDERING_KEY}"))
}

/// A timer to be scheduled: a message, and when it is to be sent.
///
/// ```
/// # use std::time::Duration;
/// # use mainstay_core::timer::NewTimer;
/// let reminder = NewTimer::new("reminder.send", r#"{"user":7}"#, Duration::from_secs(3_600))
///     .correlation("request-81")
///     .idempotency_key("reminder-of-user-7");
/// assert_eq!(reminder.topic(), "reminder.send");
/// ```
#[derive(Clone)]
#[must_use = "a timer does nothing until it is scheduled"]
pub struct NewTimer {
    message: Message,
    ordering_key: Option<String>,
}

impl NewTimer {
    /// A timer with a raw payload, due at a moment or after a delay. A moment in the past means at once. A delay is counted
    /// from the database's now, so no other clock matters.
    pub fn new(topic: impl Into<String>, payload: impl Into<String>, due: impl Into<When>) -> Self {
        Self::from_message(Message::new(topic, payload), due)
    }

    /// A timer whose payload is `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(
        topic: impl Into<String>,
        value: &T,
        due: impl Into<When>,
    ) -> Result<Self> {
        Ok(Self::from_message(Message::json(topic, value)?, due))
    }

    /// A timer that sends `message`, with all that it has, at `due` instead of its own due time. One that is a step of a join is
    /// refused when it is scheduled: a timer is no step, and its message is attached once it is in the outbox.
    pub fn from_message(mut message: Message, due: impl Into<When>) -> Self {
        message.due = Some(due.into());
        let ordering_key = message.ordering_key.take();
        Self { message, ordering_key }
    }

    /// Links the message to the request it came from. Empty counts as none. At most 255 characters.
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.message = self.message.correlation(id);
        self
    }

    /// Schedules at most once per key: later calls get the first timer's ids and add nothing. 1 to 255 characters.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.message = self.message.idempotency_key(key);
        self
    }

    /// The ordering key of the message. Timers fire when they are due, whatever their keys; the messages of one key are then
    /// handled one at a time, in the order in which they fired. 1 to 255 characters.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// What happens to the rest of its ordering key when the message fails for good. Defaults to [`OnFailure::Skip`].
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.message = self.message.on_failure(on_failure);
        self
    }

    /// -9 to 9, higher first among those that are due. Defaults to 0.
    pub fn priority(mut self, level: i16) -> Self {
        self.message = self.message.priority(level);
        self
    }

    /// From this moment on the timer does not fire, and its message is not handled, but ends Failed with reason `expired`.
    pub fn expires_at(mut self, expiry: Timestamp) -> Self {
        self.message = self.message.expires_at(expiry);
        self
    }

    /// Adds a header to the message.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.message = self.message.header(name, value);
        self
    }

    /// Continues this trace in the handler. Defaults to [`TraceContext::current`].
    pub fn trace(mut self, context: TraceContext) -> Self {
        self.message = self.message.trace(context);
        self
    }

    /// Uses this id for the timer and for its message's row in the outbox, instead of a new one.
    pub fn id(mut self, id: WorkItemId) -> Self {
        self.message = self.message.work_item_id(id);
        self
    }

    /// Uses this message id instead of a new one.
    pub fn message_id(mut self, id: MessageId) -> Self {
        self.message = self.message.message_id(id);
        self
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        self.message.topic()
    }

    pub(crate) fn message(&self) -> &Message {
        &self.message
    }

    /// Makes the timer ready for a provider: checks every rule.
    pub fn prepare(self, limits: &Limits) -> Result<PreparedMessage> {
        let mut message = self.message;
        message.refuse_joins(SCHEDULE)?;
        if let Some(key) = self.ordering_key {
            validate_name(SCHEDULE, "ordering_key", &key)?;
            message = message.reserved_header(ORDERING_KEY, key);
        }
        message.prepare_for(SCHEDULE, limits)
    }
}

/// No payload and no header: neither belongs in a log (R27).
impl fmt::Debug for NewTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTimer").field("message", &self.message).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(timer: NewTimer) -> (&'static str, &'static str) {
        let error = timer.prepare(&Limits::default()).unwrap_err();
        (error.operation(), error.field().unwrap())
    }

    #[test]
    fn each_rule_names_its_field() {
        let fine = || NewTimer::new("t", "", Duration::from_secs(1));
        assert!(fine().prepare(&Limits::default()).is_ok());
        assert_eq!(refused(NewTimer::new("", "", Duration::ZERO)), (SCHEDULE, "topic"));
        assert_eq!(refused(NewTimer::new("t", "", Duration::MAX)), (SCHEDULE, "due"));
        assert_eq!(refused(fine().ordering_key("")), (SCHEDULE, "ordering_key"));
        assert_eq!(refused(fine().idempotency_key("k".repeat(256))), (SCHEDULE, "idempotency_key"));
        let step = Message::new("t", "").join(crate::JoinId::new());
        assert_eq!(refused(NewTimer::from_message(step, Duration::ZERO)), (SCHEDULE, "joins"));
        assert_eq!(refused(fine().header("mainstay-ordering-key", "k")), (SCHEDULE, "headers (a name)"));
    }

    #[test]
    fn the_ordering_key_is_the_message_s_and_not_the_queue_s() {
        let timer = NewTimer::new("t", "", Timestamp::UNIX_EPOCH).ordering_key("k");
        let prepared = timer.prepare(&Limits::default()).unwrap();
        assert_eq!(prepared.ordering_key(), None);
        assert_eq!(prepared.headers_json().as_deref(), Some(r#"{"mainstay-ordering-key":"k"}"#));
        assert_eq!(prepared.due(), Some(When::At(Timestamp::UNIX_EPOCH)));
    }
}
