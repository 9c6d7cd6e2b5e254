//! W3C trace context: how a trace goes on across the queue.
//!
//! The context in force at enqueue travels in the message's `traceparent` header. The handler's span is its child,
//! and what the handler enqueues continues from there. With the feature `otel`, contexts are those of OpenTelemetry's spans.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::telemetry;

/// The header that carries a [`TraceContext`].
pub const TRACEPARENT: &str = "traceparent";

/// The header with what tracing systems say of a trace among themselves. It means nothing without [`TRACEPARENT`].
pub const TRACESTATE: &str = "tracestate";

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// A position in a distributed trace (`traceparent` of W3C Trace Context, version 00).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    sampled: bool,
}

impl TraceContext {
    #[cfg(feature = "otel")]
    pub(crate) fn from_parts(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        Self { trace_id, span_id, sampled }
    }

    #[cfg(feature = "otel")]
    pub(crate) fn to_parts(self) -> (u128, u64, bool) {
        (self.trace_id, self.span_id, self.sampled)
    }

    /// A new trace.
    pub fn root() -> Self {
        Self { trace_id: random(), span_id: random_span(), sampled: true }
    }

    /// A new span in the same trace.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: random_span(), ..*self }
    }

    /// The trace's id, 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace_id)
    }

    /// The span's id, 16 hexadecimal digits.
    pub fn span_id(&self) -> String {
        format!("{:016x}", self.span_id)
    }

    /// Where the code that asks stands: in OpenTelemetry's current span, or else in the handler, or the scope, that is running on this task.
    pub fn current() -> Option<Self> {
        telemetry::current_context().or_else(Self::of_task)
    }

    /// That of the handler, or the scope, that is running on this task, whatever spans there are in it.
    pub(crate) fn of_task() -> Option<Self> {
        CURRENT.try_with(|context| *context).ok()
    }

    /// Runs `future` with this context as [`TraceContext::current`].
    pub async fn scope<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    /// Runs `future` with a context as [`TraceContext::current`], if there is one.
    pub async fn within<F: Future>(context: Option<Self>, future: F) -> F::Output {
        match context {
            Some(context) => context.scope(future).await,
            None => future.await,
        }
    }

    /// The context in a message's headers; a malformed one counts as none.
    pub fn from_headers(headers: &BTreeMap<String, String>) -> Option<Self> {
        headers.get(TRACEPARENT)?.parse().ok()
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = u8::from(self.sampled);
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id)
    }
}

impl FromStr for TraceContext {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| {
            Error::invalid("trace.parse", TRACEPARENT, "must be 00-<32 hex>-<16 hex>-<2 hex>, not all zero")
        })
    }
}

fn parse(text: &str) -> Option<TraceContext> {
    let lower_hex = |part: &str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = text.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let known_version = version == "00" && parts.next().is_none();
    // A later version may append fields; its first four keep their meaning.
    let later_version = version != "00" && version != "ff" && version.len() == 2 && lower_hex(version);
    let well_formed = trace.len() == 32 && span.len() == 16 && flags.len() == 2;
    if !(known_version || later_version) || !well_formed {
        return None;
    }
    if ![trace, span, flags].into_iter().all(lower_hex) {
        return None;
    }
    let trace_id = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?;
    let span_id = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    Some(TraceContext { trace_id, span_id, sampled: flags & 1 == 1 })
}

fn random() -> u128 {
    u128::from(random_span()) << 64 | u128::from(random_span())
}

/// Never zero. Ids must differ and need not be secret; the standard library's seeds do, and cost no call of the system.
fn random_span() -> u64 {
    RandomState::new().hash_one(()).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_round_trips() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let child = context.child();
        assert_eq!(child.trace_id(), context.trace_id());
        assert_ne!(child.span_id(), context.span_id());
    }

    #[test]
    fn malformed_ones_are_refused() {
        let zero_trace = EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32));
        let upper = EXAMPLE.to_uppercase();
        for text in
            ["", "00-1-2-3", &zero_trace, &upper, &format!("{EXAMPLE}-x"), &EXAMPLE.replace("00-", "ff-")]
        {
            assert!(text.parse::<TraceContext>().is_err(), "{text:?}");
        }
        assert!(format!("cc{}-more", &EXAMPLE[2..]).parse::<TraceContext>().is_ok());
    }
}
