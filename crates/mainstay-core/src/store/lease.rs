//! What leases need of a database.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;

use crate::audit::Actor;
use crate::error::Result;
use crate::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseRecord, LeaseRequest, LeasesRequest,
};

/// The leases in a database. Whether one has lapsed is decided by the database's clock alone. A row is never deleted and its
/// numbers never go back, so an epoch or a token is never given twice.
#[async_trait]
pub trait LeaseStore: Send + Sync + 'static {
    /// Names the store in logs and metrics: the database and the table, no secret.
    fn identifier(&self) -> &str;

    /// Gives the lease to the caller if nobody holds it, under the next epoch and token. Not while a transaction is open in
    /// which a former holder guards it.
    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer>;

    /// Extends the lease to `duration` from the database's now, under the next token. None when the claim no longer holds,
    /// lapsed included.
    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>>;

    /// Gives the lease up. False when the claim no longer held, lapsed included.
    async fn release(&self, claim: &LeaseClaim) -> Result<bool>;

    /// Acquires each of many leases that nobody holds, in one visit to the database; the answers are in the order of the names.
    /// Waits for nobody: one that somebody is just changing, or guards in a transaction, counts as held (none).
    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>>;

    /// Renews many leases in one visit to the database, each as [`LeaseStore::renew`] would, in the order of the claims.
    async fn renew_many(&self, claims: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>>;

    /// Gives many leases up in one visit to the database, each as [`LeaseStore::release`] would, in the order of the claims.
    async fn release_many(&self, claims: &[LeaseClaim]) -> Result<Vec<bool>>;

    /// One lease, held or free. None when it was never acquired.
    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>>;

    /// Leases that match, by name.
    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>>;

    /// Takes the lease away from whoever holds it, and tells who that was. None when nobody did. Recorded in the audit
    /// trail, in the same transaction, if somebody did.
    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>>;

    /// How many leases are held.
    async fn active(&self) -> Result<u64>;

    /// The provider's own type, for `guard`.
    fn as_any(&self) -> &dyn Any;
}
