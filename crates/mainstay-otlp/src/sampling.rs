//! Which spans are kept: what the sampler says, but for claims that brought nothing.

use mainstay_core::telemetry::DISCARDED;
use opentelemetry::trace::{Link, SpanKind, TraceContextExt, TraceId};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, SamplingResult, ShouldSample};

/// A sampler that keeps nothing of what was discarded. One that does not heed parents would keep every look for work, a few each second, all day.
#[derive(Debug, Clone)]
pub(crate) struct WithoutDiscarded(pub(crate) Sampler);

impl ShouldSample for WithoutDiscarded {
    fn should_sample(
        &self,
        parent: Option<&Context>,
        trace_id: TraceId,
        name: &str,
        kind: &SpanKind,
        attributes: &[KeyValue],
        links: &[Link],
    ) -> SamplingResult {
        let state =
            parent.map(|parent| parent.span().span_context().trace_state().clone()).unwrap_or_default();
        if state.get(DISCARDED.0) == Some(DISCARDED.1) {
            // With the state, so that what begins within it is dropped, too.
            return SamplingResult {
                decision: SamplingDecision::Drop,
                attributes: Vec::new(),
                trace_state: state,
            };
        }
        self.0.should_sample(parent, trace_id, name, kind, attributes, links)
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{Span, SpanContext, SpanId, TraceFlags, TraceState, Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;

    use super::*;

    #[test]
    fn nothing_is_kept_of_what_was_discarded() {
        for sampler in [Sampler::AlwaysOn, Sampler::TraceIdRatioBased(1.0)] {
            let provider = SdkTracerProvider::builder().with_sampler(WithoutDiscarded(sampler)).build();
            let tracer = provider.tracer("t");
            let parent = |state: TraceState| {
                let (trace, span) = (TraceId::from(1_u128), SpanId::from(1_u64));
                let context = SpanContext::new(trace, span, TraceFlags::default(), true, state);
                Context::new().with_remote_span_context(context)
            };
            let discarded = parent(TraceState::from_key_value([DISCARDED]).unwrap());
            let claim = tracer.start_with_context("claim", &discarded);
            assert!(!claim.span_context().is_sampled());
            let within = Context::new().with_remote_span_context(claim.span_context().clone());
            assert!(!tracer.start_with_context("query", &within).span_context().is_sampled());
            let other = tracer.start_with_context("claim", &parent(TraceState::default()));
            assert!(other.span_context().is_sampled(), "this sampler heeds no parent");
        }
    }
}
