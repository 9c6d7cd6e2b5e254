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
pub(super) struct Seen(Arc<Mutex<Both>>);

/// Apart, so that many topics of one's own don't make the others forgotten: those would be claimed and given back again.
#[derive(Debug, Default)]
struct Both {
    own: Topics,
    foreign: Topics,
}

#[derive(Debug, Default)]
struct Topics {
    known: Set<Arc<str>>,
    /// The oldest first.
    order: VecDeque<Arc<str>>,
}

impl Topics {
    fn note(&mut self, topic: &str) {
        if self.known.contains(topic) {
            return;
        }
        if self.order.len() >= MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        let topic: Arc<str> = topic.into();
        self.known.insert(Arc::clone(&topic));
        self.order.push_back(topic);
    }
}

impl Seen {
    fn both(&self) -> MutexGuard<'_, Both> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers a topic; `own` when there is a handler for it.
    pub(super) fn note(&self, topic: &str, own: bool) {
        let mut both = self.both();
        if own { both.own.note(topic) } else { both.foreign.note(topic) }
    }

    /// Adds those that fit.
    pub(super) fn collect(&self, into: &mut Set<String>, fits: impl Fn(&str) -> bool) {
        let both = self.both();
        let all = both.own.order.iter().chain(&both.foreign.order);
        into.extend(all.filter(|topic| fits(topic)).map(|topic| topic.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_but_never_others_for_ones_own() {
        let seen = Seen::default();
        seen.note("others'", false);
        for n in 0..MOST + 10 {
            seen.note(&format!("t{n}"), true);
            seen.note("t5", true);
        }
        let mut all = Set::default();
        seen.collect(&mut all, |_| true);
        assert_eq!(all.len(), MOST + 1);
        assert!(all.contains(&format!("t{}", MOST + 9)) && !all.contains("t0") && all.contains("others'"));
        let mut none = Set::default();
        seen.collect(&mut none, |topic| topic == "no such topic");
        assert!(none.is_empty());
    }
}
