//! Ordering keys beyond what the contract shows: long rows of waiting messages, and messages overtaken by a requeue.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, OnFailure};
use mainstay_core::queue::{ClaimRequest, Claimed};
use mainstay_tests::eventually;

use support::{PATIENCE, Scratch};

async fn claim(scratch: &Scratch, owner: OwnerToken, lease: Duration) -> Vec<Claimed> {
    scratch.outbox.claim(&ClaimRequest::new(owner).lease(lease)).await.unwrap().items
}

fn parked(scratch: &Scratch) -> i64 {
    let sql = "SELECT count(*) FROM infra_outbox WHERE parked = 1";
    scratch.connect().query_row(sql, [], |row| row.get(0)).unwrap()
}

fn keyed(payload: impl ToString) -> Message {
    Message::new("t", payload.to_string()).ordering_key("k")
}

#[tokio::test]
async fn a_long_row_is_walked_once_and_drained_in_order() {
    let scratch = Scratch::new().await;
    let owner = OwnerToken::new();
    scratch.outbox.enqueue_many((0..200).map(keyed).collect()).await.unwrap();
    for n in 0..200 {
        let items = claim(&scratch, owner, PATIENCE).await;
        assert_eq!(items.iter().map(|item| item.payload.clone()).collect::<Vec<_>>(), [n.to_string()]);
        assert_eq!(parked(&scratch), 199 - n, "all that wait are out of sight of claims");
        scratch.outbox.ack(owner, &[items[0].handle]).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_deleted_by_hand_lets_the_next_come_forward() {
    let scratch = Scratch::new().await;
    scratch.outbox.enqueue_many((0..3).map(keyed).collect()).await.unwrap();
    claim(&scratch, OwnerToken::new(), PATIENCE).await;
    scratch.connect().execute("DELETE FROM infra_outbox WHERE status = 1", []).unwrap();
    assert_eq!(claim(&scratch, OwnerToken::new(), PATIENCE).await[0].payload, "1");
}

#[tokio::test]
async fn a_held_key_is_parked_until_it_is_released() {
    let scratch = Scratch::new().await;
    let owner = OwnerToken::new();
    scratch.outbox.enqueue(keyed(0).on_failure(OnFailure::Hold)).await.unwrap();
    scratch.outbox.enqueue_many((1..4).map(keyed).collect()).await.unwrap();
    let first = claim(&scratch, owner, PATIENCE).await.remove(0);
    scratch.outbox.fail(owner, &[first.handle], None).await.unwrap();
    assert!(claim(&scratch, owner, PATIENCE).await.is_empty());
    assert_eq!(parked(&scratch), 3);
    assert!(scratch.outbox.release_key("k").await.unwrap());
    assert_eq!(claim(&scratch, owner, PATIENCE).await[0].payload, "1");
}

#[tokio::test]
async fn an_overtaken_message_whose_lease_lapsed_does_not_come_back_to_life() {
    let scratch = Scratch::new().await;
    let (first, second) = (OwnerToken::new(), OwnerToken::new());
    // Of lower priority, so that a claim of one does not come across it.
    scratch.outbox.enqueue_many(vec![keyed(0), keyed(1).priority(-1)]).await.unwrap();
    let failed = claim(&scratch, first, PATIENCE).await.remove(0);
    scratch.outbox.fail(first, &[failed.handle], None).await.unwrap();
    let running = claim(&scratch, second, Duration::from_millis(1)).await.remove(0);
    assert_eq!(running.payload, "1");
    // The failed one returns to its place in front, while the one behind it runs.
    scratch.outbox.requeue(&[failed.id()]).await.unwrap();
    eventually(PATIENCE, "the lease lapses", async || scratch.outbox.stats().await.unwrap().lapsed == 1)
        .await;
    let one = ClaimRequest::new(first).batch(1).lease(PATIENCE);
    assert_eq!(scratch.outbox.claim(&one).await.unwrap().items[0].payload, "0");
    let renewed = scratch.outbox.renew(second, &[running.handle], PATIENCE).await.unwrap();
    assert_eq!(renewed.stale, [running.id()], "or two of one key would run at once");
}
