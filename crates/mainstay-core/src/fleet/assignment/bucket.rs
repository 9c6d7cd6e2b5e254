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
