//! What is asked of a run of the benchmark.

use std::time::Duration;

use super::keys::Key;

/// Which figures, and how much work for each.
#[derive(Debug)]
pub(crate) struct Plan {
    /// None for all.
    pub(crate) only: Option<Vec<&'static Key>>,
    /// How long each measurement takes that time ends.
    pub(crate) time: Duration,
    /// Messages of each measurement that a number ends.
    pub(crate) messages: u64,
    /// Dispatchers in this process.
    pub(crate) workers: usize,
}

impl Plan {
    /// Whether any of these figures is wanted.
    pub(crate) fn wants(&self, names: &[&str]) -> bool {
        match &self.only {
            None => true,
            Some(only) => only.iter().any(|key| names.contains(&key.name)),
        }
    }
}
