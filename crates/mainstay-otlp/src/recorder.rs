//! Takes in metrics, for OTLP: the same names, labels and buckets that Prometheus is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mainstay_core::telemetry::BUCKETS;
use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::registry::{Registry, Storage};

pub(crate) type Cells = Registry<Key, Kinds>;

/// A recorder for the `metrics` facade. Cheap to clone; all clones record into the same cells.
#[derive(Clone)]
pub struct OtlpRecorder(pub(crate) Arc<Cells>);

impl OtlpRecorder {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Registry::new(Kinds)))
    }
}

impl std::fmt::Debug for OtlpRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OtlpRecorder").finish_non_exhaustive()
    }
}

impl Recorder for OtlpRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.0.get_or_create_counter(key, |cell| Counter::from_arc(Arc::clone(cell)))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.0.get_or_create_gauge(key, |cell| Gauge::from_arc(Arc::clone(cell)))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.0.get_or_create_histogram(key, |cell| Histogram::from_arc(Arc::clone(cell)))
    }
}

/// What is kept of each kind of metric.
pub(crate) struct Kinds;

impl Storage<Key> for Kinds {
    type Counter = Arc<AtomicU64>;
    type Gauge = Arc<AtomicU64>;
    type Histogram = Arc<Buckets>;

    fn counter(&self, _: &Key) -> Self::Counter {
        Arc::default()
    }
    fn gauge(&self, _: &Key) -> Self::Gauge {
        Arc::default()
    }
    fn histogram(&self, _: &Key) -> Self::Histogram {
        Arc::default()
    }
}

/// A histogram that never grows: how many values are in each bucket, and their sum.
#[derive(Default)]
pub(crate) struct Buckets {
    counts: [AtomicU64; BUCKETS.len() + 1],
    /// The bits of a number.
    sum: AtomicU64,
}

impl Buckets {
    /// How many values there are in each bucket, the last one without an upper bound, and what they come to.
    pub(crate) fn read(&self) -> (Vec<u64>, f64) {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        (counts, f64::from_bits(self.sum.load(Ordering::Relaxed)))
    }
}

impl HistogramFn for Buckets {
    fn record(&self, value: f64) {
        let bucket = BUCKETS.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        let add = |sum| Some((f64::from_bits(sum) + value).to_bits());
        // It never refuses to add.
        let _added = self.sum.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_is_not_below_it() {
        let buckets = Buckets::default();
        for value in [0.0, BUCKETS[0], BUCKETS[0] * 1.01, 1e9] {
            buckets.record(value);
        }
        let (counts, sum) = buckets.read();
        assert_eq!((counts[0], counts[1], counts[BUCKETS.len()]), (2, 1, 1));
        assert!((sum - (1e9 + BUCKETS[0] * 2.01)).abs() < 1e-3, "{sum}");
    }
}
