//! Durations, counted so that percentiles can be told: to within 2 %, without a lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each doubling is divided into this many buckets.
const PARTS: u64 = 64;
/// The largest shift of a value before it is counted; beyond about 12 days all counts as the same.
const LARGEST_SHIFT: u64 = 34;
const BUCKETS: usize = ((LARGEST_SHIFT + 2) * PARTS) as usize;

/// Counts of durations.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Histogram {
    /// Counts one.
    pub(crate) fn record(&self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[bucket_of(micros)].fetch_add(1, Ordering::Relaxed);
    }

    /// The duration below which this part of all lies; none when nothing was counted.
    pub(crate) fn percentile(&self, part: f64) -> Option<Duration> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let total: u64 = counts.iter().sum();
        let wanted = ((total as f64 * part).ceil() as u64).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(Duration::from_micros(middle_of(found)))
    }
}

fn bucket_of(micros: u64) -> usize {
    let magnitude = 63 - u64::from((micros | 1).leading_zeros());
    let shift = magnitude.saturating_sub(6);
    if shift > LARGEST_SHIFT {
        return BUCKETS - 1;
    }
    (shift * PARTS + (micros >> shift)) as usize
}

fn middle_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = bucket / PARTS - 1;
    ((bucket - shift * PARTS) << shift) + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_told_to_within_two_percent() {
        for micros in (0..10_000).chain([123_456, 9_999_999, 3_600_000_000]) {
            let told = middle_of(bucket_of(micros));
            assert!(told.abs_diff(micros) * 50 <= micros, "{micros} is told as {told}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_in_their_place() {
        let histogram = Histogram::default();
        assert_eq!(histogram.percentile(0.5), None);
        (1..=100).for_each(|ms| histogram.record(Duration::from_millis(ms)));
        for (part, ms) in [(0.5, 50.0), (0.95, 95.0), (0.99, 99.0)] {
            let told = histogram.percentile(part).unwrap().as_secs_f64() * 1e3;
            assert!((told - ms).abs() <= ms * 0.02, "{part}: {told}");
        }
    }
}
