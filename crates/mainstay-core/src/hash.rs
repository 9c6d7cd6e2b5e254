//! Maps by ids and topics, which the dispatcher asks several times per message: with the standard hasher that was a fifth of all it
//! does. This one mixes eight bytes by one multiplication. It is seeded at random once per process, so nobody can choose keys
//! that collide without seeing the seed.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map by id or topic.
pub(crate) type Map<K, V> = HashMap<K, V, Seeded>;
/// A set of ids or topics.
pub(crate) type Set<K> = HashSet<K, Seeded>;

/// An odd number without a pattern (the fraction of the golden ratio).
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes the hashers of a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seeded(u64);

impl Default for Seeded {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Self(*SEED.get_or_init(|| RandomState::new().hash_one(FACTOR)))
    }
}

impl BuildHasher for Seeded {
    type Hasher = Mixer;

    fn build_hasher(&self) -> Mixer {
        Mixer(self.0)
    }
}

/// Mixes what it is given into one number.
#[derive(Debug)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        // Both halves: the low one alone would keep the low bits of the number as they are.
        self.0 = (product as u64) ^ ((product >> 64) as u64);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        // A product of zero would hide what comes after it; the last step also spreads the high bits, which the map looks at.
        let product = u128::from(self.0 ^ FACTOR) * u128::from(FACTOR);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::WorkItemId;

    /// Keys per bucket, at most and on average, by the bits a map uses first.
    fn spread<K: std::hash::Hash>(keys: impl Iterator<Item = K>, bits: u32) -> (usize, f64) {
        let mut buckets = vec![0; 1 << bits];
        let mut count = 0;
        for key in keys {
            buckets[(Seeded::default().hash_one(&key) & ((1 << bits) - 1)) as usize] += 1;
            count += 1;
        }
        (buckets.iter().copied().max().unwrap_or(0), f64::from(count) / f64::from(1 << bits))
    }

    #[test]
    fn ids_and_topics_spread_over_a_map() {
        let (most, average) = spread((0..64_000).map(|_| WorkItemId::new()), 10);
        assert!((most as f64) < 2.0 * average, "{most} of {average}");
        let (most, average) = spread((0..64_000).map(|n| format!("orders.topic-{n}")), 10);
        assert!((most as f64) < 2.0 * average, "{most} of {average}");
        let (most, average) = spread(0..64_000_u64, 10);
        assert!((most as f64) < 2.0 * average, "{most} of {average}");
    }

    #[test]
    fn different_texts_have_different_hashes() {
        let seeded = Seeded::default();
        let texts = ["", "a", "b", "ab", "abcdefgh", "abcdefgh\0", "abcdefghi", "abcdefgi"];
        let hashes: HashSet<u64> = texts.iter().map(|text| seeded.hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
