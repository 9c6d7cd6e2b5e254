//! Leases whose calls are recorded.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mainstay::lease::{
    LeaseAnswer, LeaseClaim, LeaseFilter, LeaseGrant, LeaseRecord, LeaseRequest, LeasesRequest,
};
use mainstay::store::LeaseStore;
use mainstay::{Actor, Result};

use crate::history::{Answer, Call, Recorder, now};

use super::trouble::record;

/// Leases whose calls are recorded. Those of many at once belong to the fleet, which tells what it owns by itself.
pub(crate) struct RecordedLeases {
    inner: Arc<dyn LeaseStore>,
    recorder: Arc<Recorder>,
}

impl RecordedLeases {
    pub(crate) fn new(inner: Arc<dyn LeaseStore>, recorder: Arc<Recorder>) -> Self {
        Self { inner, recorder }
    }
}

fn granted(grant: &LeaseGrant, asked_at: u64, lease: Duration) -> Answer {
    // What the holder may rely on: the lease began no sooner than it was asked for.
    let until = asked_at + lease.as_nanos() as u64;
    Answer::Granted { epoch: grant.epoch, token: grant.fencing_token, until }
}

#[async_trait]
impl LeaseStore for RecordedLeases {
    fn identifier(&self) -> &str {
        self.inner.identifier()
    }
    async fn acquire(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        // The holder shares such a lease with itself, so there is no exclusion to judge.
        if request.reentrant {
            return self.inner.acquire(request).await;
        }
        let asked_at = now();
        let invoked = self.recorder.invoke(Call::Acquire {
            name: request.name.clone(),
            owner: request.owner.clone(),
            lease_ms: request.duration.as_millis() as u64,
        });
        let result = self.inner.acquire(request).await;
        record(invoked, &result, |answer| match answer {
            LeaseAnswer::Granted(grant) => granted(grant, asked_at, request.duration),
            LeaseAnswer::Held(holder) => Answer::Held { owner: holder.owner.clone() },
        });
        result
    }
    async fn renew(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        let asked_at = now();
        let invoked = self.recorder.invoke(Call::Prolong {
            name: claim.name.clone(),
            epoch: claim.epoch,
            lease_ms: duration.as_millis() as u64,
        });
        let result = self.inner.renew(claim, duration).await;
        record(invoked, &result, |grant| match grant {
            Some(grant) => granted(grant, asked_at, duration),
            None => Answer::Held { owner: None },
        });
        result
    }
    async fn release(&self, claim: &LeaseClaim) -> Result<bool> {
        let invoked = self.recorder.invoke(Call::GiveUp { name: claim.name.clone(), epoch: claim.epoch });
        let result = self.inner.release(claim).await;
        record(invoked, &result, |held| Answer::Flag(*held));
        result
    }
    async fn acquire_many(&self, request: &LeasesRequest) -> Result<Vec<Option<LeaseGrant>>> {
        self.inner.acquire_many(request).await
    }
    async fn renew_many(&self, claims: &[LeaseClaim], duration: Duration) -> Result<Vec<Option<LeaseGrant>>> {
        self.inner.renew_many(claims, duration).await
    }
    async fn release_many(&self, claims: &[LeaseClaim]) -> Result<Vec<bool>> {
        self.inner.release_many(claims).await
    }
    async fn get(&self, name: &str) -> Result<Option<LeaseRecord>> {
        self.inner.get(name).await
    }
    async fn list(&self, filter: &LeaseFilter) -> Result<Vec<LeaseRecord>> {
        self.inner.list(filter).await
    }
    async fn force_release(&self, name: &str, by: &Actor) -> Result<Option<String>> {
        let invoked = self.recorder.invoke(Call::ForceRelease { name: name.to_owned() });
        let result = self.inner.force_release(name, by).await;
        record(invoked, &result, |owner| Answer::Flag(owner.is_some()));
        result
    }
    async fn active(&self) -> Result<u64> {
        self.inner.active().await
    }
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }
}
