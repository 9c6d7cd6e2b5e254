//! How long procedures wait for locks.

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;

use crate::support::{DEADLINE, Database, run, tried};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_procedure_that_workers_call_gives_up_on_a_lock_by_itself() {
    let Some(database) = Database::new().await else { return };
    let server = database.builder().connect().await.unwrap();
    let outbox = Outbox::new(server.outbox());
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let owner = OwnerToken::new();
    let claim = outbox.claim(&ClaimRequest::new(owner)).await.unwrap().items[0].handle;
    let (mut client, mut locker) = (database.client().await, database.client().await);
    run(&mut locker, "BEGIN TRANSACTION; UPDATE infra.Outbox SET \"Status\" = \"Status\"").await;

    // The session itself would wait without end, as those of other languages do.
    let limit = "SELECT @@LOCK_TIMEOUT AS waits";
    assert_eq!(run(&mut client, limit).await[0].get::<i32, _>(0), Some(-1));
    let ack = format!(
        "EXEC infra.Outbox_Settle @OwnerToken = '{owner}', @Settlements = N'[{{\"id\":\"{}\",\"outcome\":0}}]'",
        claim.id()
    );
    let answer = tokio::time::timeout(DEADLINE, tried(&mut client, &ack)).await;
    let error = answer.expect("the procedure still waits").unwrap_err();
    assert!(error.code() == Some(1222) || error.to_string().contains("lock timeout"), "{error}");
    assert_eq!(
        run(&mut client, limit).await[0].get::<i32, _>(0),
        Some(-1),
        "the session has its own limit again"
    );

    run(&mut locker, "ROLLBACK TRANSACTION").await;
    assert_eq!(outbox.ack(owner, &[claim]).await.unwrap().changed, [claim.id()]);
    drop((client, locker));
    server.close().await;
    database.end().await;
}
