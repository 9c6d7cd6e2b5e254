//! Topics that have come, of those that no claim can name beforehand: where handlers take topics by how they begin, a claim asks for all
//! but these.
//!
//! A store compares topics as a whole. So the first message of a topic that is not wanted is claimed and given back at once, and from then on
//! the topic is left out. What is remembered is bounded; beyond that, topics are got to know anew.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::hash::Set;

/// Each claim carries them, and the database compares every row that it looks at.
const MOST: usize = 1_000;

/// Topics that have come. Cheap to clone; all clones are the same.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Topics>>);

#[derive(Debug, Default)]
struct Topics {
    known: Set<Arc<str>>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
}

impl Seen {
    fn topics(&self) -> MutexGuard<'_, Topics> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, topic: &str) {
        let mut topics = self.topics();
        if topics.known.contains(topic) {
            return;
        }
        if topics.order.len() >= MOST
            && let Some(oldest) = topics.order.pop_front()
        {
            topics.known.remove(&oldest);
        }
        let topic: Arc<str> = topic.into();
        topics.known.insert(Arc::clone(&topic));
        topics.order.push_back(topic);
    }

    /// Adds those that fit.
    pub(super) fn collect(&self, into: &mut Set<String>, fits: impl Fn(&str) -> bool) {
        let topics = self.topics();
        into.extend(topics.order.iter().filter(|topic| fits(topic)).map(|topic| topic.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten() {
        let seen = Seen::default();
        for n in 0..MOST + 10 {
            seen.note(&format!("t{n}"));
            seen.note("t5");
        }
        let mut all = Set::default();
        seen.collect(&mut all, |_| true);
        assert_eq!(all.len(), MOST);
        assert!(all.contains(&format!("t{}", MOST + 9)) && !all.contains("t0"));
        let mut none = Set::default();
        seen.collect(&mut none, |topic| topic == "no such topic");
        assert!(none.is_empty());
    }
}
