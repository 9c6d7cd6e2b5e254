//! Values of labels that come with messages: whoever may enqueue names topics and sources, and each new one is a time series that this process and whoever gathers
//! them keeps for good. So many are told apart, and the rest is `other`.

use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use metrics::SharedString;

use crate::hash::Set;

/// Values that are told apart in one process.
const MOST: usize = 1_000;

/// What the rest is counted as.
const OTHER: &str = "other";

/// The values of one label.
pub(super) struct Label {
    known: OnceLock<RwLock<Set<Arc<str>>>>,
    most: usize,
}

/// The topics of all queues.
pub(super) static TOPICS: Label = Label::new(MOST);

/// The sources of the inbox.
pub(super) static SOURCES: Label = Label::new(MOST);

impl Label {
    const fn new(most: usize) -> Self {
        Self { known: OnceLock::new(), most }
    }

    /// The value as it is told.
    pub(super) fn value(&self, value: &str) -> SharedString {
        let known = self.known.get_or_init(RwLock::default);
        // A set is whole whatever panicked beside it.
        if let Some(known) = known.read().unwrap_or_else(PoisonError::into_inner).get(value) {
            return Arc::clone(known).into();
        }
        let mut known = known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most && !known.contains(value) {
            return OTHER.into();
        }
        let value: Arc<str> = value.into();
        known.insert(Arc::clone(&value));
        value.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_values_are_told_apart_and_the_rest_is_counted_together() {
        let label = Label::new(2);
        let told = ["a", "b", "c", "a", "d", "b"].map(|value| label.value(value).to_string());
        assert_eq!(told, ["a", "b", "other", "a", "other", "b"]);
    }
}
