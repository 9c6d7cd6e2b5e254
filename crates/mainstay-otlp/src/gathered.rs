//! Sends what the recorder has: all of it each time, counted from the start (cumulative), so that an export that is lost is made up for by the next.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mainstay_core::telemetry::BUCKETS;
use metrics::Key;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio_util::sync::CancellationToken;

use crate::collector::Collector;
use crate::recorder::OtlpRecorder;

const CUMULATIVE: i32 = AggregationTemporality::Cumulative as i32;

/// The metrics on their way to a collector.
pub(crate) struct Gathered {
    pub(crate) recorder: OtlpRecorder,
    pub(crate) resource: Resource,
    pub(crate) collector: Collector,
    pub(crate) interval: Duration,
    pub(crate) since: SystemTime,
}

impl Gathered {
    /// Sends them now and then, and a last time once it is stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let stopped = stop.run_until_cancelled(tokio::time::sleep(self.interval)).await.is_none();
            let request = self.request(SystemTime::now());
            if !request.resource_metrics.is_empty() {
                self.collector.send(request.encode_to_vec()).await;
            }
            if stopped {
                return;
            }
        }
    }

    fn request(&self, now: SystemTime) -> ExportMetricsServiceRequest {
        let metrics = self.read((nanos(self.since), nanos(now)));
        if metrics.is_empty() {
            return ExportMetricsServiceRequest::default();
        }
        let scope = InstrumentationScope {
            name: "mainstay".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..Default::default() }];
        let resource = Some(self.resource.clone());
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics { resource, scope_metrics, ..Default::default() }],
        }
    }

    fn read(&self, (start_time_unix_nano, time_unix_nano): (u64, u64)) -> Vec<Metric> {
        let mut counters: BTreeMap<String, Vec<NumberDataPoint>> = BTreeMap::new();
        let mut gauges: BTreeMap<String, Vec<NumberDataPoint>> = BTreeMap::new();
        let mut histograms: BTreeMap<String, Vec<HistogramDataPoint>> = BTreeMap::new();
        let point = |key: &Key, value: Number| NumberDataPoint {
            attributes: labels(key),
            start_time_unix_nano,
            time_unix_nano,
            value: Some(value),
            ..Default::default()
        };
        let cells = &self.recorder.0;
        cells.visit_counters(|key, cell| {
            // More than half of all numbers are not to be expected.
            let count = i64::try_from(cell.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
            counters.entry(key.name().to_owned()).or_default().push(point(key, Number::AsInt(count)));
        });
        cells.visit_gauges(|key, cell| {
            let value = f64::from_bits(cell.load(Ordering::Relaxed));
            gauges.entry(key.name().to_owned()).or_default().push(point(key, Number::AsDouble(value)));
        });
        cells.visit_histograms(|key, cell| {
            let (bucket_counts, sum) = cell.read();
            histograms.entry(key.name().to_owned()).or_default().push(HistogramDataPoint {
                attributes: labels(key),
                start_time_unix_nano,
                time_unix_nano,
                count: bucket_counts.iter().sum(),
                sum: Some(sum),
                bucket_counts,
                explicit_bounds: BUCKETS.to_vec(),
                ..Default::default()
            });
        });
        let counters = counters.into_iter().map(|(name, data_points)| {
            let sum = Sum { data_points, aggregation_temporality: CUMULATIVE, is_monotonic: true };
            metric(name, Data::Sum(sum))
        });
        let gauges =
            gauges.into_iter().map(|(name, data_points)| metric(name, Data::Gauge(Gauge { data_points })));
        let histograms = histograms.into_iter().map(|(name, data_points)| {
            let histogram = Histogram { data_points, aggregation_temporality: CUMULATIVE };
            metric(name, Data::Histogram(histogram))
        });
        counters.chain(gauges).chain(histograms).collect()
    }
}

fn metric(name: String, data: Data) -> Metric {
    let unit = if name.ends_with("_seconds") { "s" } else { "" }.to_owned();
    Metric { name, unit, data: Some(data), ..Default::default() }
}

fn labels(key: &Key) -> Vec<KeyValue> {
    let attribute = |name: &str, value: &str| KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) }),
        ..Default::default()
    };
    key.labels().map(|label| attribute(label.key(), label.value())).collect()
}

fn nanos(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
