//! How many leases are held, as a gauge (R26).

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::renewing::{TURN_LIMIT, attempt};
use crate::runtime::{LastDone, Lifecycle, Service, to_the_end};
use crate::telemetry;

use super::Leases;

/// Publishes the gauge of held leases.
#[derive(Debug)]
pub struct LeaseGauges {
    leases: Leases,
    interval: Duration,
    last: LastDone,
}

impl LeaseGauges {
    /// Publishes the gauge of `leases` every `interval`.
    pub fn new(leases: Leases, interval: Duration) -> Self {
        Self { leases, interval, last: LastDone::default() }
    }
}

#[async_trait]
impl Service for LeaseGauges {
    fn name(&self) -> &'static str {
        "lease gauges"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let store = self.leases.store().identifier();
        let chore = || async {
            telemetry::active_leases(store, attempt("lease.active", TURN_LIMIT, self.leases.active()).await?);
            Ok(())
        };
        to_the_end((self.interval, &self.last), store, "lease stats", lifecycle, chore).await
    }

    fn retire(&self) {
        telemetry::active_leases(self.leases.store().identifier(), 0);
    }
}
