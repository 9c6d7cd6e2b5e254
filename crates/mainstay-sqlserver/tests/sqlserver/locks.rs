//! How long procedures wait for locks, and how many sessions the server has for calls that were given up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;
use mainstay_sqlserver::Client;
use mainstay_tests::eventually;

use crate::support::{DEADLINE, Database, run, tried};

const POOL: usize = 4;

/// So many calls are given up while the table is locked: each session of the pool several times over.
const GIVEN_UP: usize = 100;

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

/// The server's sessions of this program.
async fn sessions(client: &mut Client, program: &str) -> BTreeSet<i64> {
    let seen = format!(
        "SELECT CAST(session_id AS BIGINT) FROM sys.dm_exec_sessions WHERE program_name = N'{program}'"
    );
    run(client, &seen).await.iter().map(|row| row.get(0).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_are_given_up_under_a_table_lock_use_up_no_sessions() {
    let Some(database) = Database::new().await else { return };
    let server = database.builder().pool_size(POOL).connect().await.unwrap();
    let outbox = Outbox::new(server.outbox());
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let (mut admin, mut locker) = (database.client().await, database.client().await);
    // On every engine this keeps all other sessions from the table until it is rolled back.
    run(&mut locker, "BEGIN TRANSACTION; ALTER TABLE infra.Outbox ADD \"Locked\" INT NULL").await;

    let (given_up, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let callers: Vec<_> = (0..POOL)
        .map(|_| {
            let (outbox, given_up, stop) = (outbox.clone(), Arc::clone(&given_up), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let call = outbox.enqueue(Message::new("t", ""));
                    if tokio::time::timeout(Duration::from_millis(200), call).await.is_err() {
                        given_up.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    eventually(DEADLINE, "calls are given up", async || {
        // One that is just ending is not there a moment later.
        let first = sessions(&mut admin, &database.program()).await;
        let second = sessions(&mut admin, &database.program()).await;
        let held = first.intersection(&second).count();
        assert!(held <= POOL + 2, "{held} sessions are held");
        given_up.load(Ordering::SeqCst) >= GIVEN_UP
    })
    .await;
    run(&mut locker, "ROLLBACK TRANSACTION").await;
    stop.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    eventually(DEADLINE, "calls succeed again", async || outbox.enqueue(Message::new("t", "")).await.is_ok())
        .await;
    drop((admin, locker));
    server.close().await;
    database.end().await;
}
