//! The spans of a message's way: *enqueue*, *claim*, *handle* and *settle*, and all attributes they have.
//!
//! The message carries the context of its enqueue. The handler's span is the child of that one (MST-032), a claim is linked to what it brought, and a settle to
//! the handlers whose outcome it writes. Names and kinds follow OpenTelemetry's conventions for messaging. Where nobody listens a span costs the question
//! whether somebody does. Neither a payload nor a header ever gets into one.

use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use crate::error::{Error, Result};
use crate::inbox::Received;
use crate::outbox::{Enqueued, Message};
use crate::queue::{ClaimBatch, Claimed, Outcome, Settled, Settlement};
use crate::trace::{TRACESTATE, TraceContext};

use super::otel;
use super::queue::outcome_name;

/// The `target` of all spans: `mainstay::spans=info` lets them through a filter.
pub const SPANS: &str = "mainstay::spans";

/// Always `mainstay`.
const SYSTEM: &str = "messaging.system";
/// `enqueue`, `schedule`, `receive`, `claim`, `handle` or `settle`: what Mainstay calls it.
const OPERATION: &str = "messaging.operation.name";
/// `send`, `receive`, `process` or `settle`: what OpenTelemetry calls it.
const OPERATION_TYPE: &str = "messaging.operation.type";
/// The topic, if all messages have the same.
const DESTINATION: &str = "messaging.destination.name";
/// The message's id, where there is one message.
const MESSAGE_ID: &str = "messaging.message.id";
/// The correlation id, where there is one message that has it.
const CONVERSATION: &str = "messaging.message.conversation_id";
/// How many messages, where there may be several.
const COUNT: &str = "messaging.batch.message_count";
/// What became of the message, or of all of them if it was the same: ack, abandon, release or fail.
const OUTCOME: &str = "mainstay.outcome";
/// Settles that came too late, because the claim was no longer held.
const STALE: &str = "mainstay.stale_count";
/// Messages that a claim failed instead of handing them out.
const REJECTED: &str = "mainstay.rejected_count";
/// What kind of error it was.
const ERROR: &str = "error.type";

/// As many links as OpenTelemetry keeps by default. The rest of a large batch has none.
const LINKS_MAX: usize = 128;

/// Whether anybody listens.
pub(crate) fn wanted() -> bool {
    tracing::span_enabled!(target: SPANS, Level::INFO)
}

/// Adding messages.
pub(crate) struct Adding(Span);

impl Adding {
    pub(crate) fn begin<'a>(
        store: &str,
        operation: &'static str,
        messages: impl ExactSizeIterator<Item = &'a Message> + Clone,
    ) -> Self {
        if !wanted() {
            return Self(Span::none());
        }
        let topic = shared(messages.clone().map(Message::topic));
        let span = tracing::info_span!(
            target: SPANS,
            "enqueue",
            otel.name = name(operation, topic),
            otel.kind = "producer",
            store,
            topic
        );
        describe(&span, operation, "send", topic);
        otel::attribute(&span, COUNT, messages.len() as i64);
        let mut given: Vec<_> = messages.filter_map(Message::given_trace).take(LINKS_MAX).collect();
        given.dedup();
        let surrounding = surrounding(&span);
        for (at, context) in given.into_iter().enumerate() {
            // It has to be the child of something, and what the message continues is the nearest.
            if at == 0 && !surrounding {
                otel::set_parent(&span, context, None);
            } else {
                otel::link(&span, context);
            }
        }
        Self(span)
    }

    /// Does a part of it that waits for nothing. Messages that are made ready here and have no trace of their own continue this span's. A part
    /// that fails is the failure of the whole: one that is refused is never sent.
    pub(crate) fn within<T>(&self, part: impl FnOnce() -> Result<T>) -> Result<T> {
        self.0.in_scope(part).inspect_err(|error| failed(&self.0, error))
    }

    /// Adds them.
    pub(crate) async fn run<T: Added>(self, work: impl Future<Output = Result<Vec<T>>>) -> Result<Vec<T>> {
        let added = work.instrument(self.0.clone()).await;
        self.end(&added);
        added
    }

    /// What came of it.
    pub(crate) fn end<T: Added>(self, added: &Result<Vec<T>>) {
        if self.0.is_disabled() {
            return;
        }
        match added.as_deref() {
            Ok([only]) => {
                if let Some(id) = only.message_id() {
                    otel::attribute(&self.0, MESSAGE_ID, id);
                }
            }
            Ok(_) => {}
            Err(error) => failed(&self.0, error),
        }
    }
}

/// What adding a message gives back.
pub(crate) trait Added {
    fn message_id(&self) -> Option<String>;
}

impl Added for Enqueued {
    fn message_id(&self) -> Option<String> {
        Some(self.message.to_string())
    }
}

impl Added for Received {
    /// Its source's name for it is no id of ours.
    fn message_id(&self) -> Option<String> {
        None
    }
}

/// Claiming. The span begins where the claim does, but is told of only if the claim brought something: a worker that waits asks again and again.
pub(crate) struct Claiming(Span);

impl Claiming {
    pub(crate) fn begin(store: &str) -> Self {
        let span =
            tracing::info_span!(target: SPANS, "claim", otel.name = Empty, otel.kind = "client", store);
        Self(span)
    }

