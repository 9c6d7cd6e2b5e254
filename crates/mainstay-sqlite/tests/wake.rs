//! Waiters wake for what they can claim, whoever made it ready, and for nothing else.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::{WaitRequest, Wake};
use mainstay_sqlite::Sqlite;

use support::{PATIENCE, Scratch, deployed, own};

/// Waits in the background, having looked once and found nothing.
async fn waiter(outbox: &Outbox) -> tokio::task::JoinHandle<Wake> {
    let store = outbox.store().clone();
    // Shows that a wait of this store begins by finding nothing, and that the connection for it is open.
    assert_eq!(
        store.wait(&WaitRequest::new(OwnerToken::new()).timeout(Duration::from_millis(1))).await.unwrap(),
        Wake::TimedOut
    );
    tokio::spawn(
        async move { store.wait(&WaitRequest::new(OwnerToken::new()).timeout(PATIENCE)).await.unwrap() },
    )
}

fn claim() -> ClaimRequest {
    ClaimRequest::new(OwnerToken::new())
}

#[tokio::test]
async fn what_is_due_already_ends_the_wait_at_once() {
    let memory = Sqlite::memory().await.unwrap();
    let scratch = Scratch::new().await;
    for outbox in [&scratch.outbox, &deployed(&memory).await] {
        outbox.enqueue(Message::new("t", "")).await.unwrap();
        assert_eq!(
            outbox.store().wait(&WaitRequest::new(OwnerToken::new()).timeout(PATIENCE)).await.unwrap(),
            Wake::Due
        );
    }
}

#[tokio::test]
async fn an_enqueue_of_this_process_wakes() {
    let memory = Sqlite::memory().await.unwrap();
    let scratch = Scratch::new().await;
    for outbox in [&scratch.outbox, &deployed(&memory).await] {
        let waiter = waiter(outbox).await;
        outbox.enqueue(Message::new("t", "")).await.unwrap();
        assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
    }
}

#[tokio::test]
async fn an_enqueue_given_up_midway_wakes_too() {
    let outbox = deployed(&Sqlite::memory().await.unwrap()).await;
    let waiter = waiter(&outbox).await;
    // Until one was under way when it was given up, which nobody can see from here but by its effect.
    while outbox.stats().await.unwrap().ready == 0 {
        let mut enqueue = Box::pin(outbox.enqueue(Message::new("t", "")));
        drop(support::start(&mut enqueue));
        tokio::task::yield_now().await;
    }
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
}

#[tokio::test]
async fn an_enqueue_of_another_instance_wakes() {
    let scratch = Scratch::new().await;
    let second = scratch.second().await;
    let waiter = waiter(&scratch.outbox).await;
    second.enqueue(Message::new("t", "")).await.unwrap();
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
}

#[tokio::test]
async fn a_commit_of_the_applications_own_connection_wakes() {
    let scratch = Scratch::new().await;
    let waiter = waiter(&scratch.outbox).await;
    scratch.connect().execute("INSERT INTO infra_outbox (topic, payload) VALUES ('t', '')", []).unwrap();
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
}

#[tokio::test]
async fn a_handlers_transaction_wakes_when_it_commits() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    let waiter = waiter(&scratch.outbox).await;
    scratch.outbox.enqueue_in(own(&mut transaction), Message::new("t", "")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
}

#[tokio::test]
async fn a_due_time_and_the_lapse_of_a_lease_wake_when_they_come() {
    let scratch = Scratch::new().await;
    let store = scratch.outbox.store();
    scratch.outbox.enqueue(Message::new("t", "").due_in(Duration::from_millis(150))).await.unwrap();
    assert_eq!(store.wait(&WaitRequest::new(OwnerToken::new()).timeout(PATIENCE)).await.unwrap(), Wake::Due);
    let lease = Duration::from_millis(150);
    assert_eq!(scratch.outbox.claim(&claim().lease(lease)).await.unwrap().items.len(), 1);
    assert_eq!(store.wait(&WaitRequest::new(OwnerToken::new()).timeout(PATIENCE)).await.unwrap(), Wake::Due);
    assert_eq!(scratch.outbox.claim(&claim()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn an_earlier_due_time_that_comes_later_counts() {
    let scratch = Scratch::new().await;
    scratch.outbox.enqueue(Message::new("t", "").due_in(PATIENCE * 2)).await.unwrap();
    let waiter = waiter(&scratch.outbox).await;
    scratch.second().await.enqueue(Message::new("t", "").due_in(Duration::from_millis(100))).await.unwrap();
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
    assert_eq!(scratch.outbox.claim(&claim()).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn what_waits_for_its_ordering_key_wakes_nobody_until_its_turn() {
    let scratch = Scratch::new().await;
    let owner = OwnerToken::new();
    for _ in 0..3 {
        scratch.outbox.enqueue(Message::new("t", "").ordering_key("k")).await.unwrap();
    }
    let batch = scratch.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(batch.items.len(), 1);
    // `waiter` asserts that its first wait times out.
    let waiter = waiter(&scratch.outbox).await;
    scratch.outbox.ack(owner, &batch.handles()).await.unwrap();
    assert_ne!(waiter.await.unwrap(), Wake::TimedOut);
}
