//! Sends spans. OpenTelemetry's batches call this on a thread of their own, one batch at a time; spans that come while their queue is full are dropped.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use prost::Message;
use tokio::runtime::Handle;

use crate::collector::Collector;

/// Sends spans to a collector.
#[derive(Debug)]
pub(crate) struct Spans {
    collector: Arc<Collector>,
    runtime: Handle,
    resource: ResourceAttributesWithSchema,
}

impl Spans {
    pub(crate) fn new(collector: Collector, runtime: Handle) -> Self {
        Self { collector: Arc::new(collector), runtime, resource: ResourceAttributesWithSchema::default() }
    }
}

impl SpanExporter for Spans {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let resource_spans = group_spans_by_resource_and_scope(batch, &self.resource);
        let body = ExportTraceServiceRequest { resource_spans }.encode_to_vec();
        let collector = Arc::clone(&self.collector);
        // Their thread has no runtime to connect in.
        let sent = self.runtime.spawn(async move { collector.send(body).await });
        match sent.await {
            Ok(true) => Ok(()),
            _ => Err(OTelSdkError::InternalFailure("the collector did not take it".to_owned())),
        }
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.resource = resource.into();
    }
}
