//! Leases as they stand in the database, for operators.

use jiff::Timestamp;
use serde::Serialize;

use crate::bounds::validate_limit;
use crate::error::Result;
use crate::text::validate_name;

/// One lease, held or free, as it stands in the database. Its row stays for ever, so that its numbers never go back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseRecord {
    /// What it is for.
    pub name: String,
    /// Whether somebody holds it now, by the database's clock.
    pub held: bool,
    /// Who holds it, or was the last to, if it lapsed. None once it was released.
    pub owner: Option<String>,
    /// How often it was acquired.
    pub epoch: i64,
    /// How often it was acquired or renewed.
    pub fencing_token: i64,
    /// When it was last acquired.
    pub acquired_at: Timestamp,
    /// When it was last acquired or renewed.
    pub renewed_at: Timestamp,
    /// Until when it is held, or when it ended.
    pub expires_at: Timestamp,
    /// What its holder says about itself.
    pub context: Option<String>,
}

impl LeaseRecord {
    /// A free lease; providers set the rest.
    pub fn new(name: String, acquired_at: Timestamp) -> Self {
        Self {
            name,
            held: false,
            owner: None,
            epoch: 0,
            fencing_token: 0,
            acquired_at,
            renewed_at: acquired_at,
            expires_at: acquired_at,
            context: None,
        }
    }
}

/// Which leases to list: a page of them, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseFilter {
    /// Only those that somebody holds now. Defaults to false: all.
    pub held_only: bool,
    /// Only those whose names begin with this. Defaults to none: whatever they are called.
    pub prefix: Option<String>,
    /// Only those after this name: the last one of the page before. Defaults to none: the first page.
    pub after: Option<String>,
    /// Rows at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
}

impl Default for LeaseFilter {
    fn default() -> Self {
        Self { held_only: false, prefix: None, after: None, limit: 100 }
    }
}

impl LeaseFilter {
    /// The first page of all leases.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only those that somebody holds now.
    #[must_use]
    pub fn held_only(mut self, held: bool) -> Self {
        self.held_only = held;
        self
    }
    /// Only those whose names begin with this. An empty one is none.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into()).filter(|text| !text.is_empty());
        self
    }
    /// Only those after this name.
    #[must_use]
    pub fn after(mut self, name: Option<String>) -> Self {
        self.after = name;
        self
    }
    /// Rows at most.
    #[must_use]
    pub fn limit(mut self, rows: u32) -> Self {
        self.limit = rows;
        self
    }

    /// Refuses a limit outside 1 to 1,000, and a prefix no name can have.
    pub fn validate(&self) -> Result<()> {
        if let Some(prefix) = &self.prefix {
            validate_name("lease.list", "prefix", prefix)?;
        }
        validate_limit("lease.list", self.limit)
    }
}
