//! A message to be enqueued, and the rules it must keep.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::id::{JoinId, MessageId, WorkItemId};
use crate::telemetry;
use crate::text::{validate_name, validate_nul};
use crate::trace::{TRACEPARENT, TRACESTATE, TraceContext};

const ENQUEUE: &str = "outbox.enqueue";

/// Free-form texts that travel with a message.
pub type Headers = BTreeMap<String, String>;

/// How the headers begin in which Mainstay says where a message comes from: the source and id of one that was received, the job
/// and nominal time of a run. Nobody else may set them.
pub const RESERVED_HEADER: &str = "mainstay-";

/// A moment, absolute or counted from the database's now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// At this moment.
    At(Timestamp),
    /// This long after the database takes the message. Immune to clock skew between here and the database.
    In(Duration),
}

impl When {
    /// Refuses a relative moment that is out of reach.
    pub(crate) fn validate(self, operation: &'static str, field: &'static str) -> Result<()> {
        match self {
            Self::In(duration) if duration > Limits::FARTHEST => {
                Err(Error::invalid(operation, field, "must be at most 1,000 years from now"))
            }
            Self::In(_) | Self::At(_) => Ok(()),
        }
    }
}

impl From<Timestamp> for When {
    fn from(moment: Timestamp) -> Self {
        Self::At(moment)
    }
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::In(delay)
    }
}

/// Which of the due messages go first: -9 to 9, higher first. Defaults to 0.
///
/// Lower levels keep a share of every claim, so nothing starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(transparent)]
pub struct Priority(i16);

impl Priority {
    /// The lowest level.
    pub const MIN: i16 = -9;
    /// The highest level.
    pub const MAX: i16 = 9;

    /// The level itself.
    pub const fn level(self) -> i16 {
        self.0
    }

    /// A level from -9 to 9.
    pub fn new(level: i16) -> Result<Self> {
        if (Self::MIN..=Self::MAX).contains(&level) {
            return Ok(Self(level));
        }
        let (min, max) = (Self::MIN, Self::MAX);
        Err(Error::invalid(ENQUEUE, "priority", format_args!("must be {min} to {max}, got {level}")))
    }
}

/// What a message that failed for good does to later ones with the same ordering key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// The next message of the key goes ahead.
    #[default]
    Skip,
    /// The key waits until the failed message is requeued or the key is released.
    Hold,
}

/// Whether the caller can use a message's id for another message as well: because the caller chose the id, or because the
/// message was cloned and both copies have it.
#[derive(Debug, Default)]
struct OwnId(AtomicBool);

impl OwnId {
    fn chosen() -> Self {
        Self(AtomicBool::new(true))
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Clone for OwnId {
    /// Marks the original too: either copy can be enqueued first.
    fn clone(&self) -> Self {
        self.0.store(true, Ordering::Relaxed);
        Self::chosen()
    }
}

/// A message to be enqueued.
///
/// ```
/// # use mainstay_core::outbox::Message;
/// let message = Message::new("order.paid", r#"{"order":7}"#)
///     .correlation("request-81")
///     .ordering_key("order-7");
/// assert_eq!(message.topic(), "order.paid");
/// ```
#[derive(Clone)]
#[must_use = "a message does nothing until it is enqueued"]
pub struct Message {
    pub(crate) work_item: WorkItemId,
    own_id: OwnId,
    pub(crate) message: MessageId,
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) correlation_id: Option<String>,
    pub(crate) due: Option<When>,
    pub(crate) expires: Option<When>,
    pub(crate) idempotency_key: Option<String>,
    pub(crate) ordering_key: Option<String>,
    pub(crate) on_failure: OnFailure,
    pub(crate) priority: i16,
    pub(crate) headers: Headers,
    /// What Mainstay itself says of the message; see [`RESERVED_HEADER`].
    pub(crate) reserved: Headers,
    /// The joins it is a step of.
    pub(crate) joins: Vec<JoinId>,
}

impl Message {
    /// A message with a raw payload.
    pub fn new(topic: impl Into<String>, payload: impl Into<String>) -> Self {
        Self {
            work_item: WorkItemId::new(),
            own_id: OwnId::default(),
            message: MessageId::new(),
            topic: topic.into(),
            payload: payload.into(),
            correlation_id: None,
            due: None,
            expires: None,
            idempotency_key: None,
            ordering_key: None,
            on_failure: OnFailure::Skip,
            priority: 0,
            headers: Headers::new(),
            reserved: Headers::new(),
            joins: Vec::new(),
        }
    }

