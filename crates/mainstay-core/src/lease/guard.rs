//! The transactions in which a lease can be checked: those of the drivers that applications use, and a handler's.

use crate::error::Result;
use crate::queue::HandlerTransaction;
use crate::store::{LeaseStore, StoreTransaction};

use super::LeaseClaim;

/// A transaction of a driver in which a lease can be guarded.
///
/// `Marker` is a type of the provider's crate; it is inferred and only lets providers implement this for drivers' own types.
/// The implementation neither commits nor rolls back.
pub trait GuardIn<Marker> {
    /// Fails with `LeaseLost` unless the claim holds, and keeps everybody else from getting the lease until the transaction
    /// has ended.
    fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> impl Future<Output = Result<()>>;
}

/// The same for drivers that block.
pub trait GuardInBlocking<Marker> {
    /// Fails with `LeaseLost` unless the claim holds, and keeps everybody else from getting the lease until the transaction
    /// has ended.
    fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()>;
}

/// Marks the transactions of handlers.
#[derive(Debug)]
pub struct InHandler;

impl GuardIn<InHandler> for Box<dyn StoreTransaction + '_> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.guard(store, claim).await
    }
}

impl<T: StoreTransaction> GuardIn<InHandler> for HandlerTransaction<T> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.driver().guard(store, claim).await
    }
}
