//! Which joins and members to list.

use crate::error::{Error, Result};
use crate::id::{JoinId, WorkItemId};
use crate::text::validate_name;

use super::JoinState;

/// Which joins to list. Empty: all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinFilter {
    /// Only those of this grouping key.
    pub grouping_key: Option<String>,
    /// Only those that stand so.
    pub state: Option<JoinState>,
}

impl JoinFilter {
    /// Only those of this grouping key.
    #[must_use]
    pub fn grouping_key(mut self, key: impl Into<String>) -> Self {
        self.grouping_key = Some(key.into());
        self
    }
    /// Only those that stand so.
    #[must_use]
    pub fn state(mut self, state: JoinState) -> Self {
        self.state = Some(state);
        self
    }

    pub(super) fn validate(&self) -> Result<()> {
        match &self.grouping_key {
            Some(key) => validate_name("join.list", "grouping_key", key),
            None => Ok(()),
        }
    }
}

fn validate_limit(operation: &'static str, limit: u32) -> Result<()> {
    match limit {
        1..=10_000 => Ok(()),
        got => Err(Error::invalid(operation, "limit", format_args!("must be 1 to 10,000, got {got}"))),
    }
}

/// A page of joins, newest first by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinPage {
    /// Only those before this one: the last of the page before.
    pub before: Option<JoinId>,
    /// How many at most, 1 to 10,000. Defaults to 100.
    pub limit: u32,
}

impl Default for JoinPage {
    fn default() -> Self {
        Self { before: None, limit: 100 }
    }
}

impl JoinPage {
    /// The first page, of this many.
    pub fn first(limit: u32) -> Self {
        Self { before: None, limit }
    }
    /// The page after the one that ended with `last`.
    #[must_use]
    pub fn after(mut self, last: JoinId) -> Self {
        self.before = Some(last);
        self
    }

    pub(super) fn validate(self) -> Result<()> {
        validate_limit("join.list", self.limit)
    }
}

/// A page of a join's members, by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberPage {
    /// Only those after this one: the last of the page before.
    pub after: Option<WorkItemId>,
    /// How many at most, 1 to 10,000. Defaults to 100.
    pub limit: u32,
}

impl Default for MemberPage {
    fn default() -> Self {
        Self { after: None, limit: 100 }
    }
}

impl MemberPage {
    /// The first page, of this many.
    pub fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }
    /// The page after the one that ended with `last`.
    #[must_use]
    pub fn after(mut self, last: WorkItemId) -> Self {
        self.after = Some(last);
        self
    }

    pub(super) fn validate(self) -> Result<()> {
        validate_limit("join.members", self.limit)
    }
}
