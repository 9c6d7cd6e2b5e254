//! Which operations to list, and which of their events.

use jiff::Timestamp;

use crate::error::Result;

use super::new::validate_tag;
use super::{OperationId, OperationState};

/// Selects operations. Every field that is set must match; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationFilter {
    /// Only names that begin with this. Defaults to all.
    pub name: Option<String>,
    /// Only in this state. Defaults to all.
    pub state: Option<OperationState>,
    /// Only with this tag: its key and its value. Defaults to all.
    pub tag: Option<(String, String)>,
    /// Only parts of this operation. Defaults to all.
    pub parent: Option<OperationId>,
    /// Only with this correlation id. Defaults to all.
    pub correlation_id: Option<String>,
    /// Only those started at or after this moment. Defaults to all.
    pub after: Option<Timestamp>,
    /// Only those started before this moment. Defaults to all.
    pub before: Option<Timestamp>,
}

impl OperationFilter {
    /// All operations.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only names that begin with this.
    #[must_use]
    pub fn name(mut self, prefix: impl Into<String>) -> Self {
        self.name = Some(prefix.into());
        self
    }
    /// Only in this state.
    #[must_use]
    pub fn state(mut self, state: OperationState) -> Self {
        self.state = Some(state);
        self
    }
    /// Only with this tag.
    #[must_use]
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tag = Some((key.into(), value.into()));
        self
    }
    /// Only parts of this operation.
    #[must_use]
    pub fn parent(mut self, parent: OperationId) -> Self {
        self.parent = Some(parent);
        self
    }
    /// Only with this correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }
    /// Only those started at or after this moment.
    #[must_use]
    pub fn after(mut self, moment: Timestamp) -> Self {
        self.after = Some(moment);
        self
    }
    /// Only those started before this moment.
    #[must_use]
    pub fn before(mut self, moment: Timestamp) -> Self {
        self.before = Some(moment);
        self
    }

    /// Refuses what no operation can have, which a database might not even take.
    pub(super) fn validate(&self, operation: &'static str) -> Result<()> {
        for (field, text) in [("name", &self.name), ("correlation_id", &self.correlation_id)] {
            if let Some(text) = text {
                crate::text::validate_nul(operation, field, text)?;
            }
        }
        self.tag.iter().try_for_each(|(key, value)| validate_tag(operation, key, value))
    }
}

/// A page of a listing, newest first: `limit` operations that come after `before` in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationPage {
    /// Operations at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
    /// The last operation of the page before. Defaults to none: the first page.
    pub before: Option<OperationId>,
}

impl Default for OperationPage {
    fn default() -> Self {
        Self { limit: 100, before: None }
    }
}

/// A page of an operation's events, in their order: `limit` events after the number `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventPage {
    /// Events at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
    /// The number of the last event of the page before. Defaults to 0: the first page.
    pub after: u64,
}

impl Default for EventPage {
    fn default() -> Self {
        Self { limit: 100, after: 0 }
    }
}
