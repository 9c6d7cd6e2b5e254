//! A received message as the ledger knows it.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerToken, WorkItemId};
use crate::outbox::OutboxStats;

use super::{ContentHash, InboxKey};

/// How far a received message is. The numbers are those in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EntryState {
    /// It was seen, and may be waiting in the queue.
    Seen = 0,
    /// Somebody has reserved it, or a worker is at it.
    Processing = 1,
    /// It is done.
    Done = 2,
    /// It was given up.
    Dead = 3,
}

impl EntryState {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Seen, Self::Processing, Self::Done, Self::Dead];

    /// The number in the tables.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The state with this number.
    pub fn from_code(code: i16) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "inbox.state", format!("{code} is no state (0 to 3)"))
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Processing => "processing",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for EntryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for EntryState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let reason = format_args!("must be seen, processing, done or dead, got {text:?}");
            Error::invalid("inbox.state", "state", reason)
        })
    }
}

/// One received message, as it stands in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InboxEntry {
    /// What it is known by.
    #[serde(flatten)]
    pub key: InboxKey,
    /// How far it is.
    pub state: EntryState,
    /// What its content is compared by.
    pub hash: Option<ContentHash>,
    /// When it was first seen, by the database's clock.
    pub first_seen_at: Timestamp,
    /// When it was last seen, by the database's clock.
    pub last_seen_at: Timestamp,
    /// When it was done or given up.
    pub processed_at: Option<Timestamp>,
    /// Attempts so far: deliveries to workers, or reservations.
    pub attempts: u32,
    /// How often it was reserved.
    pub generation: i64,
    /// Who has reserved it.
    pub owner: Option<OwnerToken>,
    /// Until when it is reserved, or held by a worker.
    pub locked_until: Option<Timestamp>,
    /// The last error.
    pub last_error: Option<String>,
    /// Its row in the queue, open or settled. None if it was never enqueued.
    pub work_item: Option<WorkItemId>,
    /// Its topic in the queue.
    pub topic: Option<String>,
}

impl InboxEntry {
    /// An entry with everything at its start; providers fill in the rest.
    pub fn new(key: InboxKey, state: EntryState, first_seen_at: Timestamp) -> Self {
        Self {
            key,
            state,
            hash: None,
            first_seen_at,
            last_seen_at: first_seen_at,
            processed_at: None,
            attempts: 0,
            generation: 0,
            owner: None,
            locked_until: None,
            last_error: None,
            work_item: None,
            topic: None,
        }
    }
}

/// How many messages of the ledger stand where, whether they were enqueued or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LedgerStats {
    /// Seen, and neither reserved nor settled.
    pub seen: u64,
    /// Reserved.
    pub processing: u64,
    /// Reserved, but that has lapsed: the next caller gets them.
    pub lapsed: u64,
    /// Done (as far as retention has kept them).
    pub done: u64,
    /// Given up.
    pub dead: u64,
}

impl LedgerStats {
    /// The counts, in the order of their fields.
    pub const fn new(seen: u64, processing: u64, lapsed: u64, done: u64, dead: u64) -> Self {
        Self { seen, processing, lapsed, done, dead }
    }
}

/// How an inbox stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct InboxStats {
    /// The ledger.
    pub ledger: LedgerStats,
    /// The queue.
    pub queue: OutboxStats,
}

impl InboxStats {
    pub(super) fn new(ledger: LedgerStats, queue: OutboxStats) -> Self {
        Self { ledger, queue }
    }
}
