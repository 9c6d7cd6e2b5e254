//! Leases that are kept by somebody outside this process, who renews and releases them with the claim he was given: the HTTP interface
//! is for those. Nothing here renews in the background, and dropping anything gives nothing up; a lease that is not renewed lapses.

use std::time::Duration;

use crate::error::Result;
use crate::telemetry::{self, LeaseLoss};
use crate::text::validate_name;

use super::{LeaseAnswer, LeaseClaim, LeaseGrant, LeaseOptions, LeaseRequest, Leases};

impl Leases {
    /// Asks once for `name` on behalf of the owner that the options name, or of this handle's. What the options say of renewing and
    /// waiting is the holder's affair.
    pub async fn grant(&self, name: &str, options: &LeaseOptions) -> Result<(LeaseClaim, LeaseAnswer)> {
        validate_name("lease.acquire", "name", name)?;
        options.validate()?;
        let owner = options.owner.clone().unwrap_or_else(|| self.owner().to_owned());
        let request = LeaseRequest {
            name: name.to_owned(),
            owner: owner.clone(),
            duration: options.duration,
            context: options.context.clone(),
            reentrant: options.reentrant,
        };
        let answer = match self.store().acquire(&request).await? {
            LeaseAnswer::Held(holder) => LeaseAnswer::Held(holder.seen_now()),
            granted => granted,
        };
        let mut claim = LeaseClaim { name: request.name, owner, epoch: 0 };
        match &answer {
            LeaseAnswer::Granted(grant) => {
                claim.epoch = grant.epoch;
                telemetry::lease_acquired(self.store().identifier(), &claim, grant);
            }
            LeaseAnswer::Held(holder) => {
                telemetry::lease_contended(self.store().identifier(), name, holder);
            }
        }
        Ok((claim, answer))
    }

    /// Extends a lease that was granted to `duration` from the database's now. None when the claim no longer holds.
    pub async fn renew_claim(&self, claim: &LeaseClaim, duration: Duration) -> Result<Option<LeaseGrant>> {
        check(claim, "lease.renew")?;
        LeaseOptions::default().duration(duration).validate()?;
        let renewed = self.store().renew(claim, duration).await?;
        match &renewed {
            Some(grant) => telemetry::lease_renewed(self.store().identifier(), claim, grant),
            None => telemetry::lease_lost(self.store().identifier(), claim, LeaseLoss::Taken),
        }
        Ok(renewed)
    }

    /// Gives a lease up that was granted. False when the claim no longer held.
    pub async fn release_claim(&self, claim: &LeaseClaim) -> Result<bool> {
        check(claim, "lease.release")?;
        let released = self.store().release(claim).await?;
        if released {
            telemetry::lease_released(self.store().identifier(), claim);
        }
        Ok(released)
    }
}

/// A claim comes from outside, and may be anything.
fn check(claim: &LeaseClaim, operation: &'static str) -> Result<()> {
    validate_name(operation, "name", &claim.name)?;
    validate_name(operation, "owner", &claim.owner)
}
