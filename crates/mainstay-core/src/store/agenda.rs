//! What a database has to do, and when: all that is asked of one that nobody watches.

use std::time::Duration;

/// When there is something to do next, by the database's clock: zero if it is due, none if nothing is planned. What is claimed is due
/// again when its lease lapses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Agenda {
    /// In the outbox.
    pub outbox: Option<Duration>,
    /// In the inbox.
    pub inbox: Option<Duration>,
    /// Of all that becomes a message later: timers, runs of jobs, jobs.
    pub scheduled: Option<Duration>,
    /// Of the deadlines of joins.
    pub joins: Option<Duration>,
    /// Grows with every change of a fan-out's policy and every request for a run. What is due by a policy only its coordinator knows.
    pub fanout_changes: i64,
}

impl Agenda {
    /// With nothing to do.
    pub fn empty() -> Self {
        Self::default()
    }

    /// When the first of all is due.
    pub fn next(&self) -> Option<Duration> {
        [self.outbox, self.inbox, self.scheduled, self.joins].into_iter().flatten().min()
    }
}
