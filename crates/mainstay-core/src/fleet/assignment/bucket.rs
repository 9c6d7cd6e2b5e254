//! Buckets: what databases are put into, and which node should have which.
//!
//! Everything here is a calculation that gives the same on every machine and in every version; nodes rely on it without speaking to
//! each other. [`VERSION`] must change with it.

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// What members compare before they rely on each other's calculations.
const VERSION: u32 = 1;

/// Chosen among many so that the seats a fleet has when nobody has left it, the lowest, have equal shares of 64 buckets.
const SEED: u64 = 0x3b3c_44d5_1acd_3c4f;

/// The most buckets there may be: each is a row, and renewed with every turn of its node.
const MOST: u32 = 1_024;

/// The buckets of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buckets(u32);

impl Buckets {
    /// So many of them, 1 to 1,024.
    pub fn new(count: u32) -> Result<Self> {
        if (1..=MOST).contains(&count) {
            return Ok(Self(count));
        }
        let reason = format_args!("must be 1 to 1,024, got {count}");
        Err(Error::invalid("fleet.assignment", "buckets", reason))
    }

    /// How many there are.
    pub fn count(self) -> u32 {
        self.0
    }

    /// The numbers of all of them.
    pub fn all(self) -> impl Iterator<Item = u32> {
        0..self.0
    }

    /// The bucket of a database.
    pub fn of(self, database: &str) -> u32 {
        let digest = Sha256::new_with_prefix("mainstay.fleet.bucket\0").chain_update(database).finalize();
        let number = digest.iter().take(8).fold(0, |number, byte| number << 8 | u128::from(*byte));
        // The share of 2^64 that the number is, of the buckets there are: less than all of them.
        ((number * u128::from(self.0)) >> 64) as u32
    }

    /// Who of `seats` should have a bucket: the one with the highest score for it (rendezvous hashing). So a seat that is added only
    /// takes buckets, and one that is gone only leaves its own to others. None when there are no seats.
    pub fn wanted_by(bucket: u32, seats: impl IntoIterator<Item = u32>) -> Option<u32> {
        seats.into_iter().max_by_key(|seat| (score(SEED, bucket, *seat), *seat))
    }

    /// What all members of a fleet must agree on, as text.
    pub(super) fn agreement(self) -> String {
        format!("{} buckets, version {VERSION}", self.0)
    }
}

impl Default for Buckets {
    fn default() -> Self {
        Self(64)
    }
}

/// A number for a bucket and a seat, without a pattern (the end of SplitMix64).
fn score(seed: u64, bucket: u32, seat: u32) -> u64 {
    let mut z = (u64::from(bucket) << 32 | u64::from(seat)) ^ seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    /// Who should have which bucket.
    fn shares(buckets: Buckets, seats: &BTreeSet<u32>) -> BTreeMap<u32, u32> {
        let share = |bucket| Some((bucket, Buckets::wanted_by(bucket, seats.iter().copied())?));
        buckets.all().filter_map(share).collect()
    }

    fn count(shares: &BTreeMap<u32, u32>, seat: u32) -> usize {
        shares.values().filter(|wanted_by| **wanted_by == seat).count()
    }

    #[test]
    fn it_is_the_same_everywhere_and_always() {
        // Written down once: with a change two nodes of different versions would work on the same database.
        let buckets = Buckets::default();
        let found = ["tenant-1", "tenant-2", "", "ü"].map(|id| buckets.of(id));
        assert_eq!(found, [28, 57, 25, 36]);
        let seats = BTreeSet::from([0, 1, 2, 7]);
        let first: Vec<u32> = shares(buckets, &seats).into_values().take(12).collect();
        assert_eq!(first, [2, 0, 2, 7, 0, 7, 7, 0, 2, 7, 7, 1]);
        assert_eq!(buckets.agreement(), "64 buckets, version 1");
    }

    #[test]
    fn the_seats_of_a_fleet_that_nobody_left_have_equal_shares() {
        for nodes in 1..=10 {
            let shares = shares(Buckets::default(), &(0..nodes).collect());
            let mean = 64 / nodes as usize;
            for seat in 0..nodes {
                let share = count(&shares, seat);
                assert!(
                    share >= mean - mean / 5 - 1 && share <= mean + 2,
                    "{share} of {mean} for {seat} of {nodes}"
                );
            }
        }
    }

    #[test]
    fn databases_are_spread_over_the_buckets() {
        let buckets = Buckets::default();
        for id in [|n: u32| format!("tenant-{n}"), |n: u32| uuid::Uuid::from_u128(n.into()).to_string()] {
            let mut counts = vec![0_u32; 64];
            for tenant in 0..64_000 {
                counts[buckets.of(&id(tenant)) as usize] += 1;
            }
            // Four deviations either way.
            assert!(counts.iter().all(|count| (870..1_130).contains(count)), "{counts:?}");
        }
    }

    #[test]
    fn there_are_1_to_1024_of_them() {
        assert!(Buckets::new(0).is_err() && Buckets::new(1_025).is_err());
        assert_eq!(Buckets::new(1).unwrap().of("anything"), 0);
        assert_eq!(Buckets::wanted_by(3, []), None);
    }

    proptest! {
        #[test]
        fn every_database_has_a_bucket(id in ".{0,64}", count in 1..=1_024_u32) {
            prop_assert!(Buckets::new(count).unwrap().of(&id) < count);
        }

        #[test]
        fn nobody_has_much_more_than_its_share(seats in prop::collection::btree_set(0..10_000_u32, 1..12)) {
            let buckets = Buckets::new(1_024).unwrap();
            let (shares, mean) = (shares(buckets, &seats), 1_024.0 / seats.len() as f64);
            prop_assert_eq!(shares.len(), 1_024, "every bucket is somebody's");
            for seat in &seats {
                // Five deviations of what is left to chance.
                let share = count(&shares, *seat) as f64;
                prop_assert!((share - mean).abs() <= 5.0 * mean.sqrt(), "{} of {}", share, mean);
            }
        }

        #[test]
        fn whoever_comes_only_takes_and_whoever_goes_only_leaves(
            seats in prop::collection::btree_set(0..1_000_u32, 2..20),
            which in any::<prop::sample::Index>(),
        ) {
            let buckets = Buckets::default();
            let one = *seats.iter().nth(which.index(seats.len())).unwrap();
            let mut without = seats.clone();
            without.remove(&one);
            let (with, without) = (shares(buckets, &seats), shares(buckets, &without));
            for bucket in buckets.all() {
                prop_assert!(
                    with[&bucket] == without[&bucket] || with[&bucket] == one,
                    "bucket {} moves between two that stay", bucket
                );
            }
        }
    }
}
