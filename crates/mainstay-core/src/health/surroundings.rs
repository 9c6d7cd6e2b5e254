//! What a doctor's look at a database has found, before anybody judges it.

use std::time::Duration;

/// What the user may not do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RightsSeen {
    /// The user, where the database has users.
    pub user: Option<String>,
    /// Rights it lacks, in the database's words: `UPDATE on outbox`.
    pub missing: Vec<String>,
}

/// Whose sessions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionsSeen {
    /// A connection has a session of its own.
    Own,
    /// Something between hands sessions from transaction to transaction.
    Shared,
}

/// The transactions that have been open for longest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionsSeen {
    /// The oldest ones, the oldest first.
    pub oldest: Vec<OpenTransaction>,
    /// Whether those of other users were hidden.
    pub partly: bool,
}

/// A transaction that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenTransaction {
    /// For how long.
    pub age: Duration,
    /// Who holds it, as an operator would look for it; no statement's text.
    pub holder: String,
}

impl OpenTransaction {
    /// A transaction that somebody holds for so long.
    pub fn new(age: Duration, holder: impl Into<String>) -> Self {
        Self { age, holder: holder.into() }
    }
}

/// What is stored, and what of it is waste.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StorageSeen {
    /// The program that stores it, with its version, where that is part of this process: `SQLite version 3.51.3`.
    pub engine: Option<String>,
    /// All of Mainstay's, in bytes; of a database that is one file, that file.
    pub bytes: u64,
    /// Pages that nothing is in, in bytes. None where the database keeps no such account.
    pub free_bytes: Option<u64>,
    /// The log that has not been brought into the database yet, in bytes. None where there is nothing of the kind.
    pub log_bytes: Option<u64>,
    /// Where dead rows are counted, the tables with most of them first.
    pub tables: Vec<TableSeen>,
    /// Indexes, where their use is counted.
    pub indexes: Vec<IndexSeen>,
    /// Why nobody could tell how often these are used, where the database keeps that from this user, and what would change it.
    pub use_hidden: Option<String>,
}

/// A table and its dead rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSeen {
    /// Its name, without the schema's.
    pub name: String,
    /// Rows, as statistics have it.
    pub live: u64,
    /// Rows that are deleted or replaced, and not removed.
    pub dead: u64,
    /// What it takes, without its indexes, in bytes.
    pub bytes: u64,
    /// How long ago the dead ones were last removed.
    pub vacuumed: Option<Duration>,
}

/// An index and its use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexSeen {
    /// Its name.
    pub name: String,
    /// Whether the database uses it: one that was not built to its end is kept up and never used.
    pub valid: bool,
    /// How often it was used since statistics began.
    pub scans: u64,
    /// What it takes, in bytes.
    pub bytes: u64,
    /// What its table takes, in bytes.
    pub table_bytes: u64,
}

/// Runs of jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsSeen {
    /// Those looked at; cut as all counts are.
    pub runs: u64,
    /// Those by the clock that were made late.
    pub late: u64,
    /// By how much the latest was.
    pub latest: Option<Duration>,
    /// The job of that one.
    pub latest_job: Option<String>,
    /// Those that were left out because an earlier one was not over.
    pub skipped: u64,
    /// Those that failed, as far as their ends have been collected.
    pub failed: u64,
}
