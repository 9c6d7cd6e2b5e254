//! Which messages to list or requeue.

use jiff::Timestamp;

use crate::bounds::validate_limit;
use crate::error::Result;
use crate::id::WorkItemId;
use crate::queue::{FailureReason, Status};

/// Selects messages. Every field that is set must match; an empty filter selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageFilter {
    /// Only this topic. Defaults to all.
    pub topic: Option<String>,
    /// Only this status. Defaults to all.
    pub status: Option<Status>,
    /// Only failed ones with this reason. Defaults to all.
    pub reason: Option<FailureReason>,
    /// Only this correlation id. Defaults to all.
    pub correlation_id: Option<String>,
    /// Only those settled at or after this moment. Defaults to all.
    pub settled_after: Option<Timestamp>,
    /// Only those settled before this moment. Defaults to all.
    pub settled_before: Option<Timestamp>,
    /// Whether payloads stay in the database, where they are listed. Defaults to false.
    pub without_payloads: bool,
}

impl MessageFilter {
    /// All messages.
    pub fn all() -> Self {
        Self::default()
    }
    /// Only this topic.
    #[must_use]
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topic = Some(topic.into());
        self
    }
    /// Only this status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Self {
        self.status = Some(status);
        self
    }
    /// Only failed ones with this reason.
    #[must_use]
    pub fn reason(mut self, reason: FailureReason) -> Self {
        self.reason = Some(reason);
        self
    }
    /// Only this correlation id.
    #[must_use]
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into());
        self
    }
    /// Only those settled at or after this moment.
    #[must_use]
    pub fn settled_after(mut self, moment: Timestamp) -> Self {
        self.settled_after = Some(moment);
        self
    }
    /// Only those settled before this moment.
    #[must_use]
    pub fn settled_before(mut self, moment: Timestamp) -> Self {
        self.settled_before = Some(moment);
        self
    }
    /// Lists them without their payloads, which may be large and many.
    #[must_use]
    pub fn without_payloads(mut self) -> Self {
        self.without_payloads = true;
        self
    }
}

/// A page of a listing, newest first: `limit` rows whose id is below `before`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page {
    /// Rows at most, 1 to 1,000. Defaults to 100.
    pub limit: u32,
    /// The last id of the page before. Defaults to none: the first page.
    pub before: Option<WorkItemId>,
}

impl Default for Page {
    fn default() -> Self {
        Self { limit: 100, before: None }
    }
}

impl Page {
    /// Refuses a limit outside 1 to 1,000.
    pub fn validate(&self) -> Result<()> {
        validate_limit("outbox.list", self.limit)
    }
}
