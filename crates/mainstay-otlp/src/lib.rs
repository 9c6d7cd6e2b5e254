//! Traces and metrics over OTLP/HTTP, to any OpenTelemetry collector.
//!
//! [`OtlpOptions`] says where to, from the standard environment variables or from a file; [`Otlp`] makes a layer for `tracing` and a recorder for `metrics`
//! of it, and sends what they gather. A collector that is slow, away or answers nonsense never holds up work: what it does not take in time is dropped, memory is
//! bounded, and the log says so now and then.
//!
//! Applications that have an OpenTelemetry pipeline of their own don't need this crate: the feature `otel` is enough.

mod collector;
mod environment;
mod export;
mod gathered;
mod options;
mod recorder;
mod sampling;
mod spans;
mod trouble;

pub use export::{Otlp, SpanLayer};
pub use options::OtlpOptions;
pub use recorder::OtlpRecorder;
