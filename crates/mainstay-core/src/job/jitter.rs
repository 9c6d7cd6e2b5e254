//! Spreading jobs that are due at the same time, alike on every machine.

use std::time::Duration;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

/// How long after its nominal time an occurrence is due: from zero up to, but not, `most`, to the millisecond.
///
/// The same for the same job and nominal time on every machine and in every version, so that any number of schedulers
/// agree on the due time without speaking to each other.
pub fn jitter(job: &str, nominal: Timestamp, most: Duration) -> Duration {
    let mut hash = Sha256::new_with_prefix("mainstay.job.jitter\0");
    hash.update(job);
    // A name has no NUL, so nothing else gives the same bytes.
    hash.update([0]);
    hash.update(nominal.as_microsecond().to_be_bytes());
    share(&hash.finalize(), most)
}

/// From zero up to, but not, `most`, to the millisecond: as much of it as the hash is of all hashes.
pub(crate) fn share(hash: &[u8], most: Duration) -> Duration {
    let number = hash.iter().take(8).fold(0, |number, byte| number << 8 | u128::from(*byte));
    let milliseconds = most.as_millis().min(u64::MAX.into());
    // The share of 2^64 that the number is, of the milliseconds there are: less than all of them.
    Duration::from_millis(((number * milliseconds) >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_everywhere_and_always() {
        let nominal: Timestamp = "2027-01-31T09:00:00Z".parse().unwrap();
        // Written down once: a change would move the runs of every job at the update.
        assert_eq!(jitter("report", nominal, Duration::from_secs(60)), Duration::from_millis(26_940));
        assert_eq!(jitter("report", nominal, Duration::ZERO), Duration::ZERO);
        assert_eq!(jitter("report", nominal, Duration::from_millis(1)), Duration::ZERO);
    }

    #[test]
    fn it_is_spread_over_the_whole_and_never_reaches_the_end() {
        let most = Duration::from_secs(10);
        let mut tenths = [0; 10];
        for second in 0..10_000 {
            let jitter = jitter("report", Timestamp::from_second(second).unwrap(), most);
            assert!(jitter < most);
            tenths[jitter.as_secs() as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (850..1_150).contains(count)), "{tenths:?}");
        let nominal = Timestamp::UNIX_EPOCH;
        assert_ne!(jitter("a", nominal, most), jitter("b", nominal, most));
    }
}
