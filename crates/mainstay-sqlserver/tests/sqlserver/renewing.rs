//! Renewals beside other transactions that have the same rows.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;
use mainstay_tests::eventually;

use crate::support::{DEADLINE, Database, run};

const LEASE: Duration = Duration::from_secs(30);

/// A renewal passes a row that another transaction has locked, and that one commits before the renewal looks at what it did not extend.
///
/// Babelfish waits for locked rows instead of passing them, so there the row is out of the renewal's sight in another way: it is not
/// in progress when the renewal begins, and is again when the renewal has waited for a second item. Only that last look is compared.
/// SQL Server passes both rows, so that nothing holds the renewal up; the test does not run on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_claim_that_a_renewal_could_not_extend_is_not_lost() {
    let Some(database) = Database::new().await else { return };
    if !database.is_babelfish {
        eprintln!("not run: no lock holds up a renewal on SQL Server");
        return database.end().await;
    }
    let server = database.builder().connect().await.unwrap();
    let outbox = Outbox::new(server.outbox());
    outbox.enqueue_many(vec![Message::new("t", "passed"), Message::new("t", "waited for")]).await.unwrap();
    let owner = OwnerToken::new();
    let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap().items;
    let [passed, awaited] = ["passed", "waited for"]
        .map(|payload| claimed.iter().find(|item| item.payload == *payload).unwrap().handle);
    let (mut other, mut locker) = (database.client().await, database.client().await);
    let set = |status: &str| format!("UPDATE infra.Outbox SET {status} WHERE \"Id\" = '{}'", passed.id());
    run(&mut other, &set("\"Status\" = 0, \"OwnerToken\" = NULL, \"LockedUntil\" = NULL")).await;
    let lock = format!(
        "BEGIN TRANSACTION; UPDATE infra.Outbox SET \"Status\" = \"Status\" WHERE \"Id\" = '{}'",
        awaited.id()
    );
    run(&mut locker, &lock).await;

    let renewal = tokio::spawn(async move { outbox.renew(owner, &[passed, awaited], LEASE).await });
    let waiting = format!(
        "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE application_name = N'{}' AND wait_event_type = N'Lock'",
        database.program()
    );
    eventually(DEADLINE, "the renewal waits", async || !run(&mut other, &waiting).await.is_empty()).await;
    let held = format!(
        "\"Status\" = 1, \"OwnerToken\" = '{owner}', \"LockedUntil\" = DATEADD(SECOND, 30, SYSUTCDATETIME())"
    );
    run(&mut other, &set(&held)).await;
    run(&mut locker, "COMMIT TRANSACTION").await;

    let renewed = renewal.await.unwrap().unwrap();
    assert_eq!(renewed.changed, [awaited.id()]);
    assert_eq!(renewed.stale, [], "a live claim is reported as lost");
    drop((other, locker));
    server.close().await;
    database.end().await;
}
