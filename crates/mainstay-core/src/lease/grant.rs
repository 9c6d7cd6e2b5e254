//! What is asked of a database about a lease, and what it answers.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// Asks for a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// What is to be held, 1 to 255 characters.
    pub name: String,
    /// Who wants it, 1 to 255 characters.
    pub owner: String,
    /// For how long, from the database's now.
    pub duration: Duration,
    /// A text for people, up to 4,096 characters.
    pub context: Option<String>,
    /// Whether the owner may take it from an earlier instance of itself that still holds it.
    pub reentrant: bool,
}

/// Asks for many leases at once, each of which nobody may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeasesRequest {
    /// What is to be held, 1 to 255 characters each.
    pub names: Vec<String>,
    /// Who wants them, 1 to 255 characters.
    pub owner: String,
    /// For how long, from the database's now.
    pub duration: Duration,
    /// A text for people, up to 4,096 characters.
    pub context: Option<String>,
    /// Whether the owner may take them from an earlier instance of itself that still holds them.
    pub reentrant: bool,
}

/// What proves that a lease is held. Every renewal, release and guard compares all three.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseClaim {
    /// What is held.
    pub name: String,
    /// Who holds it.
    pub owner: String,
    /// By which acquisition.
    pub epoch: i64,
}

/// A lease that was acquired or renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseGrant {
    /// Grows with every acquisition.
    pub epoch: i64,
    /// Grows with every acquisition and every renewal.
    pub fencing_token: i64,
    /// Until when, by the database's clock.
    pub expires_at: Timestamp,
    /// The database's clock when it answered.
    pub now: Timestamp,
}

/// Somebody else holds the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseHolder {
    /// Who. None when nobody does any more, but a transaction that a former holder guards is still open: until that ends,
    /// nobody can be given the lease.
    pub owner: Option<String>,
    /// By which acquisition.
    pub epoch: i64,
    /// Until when, by the database's clock, unless it is renewed.
    pub until: Timestamp,
    /// What the holder says about itself.
    pub context: Option<String>,
    /// The database's clock when it answered.
    pub now: Timestamp,
}

impl LeaseHolder {
    /// Without an owner, once that one's time is over.
    pub(super) fn seen_now(mut self) -> Self {
        self.owner = self.owner.filter(|_| self.until > self.now);
        self
    }

    /// How long the holder has it at least, unless it gives it up.
    pub fn remaining(&self) -> Duration {
        Duration::try_from(self.until.duration_since(self.now)).unwrap_or_default()
    }
}

impl fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) if self.until > self.now => write!(f, "held by {owner} until {:.3}", self.until),
            _ => f.write_str("free, but a transaction that its last holder guards is still open"),
        }
    }
}

/// How a database answers a [`LeaseRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The lease is the caller's.
    Granted(LeaseGrant),
    /// It is not.
    Held(LeaseHolder),
}
