//! Random numbers that a seed decides.

/// A generator of random numbers (SplitMix64). The same seed gives the same numbers on every machine and in every
/// release.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator for a seed and a name: generators of different names are independent.
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Self(seed ^ hash);
        // Seeds are small numbers that have most bits in common.
        random.next();
        random
    }

    /// A generator for the `number`-th of several things with one seed.
    pub(crate) fn of(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// A number below `bound`; 0 where that is 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % (bound.max(1) as u64)) as usize
    }

    /// Mixes up the order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }

    /// True in one of `of` cases.
    pub(crate) fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.next() % 100 < percent
    }

    /// One of several.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub(crate) fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[(self.next() % choices.len() as u64) as usize]
    }
}
