//! Sessions of plain SQL: what a program in any language does, one statement at a time.

use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::{OwnerToken, WorkItemId};

/// A session of plain SQL on one queue. Statements outside of a transaction commit by themselves.
#[async_trait]
pub trait Session: Send {
    /// Begins a transaction.
    async fn begin(&mut self);

    /// Commits it.
    async fn commit(&mut self);

    /// Keeps all other sessions away from the queue until the transaction ends.
    async fn lock_queue(&mut self);

    /// Tells whether another session waits for a lock of this one.
    async fn is_waited_for(&mut self) -> bool;

    /// Makes every lease of the queue end so long after now.
    async fn end_leases(&mut self, after: Duration);

    /// Claims what is due, and returns the items.
    async fn claim(&mut self, owner: OwnerToken) -> Vec<WorkItemId>;

    /// Renews a claim for 30 seconds, and returns what `owner` still holds of it.
    async fn renew(&mut self, owner: OwnerToken, item: WorkItemId) -> Vec<WorkItemId>;
}
