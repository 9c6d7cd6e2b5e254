//! What is interrupted happened as a whole or not at all, and nothing has to be cleaned up afterwards.

use std::time::Duration;

use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, interrupted, set};

cases! { $ crash_cases:
    mst_001_a_worker_that_vanishes_after_a_claim_loses_nothing ["MST-001", "R2"],
    mst_001_a_dropped_enqueue_adds_all_or_nothing ["MST-001", "OBX-080"],
    mst_001_a_dropped_claim_or_settle_loses_nothing ["MST-001", "OBX-080"],
    mst_005_a_message_that_kills_every_worker_stops_at_the_limit ["MST-005", "R3"],
    r12_a_closed_provider_says_so ["R12"],
}

pub(super) async fn mst_001_a_worker_that_vanishes_after_a_claim_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(5).await;
    {
        let gone = fx.second().await;
        let outbox = Outbox::new(gone.outbox());
        let owner = OwnerToken::new();
        let claimed = outbox.claim(&ClaimRequest::new(owner).lease(LEASE)).await.unwrap().items;
        assert_eq!(ids(&claimed), set(&all));
        outbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    }
    world.assert_nothing_due().await;
    world.advance(LEASE + Duration::from_secs(1)).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    assert_eq!(ids(&claimed), set(&all[1..]), "what was acked stays done, the rest comes back");
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(world.outbox.stats().await.unwrap().done, 5);
}

pub(super) async fn mst_001_a_dropped_enqueue_adds_all_or_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for polls in 0..30 {
        let key = format!("call {polls}");
        let plain = (0..50).map(|_| Message::new(TOPIC, ""));
        let keyed = (0..50).map(|_| Message::new(TOPIC, "").idempotency_key(key.clone()));
        let call = world.outbox.enqueue_many(plain.chain(keyed).collect());
        interrupted(polls, call).await;
        // Fifty plain ones, and one for the fifty with the same key. What was dropped may still be on its way, so
        // it may show up only after the next call; but never a part of it.
        let total = world.total().await;
        assert!(total.is_multiple_of(51), "a part of a call dropped after {polls} polls: {total} rows");
    }
    // The connections serve on, and an enqueue that is tried again after all adds what is missing and no more.
    world.outbox.enqueue(Message::new(TOPIC, "").idempotency_key("call 29")).await.unwrap();
    world.enqueue(Message::new(TOPIC, "")).await;
}

pub(super) async fn mst_001_a_dropped_claim_or_settle_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(40).await;
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).lease(LEASE).batch(5).delivery_limit(1_000);
    for polls in 0..30 {
        let claimed = interrupted(polls, world.outbox.claim(&request)).await;
        if let Some(batch) = claimed {
            let batch = batch.unwrap();
            interrupted(polls, world.outbox.ack(owner, &batch.handles())).await;
        }
        world.advance(LEASE * 2).await;
    }
    // Whatever was dropped where, every message can still be brought to its end.
    let request = ClaimRequest::new(owner).lease(LEASE).delivery_limit(1_000);
    loop {
        world.advance(LEASE * 2).await;
        let batch = world.claim_batch(&request).await;
        assert_eq!(batch.rejected, []);
        world.outbox.ack(owner, &batch.handles()).await.unwrap();
        let stats = world.outbox.stats().await.unwrap();
        if stats.open() == 0 {
            assert_eq!((stats.done, stats.failed), (40, 0));
            break;
        }
    }
    assert!(world.rows(&all).await.iter().all(|row| row.status == Status::Done));
}

pub(super) async fn mst_005_a_message_that_kills_every_worker_stops_at_the_limit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let killer = world.enqueue(Message::new("killer", "")).await;
    let mut deliveries = 0;
    // Each round is a process that claims and dies; one more round than there may be deliveries.
    for _ in 0..6 {
        let fine = world.enqueue(Message::new("fine", "")).await;
        let owner = OwnerToken::new();
        let batch = world.claim_batch(&ClaimRequest::new(owner).lease(LEASE).delivery_limit(5)).await;
        deliveries += batch.items.iter().filter(|item| item.id() == killer).count();
        let done = batch.items.iter().find(|item| item.id() == fine).expect("others are not held up");
        world.outbox.ack(owner, &[done.handle]).await.unwrap();
        world.advance(LEASE + Duration::from_secs(1)).await;
    }
    assert_eq!(deliveries, 5);
    assert_eq!(world.row(killer).await.status, Status::Failed);
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.failed, stats.open()), (6, 1, 0));
}

pub(super) async fn r12_a_closed_provider_says_so(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    world.provider.close().await;
    world.provider.close().await;
    let refused = [
        world.outbox.enqueue(Message::new(TOPIC, "")).await.map(drop).unwrap_err(),
        world.outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.map(drop).unwrap_err(),
        world.outbox.get(id).await.map(drop).unwrap_err(),
        world.provider.now().await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(!error.is_retryable());
    }
}
