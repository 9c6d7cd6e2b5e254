//! Spans as OpenTelemetry has them, through whatever `tracing-opentelemetry` layer the application has installed. Without such a layer all of this
//! does nothing.

use opentelemetry::trace::{SpanContext, SpanId, Status, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry::{Context, Value};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::trace::TraceContext;

use super::DISCARDED;

/// Where OpenTelemetry says that this code stands.
pub(crate) fn current_context() -> Option<TraceContext> {
    Context::map_current(from_context)
}

/// What the tracing systems say among themselves of the trace that this code stands in.
pub(crate) fn current_state() -> Option<String> {
    let state = Context::map_current(|context| context.span().span_context().trace_state().header());
    Some(state).filter(|state| !state.is_empty())
}

/// The context of a span, which begins with this if it has not yet: its parent stays from now on.
pub(super) fn context_of(span: &Span) -> Option<TraceContext> {
    from_context(&span.context())
}

/// Makes a span the child of one elsewhere.
pub(super) fn set_parent(span: &Span, parent: TraceContext, state: Option<&str>) {
    // There may be no layer, and then nobody wants to know.
    let _unheard = span.set_parent(Context::new().with_remote_span_context(remote(parent, state)));
}

/// Links a span to another one.
pub(super) fn link(span: &Span, other: TraceContext) {
    span.add_link(remote(other, None));
}

pub(super) fn attribute(span: &Span, name: &'static str, value: impl Into<Value>) {
    span.set_attribute(name, value);
}

/// What the span stands for has failed.
pub(super) fn failed(span: &Span, why: String) {
    span.set_status(Status::error(why));
}

/// Nothing happened that is worth a span that has not begun yet. A span can't be taken back; one whose parent is not sampled is dropped by every sampler that heeds its parent.
/// For those that don't, the parent's state says it.
pub(super) fn discard(span: &Span) {
    let (trace_id, span_id, _) = TraceContext::root().to_parts();
    let state = format!("{}={}", DISCARDED.0, DISCARDED.1);
    set_parent(span, TraceContext::from_parts(trace_id, span_id, false), Some(&state));
}

fn from_context(context: &Context) -> Option<TraceContext> {
    let span = context.span();
    let context = span.span_context();
    let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(context.span_id().to_bytes());
    context.is_valid().then(|| TraceContext::from_parts(trace_id, span_id, context.is_sampled()))
}

fn remote(context: TraceContext, state: Option<&str>) -> SpanContext {
    let (trace_id, span_id, sampled) = context.to_parts();
    let flags = TraceFlags::default().with_sampled(sampled);
    // A state that can't be read is left out, as W3C asks for.
    let state = state.and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    let (trace_id, span_id) = (TraceId::from(trace_id), SpanId::from(span_id));
    SpanContext::new(trace_id, span_id, flags, true, state)
}
