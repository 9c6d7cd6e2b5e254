//! The engine's view of a queue.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled, Settlement};

use super::{Capabilities, StoreTransaction};

/// Why a wait for work ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Somebody enqueued.
    Notified,
    /// Something has become due, or is about to.
    Due,
    /// Nothing happened for as long as was asked.
    TimedOut,
}

/// A work queue in a database.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// What the provider can do.
    fn capabilities(&self) -> Capabilities;

    /// Takes due work: Ready and due, or InProgress with a lapsed lease (R2). Counts a delivery for each (R3).
    async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch>;

    /// Ends claims. Compares id, owner and generation of each.
    async fn settle(&self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled>;

    /// Extends claims to `lease` from the database's now. Compares id, owner and generation of each.
    async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled>;

    /// Makes work with a lapsed lease Ready. Returns how many.
    async fn reap_expired(&self) -> Result<u64>;

    /// Waits until there may be work, at most `timeout`. Work that is already due ends the wait at once, so nothing
    /// that came between the last claim and this call is missed. Errors only when the wait itself is impossible.
    async fn wait(&self, consumer: OwnerToken, timeout: Duration) -> Result<Wake>;

    /// Begins a transaction in which a handler's writes, its messages and its ack commit together.
    async fn begin(&self) -> Result<Box<dyn StoreTransaction>>;
}
