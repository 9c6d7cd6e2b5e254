//! Transactions a handler takes: its writes, its messages and its ack commit together.

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Limits, Message, PreparedMessage};
use mainstay_core::queue::{ClaimHandle, Outcome, Settled, Settlement, Status};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, snapshot};

cases! { $ effects_cases:
    mst_030_writes_and_ack_commit_together ["MST-030"],
    mst_030_a_rollback_undoes_writes_and_ack ["MST-030"],
    mst_030_a_dropped_transaction_rolls_back ["MST-030"],
    mst_030_a_lost_claim_is_seen_before_the_commit ["MST-030", "R10"],
    mst_031_an_enqueue_rides_on_the_transaction ["MST-031"],
}

fn settlement(claim: ClaimHandle, outcome: Outcome) -> [Settlement; 1] {
    [Settlement { claim, outcome }]
}

fn prepared(payload: &str) -> [PreparedMessage; 1] {
    [Message::new("follow-up", payload).prepare(&Limits::default()).unwrap()]
}

pub(super) async fn mst_030_writes_and_ack_commit_together(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    fx.write_note(transaction.as_mut(), "shipped").await;
    let settled = transaction.settle(owner, &settlement(claimed.handle, Outcome::Ack)).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![] });
    transaction.commit().await.unwrap();
    assert_eq!(fx.notes().await, ["shipped"]);
    let row = world.row(id).await;
    assert_eq!((row.status, row.processed_by), (Status::Done, Some(owner)));
}

pub(super) async fn mst_030_a_rollback_undoes_writes_and_ack(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let before = snapshot(&world.row(id).await);
    for outcome in [Outcome::Ack, Outcome::fail("x"), Outcome::Release { delay: None, error: None }] {
        let mut transaction = world.outbox.store().begin().await.unwrap();
        fx.write_note(transaction.as_mut(), "not to be").await;
        let settled = transaction.settle(owner, &settlement(claimed.handle, outcome)).await.unwrap();
        assert_eq!(settled.changed, [id]);
        transaction.rollback().await.unwrap();
        assert_eq!(snapshot(&world.row(id).await), before);
    }
    assert!(fx.notes().await.is_empty());
    assert_eq!(
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap().changed,
        [id],
        "the claim still holds"
    );
}

pub(super) async fn mst_030_a_dropped_transaction_rolls_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let mut transaction = world.outbox.store().begin().await.unwrap();
    fx.write_note(transaction.as_mut(), "not to be").await;
    transaction.settle(owner, &settlement(claimed.handle, Outcome::Ack)).await.unwrap();
    drop(transaction);
    // The next write waits until the database has let go, so what follows can't race with the rollback.
    let settled = world.outbox.renew(owner, &[claimed.handle], LEASE).await.unwrap();
    assert_eq!(settled.stale, [], "the claim still holds");
    assert_eq!(world.row(id).await.status, Status::InProgress);
    assert!(fx.notes().await.is_empty());
}

pub(super) async fn mst_030_a_lost_claim_is_seen_before_the_commit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let lost = world.claim_one(owner).await.handle;
    world.advance(LEASE * 2).await;
    let fresh = world.claim_one(OwnerToken::new()).await;
    let before = snapshot(&world.row(id).await);
    let mut transaction = world.outbox.store().begin().await.unwrap();
    fx.write_note(transaction.as_mut(), "too late").await;
    let settled = transaction.settle(owner, &settlement(lost, Outcome::Ack)).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![], stale: vec![id] });
    transaction.rollback().await.unwrap();
    assert!(fx.notes().await.is_empty());
    assert_eq!(snapshot(&world.row(id).await), before);
    assert_eq!(fresh.attempt, 2);
}

pub(super) async fn mst_031_an_enqueue_rides_on_the_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let claimed = world.claim_one(owner).await;

    let mut transaction = world.outbox.store().begin().await.unwrap();
    let gone = transaction.enqueue(&prepared("gone")).await.unwrap();
    transaction.settle(owner, &settlement(claimed.handle, Outcome::Ack)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(world.outbox.get(gone[0].work_item).await.unwrap().is_none());
    assert_eq!(world.row(id).await.status, Status::InProgress);

    let mut transaction = world.outbox.store().begin().await.unwrap();
    let kept = transaction.enqueue(&prepared("kept")).await.unwrap();
    transaction.settle(owner, &settlement(claimed.handle, Outcome::Ack)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].added);
    assert_eq!(world.row(id).await.status, Status::Done);
    let next = world.claim_one(owner).await;
    assert_eq!(
        (next.id(), next.topic.as_str(), next.payload.as_str()),
        (kept[0].work_item, "follow-up", "kept")
    );
}
