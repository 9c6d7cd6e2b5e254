//! Stretches of time in which a fault changes what Mainstay promises.

use std::collections::HashMap;

use super::operations::NEVER;
use crate::history::{Event, History, Phase};

/// Stretches of time, in the order of their beginnings.
#[derive(Debug, Clone, Default)]
pub(crate) struct Windows(Vec<(u64, u64)>);

impl Windows {
    /// Finds the windows of all faults of a kind. A fault without an end lasts for ever.
    pub(crate) fn of(history: &History, kind: &str) -> Self {
        let mut windows: Vec<(u64, u64)> = Vec::new();
        let mut open: HashMap<(&str, u64), usize> = HashMap::new();
        for line in history.lines.iter().map(|placed| &placed.line) {
            let Event::Fault(fault) = &line.event else { continue };
            if fault.kind != kind {
                continue;
            }
            let id = (line.process.as_str(), line.call);
            match fault.phase {
                Phase::Begin => {
                    open.insert(id, windows.len());
                    windows.push((line.at, NEVER));
                }
                Phase::End | Phase::Void => {
                    if let Some(index) = open.remove(&id) {
                        windows[index].1 = line.at;
                    }
                }
            }
        }
        Self::new(windows)
    }

    /// Makes windows of stretches that may overlap.
    pub(crate) fn new(mut stretches: Vec<(u64, u64)>) -> Self {
        stretches.sort_unstable();
        // A long stretch would hide a shorter one that began later: merge them.
        let mut windows: Vec<(u64, u64)> = Vec::new();
        for (from, to) in stretches {
            match windows.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => windows.push((from, to)),
            }
        }
        Self(windows)
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a stretch of time has an instant in common with a window.
    pub(crate) fn touch(&self, from: u64, to: u64) -> bool {
        self.next_from(from).is_some_and(|begin| begin <= to)
    }

    /// Returns the first instant of a window that is not before `at`; `at` itself within a window.
    pub(crate) fn next_from(&self, at: u64) -> Option<u64> {
        let next = self.0.partition_point(|(_, to)| *to < at);
        self.0.get(next).map(|(from, _)| (*from).max(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_found_from_both_sides() {
        let windows = Windows::new(vec![(40, NEVER), (10, 20), (12, 15)]);
        assert!(!windows.touch(0, 9));
        assert!(windows.touch(0, 10));
        assert!(windows.touch(20, 30));
        assert!(!windows.touch(21, 39));
        assert_eq!(windows.next_from(0), Some(10));
        assert_eq!(windows.next_from(15), Some(15));
        assert_eq!(windows.next_from(21), Some(40));
        assert_eq!(Windows::default().next_from(0), None);
    }
}
