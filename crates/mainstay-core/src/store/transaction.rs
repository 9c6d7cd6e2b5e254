//! A transaction a handler takes.

use std::any::Any;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::OwnerToken;
use crate::lease::LeaseClaim;
use crate::outbox::{Enqueued, PreparedMessage};
use crate::queue::{Settled, Settlement};

use super::{LeaseStore, StoreCall};

/// A transaction of a provider. Dropping it rolls back.
#[async_trait]
pub trait StoreTransaction: Send + 'static {
    /// Adds messages within the transaction.
    async fn enqueue(&mut self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>>;

    /// Ends claims within the transaction.
    async fn settle(&mut self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled>;

    /// Fails with `LeaseLost` unless the claim holds, and keeps everybody else from getting the lease until the transaction has
    /// ended. The leases must be of the same database.
    async fn guard(&mut self, leases: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()>;

    /// Runs what a store of the same database does within the transaction. The answers, in order.
    async fn call(&mut self, call: &StoreCall) -> Result<Vec<String>>;

    /// Commits.
    async fn commit(self: Box<Self>) -> Result<()>;

    /// Rolls back.
    async fn rollback(self: Box<Self>) -> Result<()>;

    /// The provider's own type, for the handler's statements.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}
