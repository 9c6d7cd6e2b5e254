//! What can be seen of a fleet.

use jiff::Timestamp;

use crate::error::ErrorKind;

use super::BreakerState;

/// A fleet at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FleetStatus {
    /// The databases, by id.
    pub stores: Vec<StoreStatus>,
    /// The connections.
    pub connections: ConnectionStatus,
    /// When discovery last answered, by this machine's clock.
    pub refreshed_at: Option<Timestamp>,
    /// Why the last refresh failed, if it did. The databases are then those of the one before.
    pub refresh_error: Option<String>,
}

impl FleetStatus {
    /// The database of this id.
    pub fn store(&self, id: &str) -> Option<&StoreStatus> {
        self.stores.iter().find(|store| store.id == id)
    }
}

/// The connections of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionStatus {
    /// How many there may be.
    pub budget: usize,
    /// How many are given out.
    pub used: usize,
    /// The most that ever were, at once.
    pub peak: usize,
    /// How many databases wait for theirs.
    pub waiting: usize,
}

/// One database of a fleet at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStatus {
    /// Its id.
    pub id: String,
    /// What it is doing.
    pub state: StoreState,
    /// Whether it is worked on.
    pub breaker: BreakerState,
    /// Since when its breaker is closed, or not, by this machine's clock.
    pub since: Timestamp,
    /// Failures in a row.
    pub failures: u32,
    /// What the last failure said, also if it is over.
    pub last_error: Option<String>,
    /// What kind of failure that was.
    pub last_error_kind: Option<ErrorKind>,
    /// Messages claimed by this process and not settled.
    pub in_hand: usize,
    /// Whether all writes to it are seen from outside, whoever writes. It is looked at less often then.
    pub watched: bool,
    /// Whether this process has found out how it is: has looked at it, or worked on it.
    pub known: bool,
    /// Why its entry can't be used, if so. A database that was running keeps running by its previous entry until a refresh can set up the
    /// changed one; one that was not is [`StoreState::Refused`].
    pub entry_error: Option<String>,
}

/// What a database is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// It has nothing to do, and no connection. It is looked at now and then.
    Cold,
    /// It has work and waits for connections.
    Waiting,
    /// It is worked on.
    Warm,
    /// It is another node's. This one only routes to it.
    Elsewhere,
    /// Its entry can't be used; see the last error. It is tried again with the next refresh.
    Refused,
}

impl StoreState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Cold, Self::Waiting, Self::Warm, Self::Elsewhere, Self::Refused];

    /// Its name in metrics and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Waiting => "waiting",
            Self::Warm => "warm",
            Self::Elsewhere => "elsewhere",
            Self::Refused => "refused",
        }
    }
}
