//! A failover to a replica that has not received all.

use std::process::Stdio;
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::lease::{Lease, LeaseOptions, Leases};
use mainstay_core::store::Provider;
use mainstay_postgres::Postgres;
use mainstay_tests::{ClusterOptions, FaultProxy, OwnCluster, eventually};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

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

/// Loads a dump of one server's schema into another server, which is on a timeline of its own.
async fn move_to(from: &OwnCluster, to: &OwnCluster) {
    let dump =
        Command::new("pg_dump").args(["--no-owner", "--schema=infra", from.url()]).output().await.unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let mut psql = Command::new("psql")
        .args(["--no-psqlrc", "--quiet", "--output=/dev/null", "-v", "ON_ERROR_STOP=1", "--file=-", to.url()])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    psql.stdin.take().unwrap().write_all(&dump.stdout).await.unwrap();
    assert!(psql.wait().await.unwrap().success());
}

/// A server, what leads to it, and its leases.
struct Server {
    cluster: OwnCluster,
    proxy: FaultProxy,
    postgres: Postgres,
}

impl Server {
    async fn new() -> Self {
        let cluster = OwnCluster::create_with(replicated()).await;
        let proxy = FaultProxy::for_url(cluster.url()).await;
        let postgres = Postgres::connect(&proxy.url(cluster.url())).await.unwrap();
        Self { cluster, proxy, postgres }
    }

    fn leases(&self) -> Leases {
        Leases::new(self.postgres.leases())
    }

    /// Acquires the lease, and gives it up. Its epoch and its token.
    async fn numbers(&self, name: &str) -> (i64, i64) {
        let lease = acquire(&self.leases(), name).await;
        let numbers = (lease.epoch(), lease.fencing_token());
        assert!(lease.release().await.unwrap());
        numbers
    }

    /// Fails over to a replica that misses what `lost` does. Returns that.
    async fn fail_over<T>(&mut self, lost: impl AsyncFnOnce(&Self) -> T) -> T {
        let replica = self.cluster.replica(replicated()).await;
        replica.stop().await;
        let answer = lost(self).await;
        self.cluster.kill().await;
        replica.start().await;
        replica.promote().await;
        self.proxy.lead_to(replica.url());
        self.cluster = replica;
        answer
    }
}

/// A dump that is loaded into a new server begins with that server's first timeline again.
#[tokio::test]
async fn epochs_and_tokens_grow_over_a_move_to_a_server_with_a_lower_timeline() {
    let mut old = Server::new().await;
    old.postgres.schema().deploy().await.unwrap();
    let mut last = Vec::new();
    for name in ["renewed", "idle"] {
        last.push(old.numbers(name).await);
    }
    // Two timelines further.
    for _ in 0..2 {
        old.fail_over(async |_: &Server| ()).await;
        last = vec![old.numbers("renewed").await, old.numbers("idle").await];
    }
    assert!(last.iter().all(|(epoch, _)| *epoch > 2 << 32), "{last:?}");

    let mut new = Server::new().await;
    move_to(&old.cluster, &new.cluster).await;
    let check = |before: (i64, i64), after: (i64, i64), what: &str| {
        assert!(
            after.0 > before.0 && after.1 > before.1 && after.1 < EXACT,
            "{what}: {after:?} after {before:?}"
        );
    };
    // What the old server gave after the dump is passed over as well.
    check(old.numbers("late").await, new.numbers("late").await, "late");
    check(last[0], new.numbers("renewed").await, "renewed");
    // One name is used before each failover, one in its lost part alone, and one there for the first time.
    for n in 0..3 {
        let new_name = format!("new {n}");
        let names = ["renewed", "idle", new_name.as_str()];
        let lost = new
            .fail_over(async |server: &Server| {
                let mut lost = Vec::new();
                for name in names {
                    lost.push(server.numbers(name).await);
                }
                lost
            })
            .await;
        for (name, lost) in names.into_iter().zip(lost) {
            // The idle one is looked at after the last failover alone.
            if name != "idle" || n == 2 {
                check(lost, new.numbers(name).await, name);
            }
        }
    }
    // A restore that no server can tell: the operator raises the floor.
    let before = new.numbers("renewed").await;
    let client = new.cluster.client().await;
    client.batch_execute("update infra.lease_floor set height = height + 1000").await.unwrap();
    for name in ["renewed", "never seen"] {
        let after = new.numbers(name).await;
        assert!(after.0 > before.0 + (999 << 32) && after.1 < EXACT, "{name}: {after:?}");
    }
}
