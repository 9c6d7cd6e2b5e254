//! Numbers that only ever grow: generations, epochs, fencing tokens.
//!
//! Such a number is a version, so the order of the calls that were given one needs no search.

use super::operations::Operation;

/// A number that a call was given.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Numbered<'a> {
    pub operation: &'a Operation<'a>,
    pub number: i64,
}

/// Tells whether a number that a call was given stays given.
pub(crate) type Lasts = fn(&Operation<'_>) -> bool;

/// A failover that undoes the call gives its number again.
pub(crate) fn unless_lost(operation: &Operation<'_>) -> bool {
    operation.surely()
}

/// Not even a failover that undoes the call gives its number again.
pub(crate) fn always(operation: &Operation<'_>) -> bool {
    operation.answer().is_some()
}

/// Finds the highest number that had been given by a time.
#[derive(Debug)]
pub(crate) struct HighWater<'a> {
    /// By the time of the answer, each the highest up to there.
    highest: Vec<(u64, Numbered<'a>)>,
}

impl<'a> HighWater<'a> {
    /// Leaves out the numbers that a failover can have undone.
    pub(crate) fn new(numbers: impl IntoIterator<Item = Numbered<'a>>) -> Self {
        Self::of(numbers, unless_lost)
    }

    fn of(numbers: impl IntoIterator<Item = Numbered<'a>>, lasts: Lasts) -> Self {
        let mut lasting: Vec<Numbered<'a>> = numbers.into_iter().filter(|it| lasts(it.operation)).collect();
        lasting.sort_by_key(|it| it.operation.returned);
        let mut highest: Vec<(u64, Numbered<'a>)> = Vec::with_capacity(lasting.len());
        for it in lasting {
            let best = highest.last().map(|(_, best)| *best).filter(|best| best.number >= it.number);
            highest.push((it.operation.returned, best.unwrap_or(it)));
        }
        Self { highest }
    }

    /// Returns the highest number that was answered before a time.
    pub(crate) fn before(&self, at: u64) -> Option<Numbered<'a>> {
        let count = self.highest.partition_point(|(returned, _)| *returned < at);
        count.checked_sub(1).map(|last| self.highest[last].1)
    }
}

/// Two calls whose numbers contradict their order in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conflict<'a> {
    pub first: Numbered<'a>,
    pub second: Numbered<'a>,
}

impl<'a> Conflict<'a> {
    /// Returns the lines of both calls.
    pub(crate) fn lines(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let [first, second] = [self.first, self.second].map(|it| it.operation.lines.iter().copied());
        first.chain(second)
    }
}

/// Finds numbers that were given twice.
pub(crate) fn repeated<'a>(numbers: &[Numbered<'a>], lasts: Lasts) -> Vec<Conflict<'a>> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by_key(|it| (it.number, it.operation.invoked));
    let pairs = sorted.windows(2).filter(|pair| pair[0].number == pair[1].number);
    let conflicts = pairs.map(|pair| Conflict { first: pair[0], second: pair[1] });
    conflicts.filter(|conflict| lasts(conflict.first.operation)).collect()
}

/// Finds numbers that are lower than one that was answered before their call was made.
pub(crate) fn backwards<'a>(numbers: &[Numbered<'a>], lasts: Lasts) -> Vec<Conflict<'a>> {
    let high_water = HighWater::of(numbers.iter().copied(), lasts);
    let lower = |second: &Numbered<'a>| {
        let first = high_water.before(second.operation.invoked)?;
        (first.number > second.number).then_some(Conflict { first, second: *second })
    };
    numbers.iter().filter_map(lower).collect()
}
