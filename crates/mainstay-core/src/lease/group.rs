//! Many leases in the hands of one holder, each with its own deadline, renewed and released together in one visit to the database.
//!
//! Nothing goes on in the background: whoever has the group renews it. Dropping it gives nothing up, as a crash would; what it held
//! lapses. A call that is dropped midway may leave a lease in the database that the group does not know of. Asking for it again gets it,
//! because the group's owner is its own and nobody else's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::clock;
use crate::error::Result;
use crate::renewing::deadline;
use crate::store::LeaseStore;
use crate::telemetry::{self, LeaseLoss};

use super::tenure::Tenure;
use super::{LeaseClaim, LeasesRequest};

/// A lease of the group.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) epoch: i64,
    pub(crate) tenure: Arc<Tenure>,
}

/// Many leases of one holder.
pub(crate) struct LeaseGroup {
    store: Arc<dyn LeaseStore>,
    owner: String,
    duration: Duration,
    kept: BTreeMap<String, Kept>,
    /// What the database's clock said last, and when that was heard.
    heard: Option<(Timestamp, Instant)>,
}

impl LeaseGroup {
    /// A group without leases. `owner` must be nobody else's.
    pub(crate) fn new(store: Arc<dyn LeaseStore>, owner: String, duration: Duration) -> Self {
        Self { store, owner, duration, kept: BTreeMap::new(), heard: None }
    }

    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// The lease of this name, if it is surely held.
    pub(crate) fn get(&self, name: &str) -> Option<&Kept> {
        self.kept.get(name).filter(|kept| kept.tenure.holds())
    }

    /// All that are surely held.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&str, &Kept)> {
        self.kept.iter().map(|(name, kept)| (name.as_str(), kept)).filter(|(_, kept)| kept.tenure.holds())
    }

    /// How long until the database's clock shows this moment, as far as can be told without asking it.
    pub(crate) fn until(&self, moment: Timestamp) -> Option<Duration> {
        let (said, at) = self.heard?;
        let then = Duration::try_from(moment.duration_since(said)).unwrap_or_default();
        Some(then.saturating_sub(clock::since(at)))
    }

    /// Acquires those of `names` that nobody else holds. How many it got.
    pub(crate) async fn acquire(&mut self, names: Vec<String>, context: Option<String>) -> Result<usize> {
        if names.is_empty() {
            return Ok(0);
        }
        let (owner, duration) = (self.owner.clone(), self.duration);
        // What an earlier call of this group got without learning of it is the group's own.
        let request = LeasesRequest { names, owner, duration, context, reentrant: true };
        let asked_at = clock::now();
        let grants = self.store.acquire_many(&request).await?;
        let until = deadline(asked_at, self.duration);
        let mut count = 0;
        for (name, grant) in request.names.into_iter().zip(grants) {
            if let Some(grant) = grant {
                self.heard = Some((grant.now, clock::now()));
                let kept = Kept { epoch: grant.epoch, tenure: Arc::new(Tenure::new(until)) };
                if let Some(before) = self.kept.insert(name, kept) {
                    before.tenure.end();
                }
                count += 1;
            }
        }
        telemetry::leases_acquired(self.store.identifier(), count);
        Ok(count)
    }

    /// Renews all that are held. Those that are not are forgotten; how many.
    pub(crate) async fn renew(&mut self) -> Result<usize> {
        let lapsed = self.forget_lapsed();
        let claims: Vec<LeaseClaim> =
            self.kept.iter().map(|(name, kept)| self.claim(name, kept.epoch)).collect();
        if claims.is_empty() {
            return Ok(lapsed);
        }
        let asked_at = clock::now();
        let grants = self.store.renew_many(&claims, self.duration).await?;
        let until = deadline(asked_at, self.duration);
        let (mut renewed, mut taken) = (0, 0);
        for (claim, grant) in claims.iter().zip(grants) {
            let Some(kept) = self.kept.get(&claim.name) else { continue };
            match grant {
                Some(grant) => {
                    self.heard = Some((grant.now, clock::now()));
                    kept.tenure.extend(until);
                    renewed += 1;
                }
                None => {
                    kept.tenure.end();
                    self.kept.remove(&claim.name);
                    taken += 1;
                }
            }
        }
        telemetry::leases_renewed(self.store.identifier(), renewed);
        telemetry::leases_lost(self.store.identifier(), taken, LeaseLoss::Taken);
        // The answer may have come too late.
        Ok(lapsed + taken + self.forget_lapsed())
    }

    /// Stops counting on leases, before anybody else is told: they are held no longer, whatever becomes of their release.
    pub(crate) fn forget(&mut self, names: impl IntoIterator<Item = String>) -> Vec<LeaseClaim> {
        let mut claims = Vec::new();
        for name in names {
            if let Some(kept) = self.kept.remove(&name) {
                kept.tenure.end();
                claims.push(self.claim(&name, kept.epoch));
            }
        }
        claims
    }

    /// The same for all of them.
    pub(crate) fn forget_all(&mut self) -> Vec<LeaseClaim> {
        let names: Vec<String> = self.kept.keys().cloned().collect();
        self.forget(names)
    }

    /// Gives leases up that were forgotten. How many there were.
    pub(crate) async fn release(&self, claims: &[LeaseClaim]) -> Result<usize> {
        if claims.is_empty() {
            return Ok(0);
        }
        let released =
            self.store.release_many(claims).await?.into_iter().filter(|released| *released).count();
        telemetry::leases_released(self.store.identifier(), released);
        Ok(released)
    }

    /// What proves that this group holds a lease.
    pub(crate) fn claim(&self, name: &str, epoch: i64) -> LeaseClaim {
        LeaseClaim { name: name.to_owned(), owner: self.owner.clone(), epoch }
    }

    fn forget_lapsed(&mut self) -> usize {
        let before = self.kept.len();
        self.kept.retain(|_, kept| kept.tenure.holds());
        let lapsed = before - self.kept.len();
        telemetry::leases_lost(self.store.identifier(), lapsed, LeaseLoss::Lapsed);
        lapsed
    }
}

impl Drop for LeaseGroup {
    /// Nobody renews them any more, and nobody should count on them.
    fn drop(&mut self) {
        for kept in self.kept.values() {
            kept.tenure.end();
        }
    }
}
