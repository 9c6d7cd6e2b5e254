//! The foremen: two of them want the one forklift. A lease decides who has it, and a shift is written down in a transaction that
//! guards the lease, so that nobody writes one who has lost it.

use std::sync::Arc;
use std::time::Duration;

use mainstay::lease::{LeaseOptions, Leases};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Shop;

/// How long a shift takes.
const SHIFT: Duration = Duration::from_millis(60);

/// How long a foreman does something else between two looks.
const PAUSE: Duration = Duration::from_millis(25);

/// The lease of a run's forklift.
pub(crate) fn forklift(run: Uuid) -> String {
    format!("demo-{}-forklift", run.simple())
}

/// Works until `stop` says so.
pub(super) async fn work_until<S: Shop>(
    shop: Arc<S>,
    leases: Leases,
    run: Uuid,
    stop: watch::Receiver<bool>,
) {
    let mut foremen = JoinSet::new();
    for foreman in ["Ada", "Grace"] {
        let (shop, leases, mut stop) = (Arc::clone(&shop), leases.clone(), stop.clone());
        foremen.spawn(async move {
            while !*stop.borrow_and_update() {
                if let Err(error) = shift(&*shop, &leases, run, foreman).await {
                    tracing::warn!(error = format!("{error:#}"), foreman, "a shift was broken off");
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    while foremen.join_next().await.is_some() {}
}

/// Takes the forklift, if it is free, for one shift.
async fn shift<S: Shop>(shop: &S, leases: &Leases, run: Uuid, foreman: &str) -> anyhow::Result<()> {
    let options = LeaseOptions::default().duration(Duration::from_secs(2)).owner(foreman);
    let Some(lease) = leases.acquire_with(&forklift(run), options).await?.lease() else { return Ok(()) };
    // Shared with the thread that writes it, on SQLite.
    let lease = Arc::new(lease);
    let written = shop.write_shift(run, foreman, &lease).await;
    tokio::time::sleep(SHIFT).await;
    lease.release().await?;
    written
}
