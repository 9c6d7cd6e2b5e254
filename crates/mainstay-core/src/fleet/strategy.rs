//! Which database is next, where one after the other gets a batch.

use std::fmt;

/// Decides which database gets the next batch.
pub trait SelectionStrategy: Send + 'static {
    /// The place in `stores` of the next one; none if nobody should be. `stores` are the ids in their order, `last` is the one before and
    /// `last_count` how many messages it had.
    fn select_next(&mut self, stores: &[&str], last: Option<&str>, last_count: usize) -> Option<usize>;

    /// Begins anew.
    fn reset(&mut self);
}

/// Each in turn, one batch each (OBX-068).
#[derive(Debug, Clone, Default)]
pub struct RoundRobin {
    current: usize,
}

impl RoundRobin {
    /// From the first.
    pub fn new() -> Self {
        Self::default()
    }
}

impl SelectionStrategy for RoundRobin {
    fn select_next(&mut self, stores: &[&str], last: Option<&str>, _last_count: usize) -> Option<usize> {
        if stores.is_empty() {
            return None;
        }
        if let Some(last) = place(stores, last) {
            self.current = last + 1;
        }
        let selected = self.current % stores.len();
        self.current = (selected + 1) % stores.len();
        Some(selected)
    }

    fn reset(&mut self) {
        self.current = 0;
    }
}

/// The same one until it has no more, then the next (OBX-069); but no more batches in a row than its budget, so that one can't keep all
/// others waiting (R24).
#[derive(Debug, Clone)]
pub struct DrainFirst {
    current: usize,
    budget: u32,
    in_a_row: u32,
}

impl DrainFirst {
    /// From the first, with a budget of 100 batches.
    pub fn new() -> Self {
        Self::with_budget(100)
    }

    /// The same with so many batches in a row at most, at least one.
    pub fn with_budget(batches: u32) -> Self {
        Self { current: 0, budget: batches.max(1), in_a_row: 0 }
    }
}

impl Default for DrainFirst {
    fn default() -> Self {
        Self::new()
    }
}

impl SelectionStrategy for DrainFirst {
    fn select_next(&mut self, stores: &[&str], last: Option<&str>, last_count: usize) -> Option<usize> {
        if stores.is_empty() {
            return None;
        }
        let last = place(stores, last);
        if let Some(last) = last.filter(|_| last_count > 0 && self.in_a_row < self.budget) {
            self.in_a_row += 1;
            self.current = last;
            return Some(last);
        }
        if let Some(last) = last {
            self.current = last + 1;
        }
        self.current %= stores.len();
        self.in_a_row = 1;
        Some(self.current)
    }

    fn reset(&mut self) {
        (self.current, self.in_a_row) = (0, 0);
    }
}

fn place(stores: &[&str], id: Option<&str>) -> Option<usize> {
    stores.iter().position(|store| Some(*store) == id)
}

impl fmt::Debug for dyn SelectionStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SelectionStrategy")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORES: [&str; 3] = ["a", "b", "c"];

    /// Asks `turns` times, with what `count` says each had.
    fn turns(strategy: &mut dyn SelectionStrategy, turns: usize, count: impl Fn(&str) -> usize) -> String {
        let (mut last, mut last_count, mut all) = (None, 0, String::new());
        for _ in 0..turns {
            let id = STORES[strategy.select_next(&STORES, last, last_count).unwrap()];
            (last, last_count) = (Some(id), count(id));
            all.push_str(id);
        }
        all
    }

    #[test]
    fn round_robin_goes_round_whatever_each_has() {
        assert_eq!(turns(&mut RoundRobin::new(), 7, |_| 50), "abcabca");
        assert_eq!(turns(&mut RoundRobin::new(), 4, |_| 0), "abca");
    }

    #[test]
    fn drain_first_stays_while_there_is_something_and_within_its_budget() {
        let only_b = |id: &str| usize::from(id == "b");
        assert_eq!(turns(&mut DrainFirst::with_budget(3), 9, only_b), "abbbcabbb");
        assert_eq!(turns(&mut DrainFirst::new(), 5, |_| 0), "abcab");
        assert_eq!(
            turns(&mut DrainFirst::with_budget(0), 4, |_| 1),
            "abca",
            "a budget is at least one batch"
        );
    }

    #[test]
    fn a_store_that_vanished_stops_nobody() {
        for strategy in [&mut RoundRobin::new() as &mut dyn SelectionStrategy, &mut DrainFirst::new()] {
            assert!(strategy.select_next(&STORES, Some("c"), 1).is_some_and(|at| at < STORES.len()));
            assert!(strategy.select_next(&["x"], Some("c"), 1).is_some());
            assert_eq!(strategy.select_next(&[], Some("x"), 1), None);
            strategy.reset();
            assert_eq!(strategy.select_next(&STORES, None, 0), Some(0));
        }
    }
}