    /// A message whose payload is `value` as JSON.
    pub fn json<T: Serialize + ?Sized>(topic: impl Into<String>, value: &T) -> Result<Self> {
        let payload = serde_json::to_string(value).map_err(|error| {
            // The category only: serde_json's own text may quote the value.
            let category = error.classify();
            Error::invalid(ENQUEUE, "payload", format_args!("can't be written as JSON ({category:?})"))
        })?;
        Ok(Self::new(topic, payload))
    }

    /// Links the message to the request it came from. Empty counts as none. At most 255 characters.
    pub fn correlation(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into()).filter(|id| !id.is_empty());
        self
    }

    /// Not before this moment. A past one means at once.
    pub fn due_at(mut self, due: Timestamp) -> Self {
        self.due = Some(When::At(due));
        self
    }

    /// Not before this long from the database's now.
    pub fn due_in(mut self, delay: Duration) -> Self {
        self.due = Some(When::In(delay));
        self
    }

    /// Never handed to a handler from this moment on: it then ends Failed with reason `expired`.
    pub fn expires_at(mut self, expiry: Timestamp) -> Self {
        self.expires = Some(When::At(expiry));
        self
    }

    /// Never handed to a handler later than this long from the database's now.
    pub fn expires_in(mut self, lifetime: Duration) -> Self {
        self.expires = Some(When::In(lifetime));
        self
    }

