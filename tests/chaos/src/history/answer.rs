//! The answers.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An item that a claim brought.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its id.
    pub id: Uuid,
    /// The id of its message.
    pub message: Uuid,
    /// Which claim of it this is.
    pub generation: i64,
    /// Which delivery this is, from 1.
    pub attempt: u32,
    /// Its topic.
    pub topic: String,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The text in its payload.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub marker: String,
    /// When it was claimed, in microseconds since 1970 by the database's clock. None where the client is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_at: Option<i64>,
    /// Until when the claim holds, in microseconds since 1970 by the database's clock. None where the client is not told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<i64>,
}

/// An item that a claim failed instead of handing it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejection {
    /// Its id.
    pub id: Uuid,
    /// Why: `DeliveryLimit` or `Expired`.
    pub reason: String,
}

/// What a call was answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Done.
    Done,
    /// The transaction was rolled back, as intended.
    RolledBack,
    /// Each message was added, or was there already (a duplicate).
    Enqueued {
        /// The ids of those that are there, in the order of the messages: for a duplicate, the first one's.
        ids: Vec<Uuid>,
        /// The ids that were not added because the message was there.
        duplicates: Vec<Uuid>,
    },
    /// A claim's items.
    Claimed {
        /// Handed out, in the order given.
        items: Vec<Item>,
        /// Failed on the way.
        rejected: Vec<Rejection>,
    },
    /// Which rows changed.
    Changed {
        /// Changed.
        changed: Vec<Uuid>,
        /// Left alone, because the claim no longer held.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        stale: Vec<Uuid>,
    },
    /// How many rows changed.
    Count(u64),
    /// Whether anything changed.
    Flag(bool),
    /// A lease.
    Granted {
        /// Its epoch.
        epoch: i64,
        /// Its fencing token.
        token: i64,
        /// Until when it holds at least, in nanoseconds of `CLOCK_MONOTONIC`, as the holder reckons.
        until: u64,
    },
    /// The lease is another's, or is lost.
    Held {
        /// Whose, if told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
    },
    /// The buckets a node owns from this moment on, with the epochs of their leases.
    Owned {
        /// Bucket and epoch.
        buckets: Vec<(u32, i64)>,
    },
    /// A received message is new, or known.
    Received {
        /// Whether it is new.
        new: bool,
        /// The item in the inbox's queue.
        item: Option<Uuid>,
    },
    /// A reservation.
    Begun {
        /// Its generation; none when the message is reserved by another, or completed.
        generation: Option<i64>,
    },
    /// Runs that were written.
    Runs(u64),
}
