//! What the health checks ask of a database.

use async_trait::async_trait;

use crate::error::Result;
use crate::health::{LaneSeen, LeasesSeen, Patience, ScheduleSeen, WorkSeen};
use crate::id::WorkItemId;

use super::Queue;

/// Looks at a database for signs of trouble. Every method is one statement that reads and never writes, and that costs about the same
/// whatever the tables hold: what there is more of than a person would count is cut.
#[async_trait]
pub trait HealthStore: Send + Sync + 'static {
    /// The front of a queue: what is due, what is claimed, and who was seen at work on it.
    async fn work(&self, queue: Queue, patience: &Patience) -> Result<WorkSeen>;

    /// The jobs, and the deadlines of joins.
    async fn schedule(&self, patience: &Patience) -> Result<ScheduleSeen>;

    /// The leases.
    async fn leases(&self, patience: &Patience) -> Result<LeasesSeen>;

    /// What comes before an open item in its ordering key.
    async fn lane(&self, queue: Queue, id: WorkItemId) -> Result<LaneSeen>;
}
