//! A failover to a replica that has not received all.

use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{Lease, LeaseOptions, Leases};
use mainstay_core::store::Provider;
use mainstay_postgres::Postgres;
use mainstay_tests::{ClusterOptions, FaultProxy, OwnCluster, eventually};

use crate::support::DEADLINE;

/// What JSON numbers are exact up to.
const EXACT: i64 = 1 << 53;

fn replicated() -> ClusterOptions {
    ClusterOptions::default().replicated()
}

/// Held until the end of a test, and renewed by hand alone.
fn still() -> LeaseOptions {
    LeaseOptions::default().duration(Duration::from_secs(600)).renew(false)
}

/// Acquires it as soon as the server answers.
async fn acquire(leases: &Leases, name: &str) -> Lease {
    let mut acquired = None;
    eventually(DEADLINE, "the lease is acquired", async || {
        acquired = leases.acquire_with(name, still()).await.ok().and_then(|answer| answer.lease());
        acquired.is_some()
    })
    .await;
    acquired.unwrap()
}

#[tokio::test]
async fn epochs_and_tokens_are_above_those_that_a_failover_lost() {
    let primary = OwnCluster::create_with(replicated()).await;
    let proxy = FaultProxy::for_url(primary.url()).await;
    let postgres = Postgres::connect(&proxy.url(primary.url())).await.unwrap();
    postgres.schema().deploy().await.unwrap();
    let leases = Leases::new(postgres.leases());
    let first = acquire(&leases, "known").await;
    assert_eq!((first.epoch(), first.fencing_token()), (1, 1), "a new server counts from one");
    assert!(first.release().await.unwrap());

    // What follows never reaches the replica.
    let replica = primary.replica(replicated()).await;
    replica.stop().await;
    let known = acquire(&leases, "known").await;
    for _ in 0..3 {
        assert!(known.renew().await.unwrap());
    }
    let unknown = acquire(&leases, "unknown").await;
    assert_eq!((known.epoch(), known.fencing_token(), unknown.epoch()), (2, 5, 1));

    primary.kill().await;
    replica.start().await;
    replica.promote().await;
    proxy.lead_to(replica.url());
    for lost in [&known, &unknown] {
        let next = acquire(&leases, lost.name()).await;
        assert!(next.epoch() > lost.epoch(), "{} after {}", next.epoch(), lost.epoch());
        assert!(next.fencing_token() > lost.fencing_token() && next.fencing_token() < EXACT);
        let token = next.fencing_token();
        assert!(next.renew().await.unwrap());
        assert_eq!(next.fencing_token(), token + 1);
        // The one before can neither write nor go on.
        let mut tx = postgres.outbox().begin().await.unwrap();
        assert_eq!(lost.guard(&mut tx).await.unwrap_err().kind(), ErrorKind::LeaseLost);
        drop(tx);
        assert!(lost.is_lost() && !lost.renew().await.unwrap());
        assert!(next.release().await.unwrap());
    }
    // Many at once count as single ones do.
    let names = ["known", "unknown", "new"].map(str::to_owned).to_vec();
    let request = mainstay_core::lease::LeasesRequest {
        names,
        owner: "test".to_owned(),
        duration: Duration::from_secs(600),
        context: None,
        reentrant: false,
    };
    let grants = leases.store().acquire_many(&request).await.unwrap();
    assert!(grants.iter().flatten().all(|grant| grant.epoch > 1 << 32 && grant.fencing_token < EXACT));
    assert_eq!(grants.iter().flatten().count(), 3);
}
