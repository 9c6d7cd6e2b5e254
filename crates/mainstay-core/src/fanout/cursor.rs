//! How far a shard has come.

use jiff::Timestamp;
use serde::Serialize;

use crate::id::WorkItemId;

/// How far the work on a shard has come, and which slice of it was planned last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FanoutCursor {
    /// The shard.
    pub shard_key: String,
    /// Up to when its work is done. Never goes back.
    pub last_completed_at: Option<Timestamp>,
    /// The message of the slice that was planned last.
    pub slice_id: Option<WorkItemId>,
    /// The nominal time of that slice.
    pub slice_due_at: Option<Timestamp>,
    /// Where the cursor stood when it was planned.
    pub slice_cursor_at: Option<Timestamp>,
    /// Whether that slice is still in the outbox, waiting or being worked on.
    pub in_flight: bool,
    /// When the shard was first heard of, by the database's clock.
    pub created_at: Timestamp,
    /// When the cursor was changed last.
    pub updated_at: Timestamp,
}

impl FanoutCursor {
    /// A shard nothing is known about.
    pub fn new(shard_key: impl Into<String>, created_at: Timestamp) -> Self {
        Self {
            shard_key: shard_key.into(),
            last_completed_at: None,
            slice_id: None,
            slice_due_at: None,
            slice_cursor_at: None,
            in_flight: false,
            created_at,
            updated_at: created_at,
        }
    }

    /// What the cadence counts from: the last completion, or the last slice if that ended without moving the cursor. None if there
    /// was neither by the `horizon`, see [`Candidate::horizon`](super::Candidate::horizon).
    pub fn base(&self, horizon: Timestamp) -> Option<Timestamp> {
        let in_vain = self.slice_by(horizon).filter(|_| self.slice_cursor_at == self.last_completed_at);
        self.completed_by(horizon).max(in_vain)
    }

    /// The nominal time of the last slice, unless it lies beyond the horizon.
    pub(super) fn slice_by(&self, horizon: Timestamp) -> Option<Timestamp> {
        self.slice_due_at.filter(|slice| *slice <= horizon)
    }

    /// The last completion. One beyond the horizon is the application's word and counts, unless it was given when the clock was ahead:
    /// then the row says so, and after that the slice that was planned nevertheless.
    pub(super) fn completed_by(&self, horizon: Timestamp) -> Option<Timestamp> {
        let overruled = self.slice_id.is_some() && self.slice_cursor_at == self.last_completed_at;
        self.last_completed_at
            .filter(|completed| *completed <= horizon || !(overruled || self.updated_at > horizon))
    }
}
