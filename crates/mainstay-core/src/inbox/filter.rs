//! Which messages of the ledger to list.

use crate::bounds::validate_limit;
use crate::error::Result;

use super::{EntryState, InboxKey};

/// Selects messages of the ledger. Every field that is set must match; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InboxFilter {
    /// Only from this source. Defaults to all.
    pub source: Option<String>,
    /// Only in this state. Defaults to all.
    pub state: Option<EntryState>,
    /// Only those that were enqueued under this topic. Defaults to all.
    pub topic: Option<String>,
}

impl InboxFilter {
    /// All messages.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only from this source.
    #[must_use]
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.source = Some(source.into());
        self
    }
    /// Only in this state.
    #[must_use]
    pub fn state(mut self, state: EntryState) -> Self {
        self.state = Some(state);
        self
    }
    /// Only those that were enqueued under this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }
}

/// A page of a listing, newest first by when they were first seen: `limit` rows after `after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxPage {
    /// Rows at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
    /// The last message of the page before. Defaults to none: the first page.
    pub after: Option<InboxKey>,
}

impl Default for InboxPage {
    fn default() -> Self {
        Self { limit: 100, after: None }
    }
}

impl InboxPage {
    /// Refuses a limit outside 1 to 1,000.
    pub fn validate(&self) -> Result<()> {
        validate_limit("inbox.list", self.limit)
    }
}