    /// Enqueues at most once per key: later calls get the first message's ids and add nothing. 1 to 255 characters.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Messages with the same key are handled one at a time, in the order they were enqueued. 1 to 255 characters.
    pub fn ordering_key(mut self, key: impl Into<String>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// What happens to the rest of its ordering key when this message fails for good. Defaults to [`OnFailure::Skip`].
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// -9 to 9, higher first. Defaults to 0.
    pub fn priority(mut self, level: i16) -> Self {
        self.priority = level;
        self
    }

    /// Adds a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Continues this trace in the handler. Defaults to [`TraceContext::current`].
    pub fn trace(self, context: TraceContext) -> Self {
        self.header(TRACEPARENT, context.to_string())
    }

    /// Uses this message id instead of a new one.
    pub fn message_id(mut self, id: MessageId) -> Self {
        self.message = id;
        self
    }

    /// Uses this work item id instead of a new one.
    ///
    /// An id is used once: enqueueing one that a message has, open or settled, is
    /// [`ErrorKind::AlreadyExists`](crate::ErrorKind::AlreadyExists) and adds nothing. A message can therefore be enqueued again when
    /// an answer was lost.
    pub fn work_item_id(mut self, id: WorkItemId) -> Self {
        self.work_item = id;
        self.own_id = OwnId::chosen();
        self
    }

    /// Returns a copy under ids that no other message has.
    pub(crate) fn with_new_ids(&self) -> Self {
        Self {
            work_item: WorkItemId::new(),
            own_id: OwnId::default(),
            message: MessageId::new(),
            ..self.clone()
        }
    }

    /// Makes it a step of this join, in the same transaction: its end is counted there. It may be a step of several.
    ///
    /// An idempotency key that finds an earlier message makes that one the step.
    pub fn join(mut self, join: JoinId) -> Self {
        if !self.joins.contains(&join) {
            self.joins.push(join);
        }
        self
    }

    /// For what is not put into the outbox, whose messages alone are steps of joins.
    pub(crate) fn refuse_joins(&self, operation: &'static str) -> Result<()> {
        match self.joins.first() {
            None => Ok(()),
            Some(join) => {
                let reason = format_args!(
                    "must not be set: only a message of the outbox can be a step of a join ({join})"
                );
                Err(Error::invalid(operation, "joins", reason))
            }
        }
    }

    /// Adds a header that only Mainstay sets. `name` is what follows [`RESERVED_HEADER`].
    pub(crate) fn reserved_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.reserved.insert(format!("{RESERVED_HEADER}{name}"), value.into());
        self
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The trace that it was told to continue.
    pub(crate) fn given_trace(&self) -> Option<TraceContext> {
        TraceContext::from_headers(&self.headers)
    }

    /// Makes the message ready for a provider: checks every rule and fills in what the surroundings give.
    pub fn prepare(self, limits: &Limits) -> Result<PreparedMessage> {
        self.prepare_for(ENQUEUE, limits)
    }

    /// The same for another operation than an enqueue, which errors then name.
    pub(crate) fn prepare_for(mut self, operation: &'static str, limits: &Limits) -> Result<PreparedMessage> {
        if !self.headers.contains_key(TRACEPARENT)
            && let Some(context) = TraceContext::current()
        {
            self.headers.insert(TRACEPARENT.to_owned(), context.to_string());
            if let Some(state) = telemetry::current_state() {
                self.headers.entry(TRACESTATE.to_owned()).or_insert(state);
            }
        }
        self.validate(operation, limits)?;
        self.headers.append(&mut self.reserved);
        let own_id = self.own_id.get();
        Ok(PreparedMessage { message: self, own_id })
    }

    fn validate(&self, operation: &'static str, limits: &Limits) -> Result<()> {
        validate_name(operation, "topic", &self.topic)?;
        if self.payload.len() > limits.payload_bytes {
            let (max, got) = (limits.payload_bytes, self.payload.len());
            return Err(Error::invalid(
                operation,
                "payload",
                format_args!("must be at most {max} bytes, got {got}"),
            ));
        }
        if !limits.nul_in_payload {
            validate_nul(operation, "payload", &self.payload)?;
        }
        let names = [
            ("correlation_id", &self.correlation_id),
            ("idempotency_key", &self.idempotency_key),
            ("ordering_key", &self.ordering_key),
        ];
        for (field, value) in names {
            if let Some(value) = value {
                validate_name(operation, field, value)?;
            }
        }
        for (name, value) in &self.headers {
            validate_name(operation, "headers (a name)", name)?;
            if name.starts_with(RESERVED_HEADER) {
                let reason = format_args!(
                    "must not begin with {RESERVED_HEADER}, which Mainstay keeps to itself, got {name:?}"
                );
                return Err(Error::invalid(operation, "headers (a name)", reason));
            }
            validate_nul(operation, "headers (a value)", value)?;
        }
        let header_bytes: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if header_bytes > limits.header_bytes {
            let max = limits.header_bytes;
            return Err(Error::invalid(
                operation,
                "headers",
                format_args!("must be at most {max} bytes together, got {header_bytes}"),
            ));
        }
        for (field, when) in [("due", self.due), ("expiry", self.expires)] {
            if let Some(when) = when {
                when.validate(operation, field)?;
            }
        }
        Priority::new(self.priority).map(drop)
    }
}

/// No payload and no header: neither belongs in a log (R27).
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("work_item", &self.work_item)
            .field("message", &self.message)
            .field("topic", &self.topic)
            .field("payload_bytes", &self.payload.len())
            .field("correlation_id", &self.correlation_id)
            .field("due", &self.due)
            .finish_non_exhaustive()
    }
}

/// A message that keeps every rule. Providers take these, so none of them checks again.
#[derive(Debug, Clone)]
pub struct PreparedMessage {
    message: Message,
    own_id: bool,
}

