//! What the engine counts, read back in this process.
//!
//! The library tells its counts to the `metrics` crate; this is the recorder they arrive at while the demo or the
//! benchmark runs. It relies on the names in `mainstay::telemetry::names` and keeps only what is shown.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use mainstay::telemetry::names;
use metrics::{Counter, CounterFn, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::histogram::Histogram;

/// Counts of the engine.
#[derive(Debug, Default, Clone)]
pub(crate) struct Meter(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    enqueued: Arc<Count>,
    done: Arc<Count>,
    retried: Arc<Count>,
    failed: Arc<Count>,
    rejected: Arc<Count>,
    stale: Arc<Count>,
    lag: Arc<Lag>,
}

/// What was counted up to a moment.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Reading {
    /// Messages added.
    pub(crate) enqueued: u64,
    /// Messages acknowledged.
    pub(crate) done: u64,
    /// Deliveries that failed and will be tried again.
    pub(crate) retried: u64,
    /// Messages failed for good.
    pub(crate) failed: u64,
    /// Settles that came too late.
    pub(crate) stale: u64,
}

impl Meter {
    /// Receives the counts of the whole process from now on. Only the first meter of a process receives anything.
    pub(crate) fn install() -> Self {
        let meter = Self::default();
        if metrics::set_global_recorder(meter.clone()).is_err() {
            tracing::warn!("something else receives this process's metrics; what is shown stays at zero");
        }
        meter
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Reading {
        let counts = &self.0;
        Reading {
            enqueued: counts.enqueued.get(),
            done: counts.done.get(),
            retried: counts.retried.get(),
            failed: counts.failed.get() + counts.rejected.get(),
            stale: counts.stale.get(),
        }
    }

    /// How long first deliveries waited from being due to the start of their handler.
    pub(crate) fn lag(&self) -> &Histogram {
        &self.0.lag.0
    }
}

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct Lag(Histogram);

impl HistogramFn for Lag {
    fn record(&self, seconds: f64) {
        if let Ok(lag) = Duration::try_from_secs_f64(seconds) {
            self.0.record(lag);
        }
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let counts = &self.0;
        let outcome = || key.labels().find(|label| label.key() == "outcome").map(|label| label.value());
        let count = match key.name() {
            names::ENQUEUED => &counts.enqueued,
            names::REJECTED => &counts.rejected,
            names::STALE => &counts.stale,
            names::SETTLED => match outcome() {
                Some("ack") => &counts.done,
                Some("abandon") => &counts.retried,
                Some("fail") => &counts.failed,
                _ => return Counter::noop(),
            },
            _ => return Counter::noop(),
        };
        Counter::from_arc(Arc::clone(count))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        match key.name() {
            names::LAG_SECONDS => metrics::Histogram::from_arc(Arc::clone(&self.0.lag)),
            _ => metrics::Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_arrive_under_their_names() {
        let meter = Meter::default();
        metrics::with_local_recorder(&meter, || {
            metrics::counter!(names::ENQUEUED, "topic" => "a").increment(2);
            metrics::counter!(names::ENQUEUED, "topic" => "b").increment(3);
            metrics::counter!(names::SETTLED, "outcome" => "ack").increment(4);
            metrics::counter!(names::SETTLED, "outcome" => "release").increment(9);
            metrics::counter!(names::REJECTED, "reason" => "expired").increment(1);
            metrics::histogram!(names::LAG_SECONDS).record(0.5);
        });
        let read = meter.read();
        assert_eq!((read.enqueued, read.done, read.failed, read.stale), (5, 4, 1, 0));
        assert!(meter.lag().percentile(0.5).is_some());
    }
}
