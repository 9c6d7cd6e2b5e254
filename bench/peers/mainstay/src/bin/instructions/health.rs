//! The health of a database that is none.

use async_trait::async_trait;
use mainstay::health::{LaneSeen, LeasesSeen, Patience, ScheduleSeen, WorkSeen};
use mainstay::store::{HealthStore, Queue};
use mainstay::{Result, WorkItemId};

use super::store::unsupported;

/// A look at nothing.
pub(crate) struct NoHealth;

#[async_trait]
impl HealthStore for NoHealth {
    async fn work(&self, _: Queue, _: &Patience) -> Result<WorkSeen> {
        unsupported()
    }
    async fn schedule(&self, _: &Patience) -> Result<ScheduleSeen> {
        unsupported()
    }
    async fn leases(&self, _: &Patience) -> Result<LeasesSeen> {
        unsupported()
    }
    async fn lane(&self, _: Queue, _: WorkItemId) -> Result<LaneSeen> {
        unsupported()
    }
}
