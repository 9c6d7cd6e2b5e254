//! What the controller measures during a run and reads at its end.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::QueueName;

/// A measurement.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The most connections that a child has at the server or the pooler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u32>,
    /// Which child has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busiest: Option<String>,
    /// The largest resident set of a child, in KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rss_kib: Option<u64>,
    /// The size of SQLite's write-ahead log, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wal_bytes: Option<u64>,
    /// Messages that are due and that anybody could claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
    /// Workers that run, and neither are paused nor cut off, while the servers are as they should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<Vec<String>>,
}

/// A row of a queue at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageState {
    /// The queue.
    pub queue: QueueName,
    /// Its id.
    pub id: Uuid,
    /// `ready`, `in_progress`, `done` or `failed`.
    pub status: String,
    /// Deliveries that count.
    pub attempts: u32,
    /// Claims so far, where the row tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Its place in the order of its key, where the row tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an operator did to messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It failed Ready messages.
    Cancel,
    /// It made Failed messages Ready.
    Requeue,
    /// It deleted settled messages.
    Purge,
}

/// What stands in the database at the end, or what a check found there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// A message.
    Message(MessageState),
    /// Effects of a message, written in transactions that completed it.
    Effect {
        /// The message's id.
        id: Uuid,
        /// How many rows.
        rows: u64,
    },
    /// All rows that applications wrote in transactions that enqueue: the ids of their messages.
    Business {
        /// The ids.
        ids: Vec<Uuid>,
    },
    /// A row written under a lease's guard, in the order of the inserts.
    Guarded {
        /// The lease.
        name: String,
        /// Under which epoch.
        epoch: i64,
        /// The write.
        value: Uuid,
        /// Rows of the lease with lower epochs that its transaction saw.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seen: Option<u64>,
    },
    /// A join.
    Join {
        /// Its id.
        id: Uuid,
        /// Its members.
        total: u64,
        /// Members that have ended.
        ended: u64,
        /// Whether it has ended.
        closed: bool,
        /// Continuations in the outbox.
        continuations: u64,
    },
    /// A job's runs: distinct occurrences, and all of its runs.
    Job {
        /// Its name.
        name: String,
        /// Runs.
        runs: u64,
        /// Distinct times they are due at.
        occurrences: u64,
        /// The first and the last of these times, in microseconds since 1970.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        span: Option<(i64, i64)>,
    },
    /// A received message in the ledger.
    Received {
        /// Where it comes from.
        source: String,
        /// Its id there.
        id: String,
        /// The ledger's status.
        status: String,
        /// Effects written in transactions that completed it.
        effects: u64,
    },
    /// Open items that no claim would find although they are due: below a floor, or all parked.
    Stuck {
        /// The queue.
        queue: QueueName,
        /// The items.
        ids: Vec<Uuid>,
        /// Why.
        why: String,
    },
    /// A record of the audit trail: a call of an operator that changed messages of the outbox.
    Audited {
        /// What it did.
        action: Action,
        /// The messages; none for a purge.
        ids: Vec<Uuid>,
        /// How many messages.
        count: u64,
    },
    /// An operator took a lease away, as the audit trail has it.
    Released {
        /// The lease.
        name: String,
        /// The epoch that ended.
        epoch: i64,
    },
    /// The audit trail was read to its end.
    Trail {
        /// Its records of the outbox and of leases.
        records: u64,
    },
    /// A check of the database's own: `integrity_check`, `amcheck`.
    Check {
        /// What was checked.
        name: String,
        /// What it found; empty when all is well.
        found: Vec<String>,
    },
}
