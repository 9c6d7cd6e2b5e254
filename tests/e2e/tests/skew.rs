//! The clocks of workers and database disagree by minutes. Only the database's counts (MST-008).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::time::Duration;

use mainstay::id::OwnerToken;
use mainstay::outbox::Message;
use mainstay::queue::{ClaimRequest, Status};
use mainstay_tests::{TestPostgres, eventually};
use support::{Database, Worker, not_applicable, recorded};

const DEADLINE: Duration = Duration::from_secs(60);

async fn a_skewed_worker_decides_nothing(database: Database, offset: &str) {
    let Some(library) = TestPostgres::faketime() else {
        panic!("libfaketime is not installed; `cargo xtask test` brings it");
    };
    let outbox = database.outbox().await;
    // Held by a live claim of this process; due in an hour; expired in an hour; and one that anybody may have.
    let held = outbox.enqueue(Message::new("record", "held")).await.unwrap();
    let claim = ClaimRequest::new(OwnerToken::new()).lease(Duration::from_secs(300));
    let claimed = outbox.claim(&claim).await.unwrap();
    assert_eq!(claimed.items.len(), 1);
    let hour = Duration::from_secs(3_600);
    let later =
        outbox.enqueue(Message::new("record", "later").due_in(Duration::from_secs(900))).await.unwrap();
    let lasting = outbox.enqueue(Message::new("record", "lasting").expires_in(hour)).await.unwrap();

    let environment = [
        ("LD_PRELOAD", library.to_str().unwrap()),
        ("FAKETIME", offset),
        // Durations in the process use the monotonic clock, which does not jump.
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("DONT_FAKE_MONOTONIC", "1"),
    ];
    let worker = Worker::start_with(&database, &["--lease-ms", "30000"], &environment).await;
    eventually(DEADLINE, "the free message is done", async || {
        outbox.get(lasting.work_item).await.unwrap().unwrap().status == Status::Done
    })
    .await;
    worker.stop().await;

    let held = outbox.get(held.work_item).await.unwrap().unwrap();
    assert_eq!((held.status, held.owner, held.claims()), (Status::InProgress, Some(claim.owner), 1));
    assert_eq!(outbox.get(later.work_item).await.unwrap().unwrap().status, Status::Ready);
    let acked = outbox.ack(claim.owner, &claimed.handles()).await.unwrap();
    assert_eq!(acked.changed, [held.id]);
}

const IDS: &[&str] = &["MST-008", "R7"];

async fn on_postgres(case: &str, offset: &str) {
    not_applicable(case, IDS, &["sqlite-file", "sqlite-memory"], "own clock");
    recorded(case, IDS, "postgres", a_skewed_worker_decides_nothing(Database::postgres().await, offset))
        .await;
    let pooled = a_skewed_worker_decides_nothing(Database::pgbouncer().await, offset);
    recorded(case, IDS, "postgres-pgbouncer", pooled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_worker_whose_clock_is_ahead_decides_nothing() {
    on_postgres("mst_008_a_worker_whose_clock_is_ahead_decides_nothing", "+30m").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mst_008_a_worker_whose_clock_is_behind_decides_nothing() {
    on_postgres("mst_008_a_worker_whose_clock_is_behind_decides_nothing", "-30m").await;
}
