//! Which records to list.

use jiff::Timestamp;

use crate::bounds::validate_limit;
use crate::error::Result;

use super::{Anchor, AuditId, AuditOutcome};

/// Selects records. Every field that is set must match; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditFilter {
    /// Only names that begin with this. Defaults to all.
    pub name: Option<String>,
    /// Only of this actor. Defaults to all.
    pub actor: Option<String>,
    /// Only those about this. Defaults to all.
    pub anchor: Option<Anchor>,
    /// Only with this correlation id. Defaults to all.
    pub correlation_id: Option<String>,
    /// Only with this outcome. Defaults to all.
    pub outcome: Option<AuditOutcome>,
    /// Only those written at or after this moment. Defaults to all.
    pub after: Option<Timestamp>,
    /// Only those written before this moment. Defaults to all.
    pub before: Option<Timestamp>,
}

impl AuditFilter {
    /// All records.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only names that begin with this.
    #[must_use]
    pub fn name(mut self, prefix: impl Into<String>) -> Self {
        self.name = Some(prefix.into());
        self
    }
    /// Only of this actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }
    /// Only those about this.
    #[must_use]
    pub fn anchor(mut self, kind: impl Into<String>, value: impl Into<String>) -> Self {
        self.anchor = Some(Anchor::new(kind, value));
        self
    }
    /// Only with this correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }
    /// Only with this outcome.
    #[must_use]
    pub fn outcome(mut self, outcome: AuditOutcome) -> Self {
        self.outcome = Some(outcome);
        self
    }
    /// Only those written at or after this moment.
    #[must_use]
    pub fn after(mut self, moment: Timestamp) -> Self {
        self.after = Some(moment);
        self
    }
    /// Only those written before this moment.
    #[must_use]
    pub fn before(mut self, moment: Timestamp) -> Self {
        self.before = Some(moment);
        self
    }
}

/// A page of a listing, newest first: `limit` records that come after `before` in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPage {
    /// Records at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
    /// The last record of the page before. Defaults to none: the first page.
    pub before: Option<AuditId>,
}

impl Default for AuditPage {
    fn default() -> Self {
        Self { limit: 100, before: None }
    }
}

impl AuditPage {
    /// Refuses a limit outside 1 to 1,000.
    pub fn validate(&self) -> Result<()> {
        validate_limit("audit.list", self.limit)
    }
}