impl PreparedMessage {
    /// The row's id.
    pub fn work_item(&self) -> WorkItemId {
        self.message.work_item
    }
    /// Whether another message can have been enqueued under the row's id: the caller chose the id, or cloned the message. All
    /// other ids are new, so a provider need not look them up.
    pub fn has_own_id(&self) -> bool {
        self.own_id
    }
    /// The message's id.
    pub fn message(&self) -> MessageId {
        self.message.message
    }
    /// The topic.
    pub fn topic(&self) -> &str {
        &self.message.topic
    }
    /// The payload.
    pub fn payload(&self) -> &str {
        &self.message.payload
    }
    /// The correlation id; never empty.
    pub fn correlation_id(&self) -> Option<&str> {
        self.message.correlation_id.as_deref()
    }
    /// Not before this.
    pub fn due(&self) -> Option<When> {
        self.message.due
    }
    /// Not after this.
    pub fn expires(&self) -> Option<When> {
        self.message.expires
    }
    /// The idempotency key.
    pub fn idempotency_key(&self) -> Option<&str> {
        self.message.idempotency_key.as_deref()
    }
    /// The ordering key.
    pub fn ordering_key(&self) -> Option<&str> {
        self.message.ordering_key.as_deref()
    }
    /// Whether the ordering key is held when this message fails.
    pub fn hold_on_failure(&self) -> bool {
        self.message.on_failure == OnFailure::Hold
    }
    /// -9 to 9.
    pub fn priority(&self) -> i16 {
        self.message.priority
    }
    /// The joins it is a step of, each once.
    pub fn joins(&self) -> &[JoinId] {
        &self.message.joins
    }
    /// The headers as a JSON object, none when there are no headers.
    pub fn headers_json(&self) -> Option<String> {
        if self.message.headers.is_empty() {
            return None;
        }
        // A map of strings always has a JSON form, so `ok()` hides no error.
        serde_json::to_string(&self.message.headers).ok()
    }
}

/// The bounds an outbox puts on messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest payload, in bytes. Defaults to 64 MiB.
    pub payload_bytes: usize,
    /// The largest set of headers, in bytes. Defaults to 64 KiB.
    pub header_bytes: usize,
    /// Whether the database can store a NUL character in a payload. Defaults to false.
    pub nul_in_payload: bool,
}

impl Limits {
    /// The longest relative due time or lifetime.
    pub const FARTHEST: Duration = Duration::from_secs(1_000 * 365 * 24 * 3_600);
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes: 64 << 20, header_bytes: 64 << 10, nul_in_payload: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(message: Message) -> &'static str {
        message.prepare(&Limits::default()).unwrap_err().field().unwrap()
    }

    #[test]
    fn each_rule_names_its_field() {
        let fine = || Message::new("t", "");
        assert!(fine().prepare(&Limits::default()).is_ok());
        assert_eq!(field_of(Message::new("", "")), "topic");
        assert_eq!(field_of(Message::new("t", "a\0")), "payload");
        assert_eq!(field_of(fine().correlation("c".repeat(256))), "correlation_id");
        assert_eq!(field_of(fine().idempotency_key("")), "idempotency_key");
        assert_eq!(field_of(fine().ordering_key("")), "ordering_key");
        assert_eq!(field_of(fine().priority(10)), "priority");
        assert_eq!(field_of(fine().header("mainstay-job", "x")), "headers (a name)");
        assert_eq!(field_of(fine().header("big", "x".repeat(70_000))), "headers");
        assert_eq!(field_of(fine().due_in(Duration::MAX)), "due");
    }

    #[test]
    fn only_an_id_that_can_be_used_again_is_the_caller_s_own() {
        let own = |message: Message| message.prepare(&Limits::default()).unwrap().has_own_id();
        let plain = || Message::new("t", "");
        assert!(!own(plain()));
        assert!(own(plain().work_item_id(WorkItemId::new())));
        let original = plain();
        let copy = original.clone();
        assert!(own(original) && own(copy));
        assert!(!own(plain().work_item_id(WorkItemId::new()).with_new_ids()));
        // A provider may keep copies of a message while it writes it.
        let prepared = plain().prepare(&Limits::default()).unwrap();
        assert!(!prepared.clone().has_own_id() && !prepared.has_own_id());
    }

    #[test]
    fn an_empty_correlation_id_counts_as_none() {
        let prepared = Message::new("t", "").correlation("").prepare(&Limits::default()).unwrap();
        assert_eq!(prepared.correlation_id(), None);
    }

    #[test]
    fn debug_shows_no_payload_and_no_header() {
        let message = Message::new("t", "secret-payload").header("h", "secret-header");
        assert!(!format!("{message:?}").contains("secret"));
    }
}
