//! Spreading slices that are due at the same time, alike on every machine.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::FanoutKey;

/// How long after its nominal time a slice is due: from zero up to, but not, `most`, to the millisecond.
///
/// The same for the same topic, work key, shard and window on every machine and in every version, so that any number of coordinators
/// agree on the due time without speaking to each other (R23).
pub fn jitter(key: &FanoutKey, shard_key: &str, window: Timestamp, most: Duration) -> Duration {
    let mut hash = Sha256::new_with_prefix("mainstay.fanout.jitter\0");
    // None of them has a NUL, so nothing else gives the same bytes.
    for text in [key.topic(), key.work_key(), shard_key] {
        hash.update(text);
        hash.update([0]);
    }
    hash.update(window.as_microsecond().to_be_bytes());
    crate::job::share(&hash.finalize(), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_everywhere_and_depends_on_all_four() {
        let window: Timestamp = "2027-01-31T09:00:00Z".parse().unwrap();
        let most = Duration::from_secs(60);
        let of = |topic: &str, work_key: &str, shard: &str, window| {
            jitter(&FanoutKey::new(topic, work_key).unwrap(), shard, window, most)
        };
        let one = of("etl", "payments", "7", window);
        // Written down once: a change would move the slices of every shard at the update.
        assert_eq!(one, Duration::from_millis(456));
        assert_ne!(one, of("elt", "payments", "7", window));
        assert_ne!(one, of("etl", "vendors", "7", window));
        assert_ne!(one, of("etl", "payments", "8", window));
        assert_ne!(one, of("etl", "payments", "7", window + jiff::SignedDuration::from_micros(1)));
        assert_eq!(jitter(&FanoutKey::new("a", "b").unwrap(), "c", window, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn it_is_spread_over_the_whole_and_never_reaches_the_end() {
        let (key, window) = (FanoutKey::new("etl", "payments").unwrap(), Timestamp::UNIX_EPOCH);
        let mut tenths = [0; 10];
        for shard in 0..10_000 {
            let jitter = jitter(&key, &shard.to_string(), window, Duration::from_secs(10));
            tenths[jitter.as_secs() as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
    }
}
