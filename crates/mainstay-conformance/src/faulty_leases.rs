//! The leases of a database that can be made to fail.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::audit::Actor;
use mainstay_core::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseRecord, LeaseRequest, Leases, LeasesRequest,
};
use mainstay_core::store::LeaseStore;
use mainstay_core::{Error, ErrorKind, Result};

/// What the database does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It answers.
    None,
    Fails,
    Hangs,
}

/// Leases that fail as they are told to.
pub(crate) struct FaultyLeases {
    inner: Arc<dyn LeaseStore>,
    fault: AtomicU8,
    only_renewals: bool,
    met: AtomicUsize,
}

impl FaultyLeases {
    /// Every call meets the fault.
    pub(crate) fn over(leases: &Leases) -> (Arc<Self>, Leases) {
        Self::new(leases, false)
    }

    /// Only renewals meet the fault.
    pub(crate) fn renewing(leases: &Leases) -> (Arc<Self>, Leases) {
        Self::new(leases, true)
    }

    fn new(leases: &Leases, only_renewals: bool) -> (Arc<Self>, Leases) {
        let inner = Arc::clone(leases.store());
        let fault = AtomicU8::new(Fault::None as u8);
        let faulty = Arc::new(Self { inner, fault, only_renewals, met: AtomicUsize::new(0) });
        let store: Arc<dyn LeaseStore> = Arc::<Self>::clone(&faulty);
        (faulty, Leases::new(store))
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.store(fault as u8, Ordering::SeqCst);
    }

    /// How many calls have met a fault.
    pub(crate) fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }

    async fn reach(&self, is_renewal: bool) -> Result<&dyn LeaseStore> {
        let fault = self.fault.load(Ordering::SeqCst);
        if fault == Fault::None as u8 || (self.only_renewals && !is_renewal) {
            return Ok(self.inner.as_ref());
        }
        self.met.fetch_add(1, Ordering::SeqCst);
        if fault == Fault::Hangs as u8 {
            return std::future::pending().await;
        }
        Err(Error::new(ErrorKind::Unavailable, "lease", "it is down"))
    }
}

#[async_trait]
impl LeaseStore for FaultyLeases {
    fn identifier(&self) -> &str {
        self.inner.identifier()
    }
    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        self.reach(false).await?.acquire(request).await
    }
    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        self.reach(true).await?.renew(claim, duration).await
    }
    async fn release(&self, claim: &LeaseClaim) -> Result<bool> {
        self.reach(false).await?.release(claim).await
    }
    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        self.reach(false).await?.acquire_many(request).await
    }
    async fn renew_many(&self, claims: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        self.reach(true).await?.renew_many(claims, duration).await
    }
    async fn release_many(&self, claims: &[LeaseClaim]) -> Result<Vec<bool>> {
        self.reach(false).await?.release_many(claims).await
    }
    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        self.reach(false).await?.get(name).await
    }
    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        self.reach(false).await?.list(filter).await
    }
    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>> {
        self.reach(false).await?.force_release(name, by).await
    }
    async fn active(&self) -> Result<u64> {
        self.reach(false).await?.active().await
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