    pub(crate) fn end(self, claimed: &Result<ClaimBatch>) {
        let span = self.0;
        if span.is_disabled() {
            return;
        }
        surrounding(&span);
        let batch = match claimed {
            Ok(batch) if batch.items.is_empty() && batch.rejected.is_empty() => return otel::discard(&span),
            Ok(batch) => batch,
            Err(error) => {
                describe(&span, "claim", "receive", None);
                return failed(&span, error);
            }
        };
        let topic = shared(batch.items.iter().map(|item| item.topic.as_str()));
        span.record("otel.name", name("claim", topic));
        describe(&span, "claim", "receive", topic);
        otel::attribute(&span, COUNT, batch.items.len() as i64);
        if !batch.rejected.is_empty() {
            otel::attribute(&span, REJECTED, batch.rejected.len() as i64);
        }
        for item in batch.items.iter().take(LINKS_MAX) {
            if let Some(context) = TraceContext::from_headers(&item.headers) {
                otel::link(&span, context);
            }
        }
    }
}

/// Handling a message: the span, and the context that the handler runs in. It is a child of the one the message was enqueued in (MST-032), and has no other parent:
/// whatever span a worker was started in ends long before, or never.
pub(crate) fn handling(store: &str, claimed: &Claimed, parent: Option<TraceContext>) -> (Span, TraceContext) {
    let own = || parent.map_or_else(TraceContext::root, |parent| parent.child());
    if !wanted() {
        return (Span::none(), own());
    }
    let topic = claimed.topic.as_str();
    let span = tracing::info_span!(
        target: SPANS,
        parent: None,
        "handle",
        otel.name = name("handle", Some(topic)),
        otel.kind = "consumer",
        store,
        topic,
        message_id = %claimed.message_id,
        attempt = claimed.attempt,
        trace_id = Empty,
        span_id = Empty,
        parent_span_id = parent.map(|parent| parent.span_id()),
    );
    if let Some(parent) = parent {
        otel::set_parent(&span, parent, claimed.headers.get(TRACESTATE).map(String::as_str));
    }
    describe(&span, "handle", "process", Some(topic));
    otel::attribute(&span, MESSAGE_ID, claimed.message_id.to_string());
    if let Some(id) = &claimed.correlation_id {
        otel::attribute(&span, CONVERSATION, id.clone());
    }
    let context = otel::context_of(&span).unwrap_or_else(own);
    tracing::record_all!(span, trace_id = context.trace_id(), span_id = context.span_id());
    (span, context)
}

/// What came of it.
pub(crate) fn handled(span: &Span, outcome: &Outcome) {
    if span.is_disabled() {
        return;
    }
    otel::attribute(span, OUTCOME, outcome_name(outcome));
    let (kind, error) = match outcome {
        Outcome::Ack | Outcome::Release { .. } => return,
        Outcome::Abandon { error, .. } => ("retry", error),
        Outcome::Fail { reason, error } | Outcome::Reject { reason, error } => (reason.as_str(), error),
    };
    otel::attribute(span, ERROR, kind);
    otel::failed(span, error.clone().unwrap_or_default());
}

/// It was dropped before its end: the claim was lost, or a stop left it no more time.
pub(crate) fn broken_off(span: &Span) {
    if !span.is_disabled() {
        otel::attribute(span, ERROR, "broken-off");
        otel::failed(span, "the claim was lost, or the process stops".to_owned());
    }
}

/// Settling. `handled` are the contexts of the handlers whose outcomes these are, as far as they ran here.
pub(crate) async fn settling(
    store: &str,
    settlements: &[Settlement],
    handled: &[TraceContext],
    work: impl Future<Output = Result<Settled>>,
) -> Result<Settled> {
    let span = tracing::info_span!(target: SPANS, "settle", otel.kind = "client", store);
    if span.is_disabled() {
        return work.await;
    }
    surrounding(&span);
    describe(&span, "settle", "settle", None);
    otel::attribute(&span, COUNT, settlements.len() as i64);
    if let Some(outcome) = shared(settlements.iter().map(|settlement| outcome_name(&settlement.outcome))) {
        otel::attribute(&span, OUTCOME, outcome);
    }
    for context in handled.iter().take(LINKS_MAX) {
        otel::link(&span, *context);
    }
    let settled = work.instrument(span.clone()).await;
    match &settled {
        Ok(settled) if !settled.stale.is_empty() => {
            otel::attribute(&span, STALE, settled.stale.len() as i64);
        }
        Ok(_) => {}
        Err(error) => failed(&span, error),
    }
    settled
}

/// Whether a span has a parent by where it was made. A scope that only this project knows, as the request of a client is, counts too.
fn surrounding(span: &Span) -> bool {
    if otel::current_context().is_some() {
        return true;
    }
    let scope = TraceContext::of_task();
    if let Some(context) = scope {
        otel::set_parent(span, context, None);
    }
    scope.is_some()
}

fn describe(span: &Span, operation: &'static str, kind: &'static str, topic: Option<&str>) {
    otel::attribute(span, SYSTEM, "mainstay");
    otel::attribute(span, OPERATION, operation);
    otel::attribute(span, OPERATION_TYPE, kind);
    if let Some(topic) = topic {
        otel::attribute(span, DESTINATION, topic.to_owned());
    }
}

fn failed(span: &Span, error: &Error) {
    otel::attribute(span, ERROR, format!("{:?}", error.kind()));
    otel::failed(span, error.to_string());
}

/// The name as the conventions have it: what is done, and to what.
fn name(operation: &str, topic: Option<&str>) -> String {
    match topic {
        Some(topic) => format!("{operation} {topic}"),
        None => operation.to_owned(),
    }
}

/// What all of them have, if they have the same.
fn shared<'a>(mut all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}
