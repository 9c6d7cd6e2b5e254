//! What timers need beyond the engine.

use async_trait::async_trait;
use jiff::Timestamp;

use crate::audit::Actor;
use crate::error::Result;
use crate::id::WorkItemId;
use crate::outbox::When;

/// Timers in a database. They are items of the engine's queue [`super::Queue::Timers`], which does all the rest.
#[async_trait]
pub trait TimerStore: Send + Sync + 'static {
    /// Gives a timer that is Ready another due time and wakes whoever waits for it. False when it is not Ready. Recorded in
    /// the audit trail if there is an actor.
    async fn reschedule(&self, id: WorkItemId, due: When, by: Option<&Actor>) -> Result<bool>;

    /// When the next of all that is scheduled is due: timers, job runs and jobs. In the past if it is overdue, none if there is
    /// nothing.
    async fn next_event_time(&self) -> Result<Option<Timestamp>>;
}
