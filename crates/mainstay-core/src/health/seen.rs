//! What a look at a database has found, before anybody judges it.

use std::time::Duration;

use crate::id::WorkItemId;

/// Rows of one priority that a look walks over at most. Counts that come to it mean "so many, or more".
pub const SEEN_AT_MOST: u64 = 1_000;

/// From when on something counts, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Patience {
    /// Due for so long counts as overdue.
    pub overdue: Duration,
    /// Claimed, and the lease lapsed for so long, counts as stuck.
    pub stuck: Duration,
    /// A lease that lapsed no longer ago than this counts as lapsed.
    pub lapsed_within: Duration,
}

impl Patience {
    /// Counts what is due or lapsed at all, and leases that lapsed within the last hour.
    pub fn none() -> Self {
        Self { overdue: Duration::ZERO, stuck: Duration::ZERO, lapsed_within: Duration::from_secs(3_600) }
    }
}

/// The front of a queue. What waits for its ordering key, or for one that is held, is neither due nor overdue: nobody could claim it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkSeen {
    /// Items that have been due for longer than patience allows, and that nobody has claimed.
    pub overdue: u64,
    /// For how long the first one that anybody could claim has been due.
    pub oldest_due: Option<Duration>,
    /// Items whose lease lapsed longer ago than patience allows, and that nobody has taken over.
    pub stuck: u64,
    /// For how long the first lease that lapsed has been.
    pub longest_lapsed: Option<Duration>,
    /// Consumers that wait for work. None where they leave no trace.
    pub idle: Option<u64>,
    /// Consumers that hold claims whose leases have not lapsed.
    pub busy: u64,
    /// How long ago a consumer last ended an item, as far as retention has kept it.
    pub last_settled: Option<Duration>,
}

/// The jobs, and the deadlines of joins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScheduleSeen {
    /// Enabled jobs whose next time has passed by more than patience allows, and whose runs nobody has made.
    pub jobs_overdue: u64,
    /// For how long the first of them has been due.
    pub oldest_job: Option<Duration>,
    /// Enabled jobs that no scheduler can read.
    pub jobs_in_trouble: u64,
    /// One of them.
    pub job_in_trouble: Option<String>,
    /// Joins whose deadline has passed by more than patience allows, and that nobody has ended.
    pub joins_overdue: u64,
    /// By how long the first deadline has passed.
    pub oldest_join: Option<Duration>,
}

/// The leases.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeasesSeen {
    /// Those that somebody holds.
    pub held: u64,
    /// Those that lapsed lately: their holder neither renewed nor released them, and nobody has taken them over.
    pub lapsed: u64,
    /// The one of them that lapsed last, and how long ago.
    pub last_lapsed: Option<(String, Duration)>,
    /// Those that lapsed longer ago than that.
    pub lapsed_before: u64,
}

/// What comes before an item in its ordering key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LaneSeen {
    /// The failed item that holds the key.
    pub held_by: Option<WorkItemId>,
    /// The first one that is open and comes before it.
    pub first: Option<WorkItemId>,
    /// How many come before it.
    pub ahead: u64,
}
