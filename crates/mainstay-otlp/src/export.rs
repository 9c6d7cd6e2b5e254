//! The export as a whole: what gathers, what sends, and how it ends.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use mainstay_core::Result;
use opentelemetry::KeyValue;
use opentelemetry::trace::TracerProvider;
use opentelemetry_proto::transform::common::tonic::Attributes;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Subscriber;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::registry::LookupSpan;

use crate::OtlpOptions;
use crate::collector::Collector;
use crate::gathered::Gathered;
use crate::options::Signal;
use crate::recorder::OtlpRecorder;
use crate::sampling::WithoutDiscarded;
use crate::spans::Spans;

/// A layer for `tracing` whose spans go to the collector.
pub type SpanLayer<S> = OpenTelemetryLayer<S, SdkTracer>;

/// An export that runs.
#[derive(Debug)]
pub struct Otlp {
    traces: Option<SdkTracerProvider>,
    recorder: Option<OtlpRecorder>,
    sending: Mutex<Option<JoinHandle<()>>>,
    closing: CancellationToken,
}

impl Otlp {
    /// Begins to export, within a Tokio runtime. None when the options name no endpoint, or turn both signals off.
    ///
    /// Nothing is gathered until [`Otlp::layer`] and [`Otlp::recorder`] are installed.
    pub fn start(options: &OtlpOptions) -> Result<Option<Self>> {
        let (traces_to, metrics_to) = (options.traces_to()?, options.metrics_to()?);
        let sampler = options.sampler()?;
        let interval = options.metric_interval()?;
        if traces_to.is_none() && metrics_to.is_none() {
            return Ok(None);
        }
        let closing = CancellationToken::new();
        let resource = resource(options);
        let mut traces = None;
        if let Some(uri) = traces_to {
            let collector = Collector::new(Signal::Traces, uri, options, closing.clone())?;
            let provider = SdkTracerProvider::builder()
                .with_batch_exporter(Spans::new(collector, Handle::current()))
                .with_sampler(WithoutDiscarded(sampler))
                .with_resource(resource.clone());
            traces = Some(provider.build());
        }
        let (mut recorder, mut sending) = (None, None);
        if let Some(uri) = metrics_to {
            let collector = Collector::new(Signal::Metrics, uri, options, closing.clone())?;
            let cells = OtlpRecorder::new();
            recorder = Some(cells.clone());
            let resource = proto(&resource);
            let gathered =
                Gathered { recorder: cells, resource, collector, interval, since: SystemTime::now() };
            sending = Some(tokio::spawn(gathered.run(closing.clone())));
        }
        Ok(Some(Self { traces, recorder, sending: Mutex::new(sending), closing }))
    }

    /// The layer for `tracing`; none where no traces are sent. Spans that pass its filter, of this project or not, are sent.
    pub fn layer<S>(&self) -> Option<SpanLayer<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.traces.as_ref()?.tracer("mainstay");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        // Where in the code, and on which thread, is what nobody asks of a message.
        Some(layer.with_location(false).with_threads(false).with_tracked_inactivity(false).with_target(false))
    }

    /// The recorder for `metrics`; none where no metrics are sent. Beside another one with `metrics_util::layers::FanoutBuilder`.
    pub fn recorder(&self) -> Option<OtlpRecorder> {
        self.recorder.clone()
    }

    /// Sends what is left, for no longer than `within`.
    pub async fn stop(&self, within: Duration) {
        self.closing.cancel();
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let metrics = async {
            if let Some(sending) = sending {
                // What panicked has nothing left to send.
                let _ended = tokio::time::timeout(within, sending).await;
            }
        };
        let traces = async {
            if let Some(provider) = self.traces.clone() {
                // It waits on this thread otherwise, which may be the only one that could send.
                let flush = move || provider.shutdown_with_timeout(within);
                let _flushed = tokio::time::timeout(within, tokio::task::spawn_blocking(flush)).await;
            }
        };
        tokio::join!(metrics, traces);
    }
}

/// What this process is. Each has an instance id of its own: two that count the same things must not be taken for one.
fn resource(options: &OtlpOptions) -> Resource {
    let name = options.service_name.clone();
    let named = options.resource_attributes.contains_key("service.name");
    let defaults = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", uuid::Uuid::new_v4().to_string()),
    ];
    let given =
        options.resource_attributes.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    let builder = Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes(defaults)
        .with_attributes(given);
    match name {
        Some(name) => builder.with_service_name(name).build(),
        None if named => builder.build(),
        None => builder.with_service_name("mainstay").build(),
    }
}

fn proto(resource: &Resource) -> opentelemetry_proto::tonic::resource::v1::Resource {
    let attributes = resource.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone()));
    opentelemetry_proto::tonic::resource::v1::Resource {
        attributes: Attributes::from(attributes).0,
        ..Default::default()
    }
}
