//! What the ledger answers.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{OwnerToken, WorkItemId};

use super::{Guard, InboxKey};

/// What is known of a message that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Seen {
    /// It is done. Not while somebody is still at it.
    pub processed: bool,
    /// It was seen before with another content. That does not make it another message, but somebody should know.
    pub hash_mismatch: bool,
}

/// How far a message is, said by hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Somebody is at it, for this long.
    Processing(Duration),
    /// It is done.
    Processed,
    /// It is given up.
    Dead(Option<String>),
}

impl Mark {
    /// What it makes of a message.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Processing(_) => "processing",
            Self::Processed => "processed",
            Self::Dead(_) => "dead",
        }
    }
}

/// A message that one caller has reserved. Every later step compares owner and generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// The message.
    pub key: InboxKey,
    /// Who has it.
    pub owner: OwnerToken,
    /// Raised by every reservation of the message.
    pub generation: i64,
}

/// What became of a reserved message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReservationEnd {
    /// It is done.
    Complete,
    /// It is given up, with what went wrong.
    Fail(Option<String>),
    /// It is given back. With an error it counts as an attempt, without one it does not.
    Release(Option<String>),
}

/// A reservation as it was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// Raised by every reservation of the message.
    pub generation: i64,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// Until when, by the database's clock.
    pub until: Timestamp,
    /// It was seen before with another content.
    pub hash_mismatch: bool,
}

/// What a store answers to a `begin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeginAnswer {
    /// It is the caller's.
    New(Reserved),
    /// Somebody else has it, or workers do.
    Busy {
        /// Until when at least, by the database's clock.
        until: Timestamp,
        /// That long from the database's now.
        wait: Duration,
        /// It was seen before with another content.
        hash_mismatch: bool,
    },
    /// It is done.
    Done {
        /// It was seen before with another content.
        hash_mismatch: bool,
    },
    /// It was given up.
    Dead {
        /// It was seen before with another content.
        hash_mismatch: bool,
    },
}

impl BeginAnswer {
    /// Whether the message was seen before with another content.
    pub const fn hash_mismatch(&self) -> bool {
        match self {
            Self::New(reserved) => reserved.hash_mismatch,
            Self::Busy { hash_mismatch, .. }
            | Self::Done { hash_mismatch }
            | Self::Dead { hash_mismatch } => *hash_mismatch,
        }
    }
}

/// Whose a message is. Of any number of callers at once exactly one gets [`Begin::New`] (R14).
#[derive(Debug)]
#[must_use = "a new message is the caller's to handle; dropping it gives it back"]
pub enum Begin {
    /// The caller's. Nobody else gets it before the guard ends or its reservation lapses.
    New(Guard),
    /// Somebody else's, or waiting for the workers of the queue.
    Busy {
        /// Until when at least, by the database's clock.
        until: Timestamp,
    },
    /// Done: there is nothing to do.
    Done,
    /// Given up, until somebody revives it.
    Dead,
}

impl Begin {
    /// The guard, if the message is the caller's.
    pub fn into_new(self) -> Option<Guard> {
        match self {
            Self::New(guard) => Some(guard),
            Self::Busy { .. } | Self::Done | Self::Dead => None,
        }
    }
}

/// What became of a message that was put into the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceivedOutcome {
    /// It is in the queue now.
    Added,
    /// It was waiting in the queue; topic, payload, hash and due time are the new ones, attempts stay.
    Replaced,
    /// It was dead; it is in the queue as if new.
    Revived,
    /// A worker is at it. Nothing but the time it was last seen has changed.
    InProgress,
    /// It is done. Nothing but the time it was last seen has changed.
    Done,
}

impl ReceivedOutcome {
    /// As in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Replaced => "replaced",
            Self::Revived => "revived",
            Self::InProgress => "in-progress",
            Self::Done => "done",
        }
    }

    /// Whether the message was known already.
    pub const fn is_duplicate(self) -> bool {
        !matches!(self, Self::Added)
    }
}

impl fmt::Display for ReceivedOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What became of a message that was put into the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Received {
    /// What became of it.
    pub outcome: ReceivedOutcome,
    /// Its row in the queue, open or settled. None for one that was done without ever being in the queue.
    pub work_item: Option<WorkItemId>,
    /// It was seen before with another content.
    pub hash_mismatch: bool,
}
