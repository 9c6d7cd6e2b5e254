//! Waiting for work.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::Message;
use mainstay_core::store::{WaitRequest, Wake};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, interrupted};

cases! { $ wait_cases:
    obx_103_work_that_is_due_ends_a_wait_at_once ["OBX-103"],
    obx_103_a_wait_is_woken_by_an_enqueue ["OBX-103"],
    obx_103_a_wait_ends_when_a_message_becomes_due ["OBX-103"],
    obx_103_a_wait_without_work_times_out ["OBX-103"],
}

/// Much longer than any of the waits below take: only a wait that misses its reason gets there.
const LONG: Duration = Duration::from_secs(120);

async fn obx_103_work_that_is_due_ends_a_wait_at_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    let woken = world.outbox.store().wait(&WaitRequest::new(OwnerToken::new()).timeout(LONG)).await.unwrap();
    assert_ne!(woken, Wake::TimedOut);
    // So does a lapsed lease, which a claim takes too.
    world.claim_one(OwnerToken::new()).await;
    world.advance(LEASE * 2).await;
    let woken = world.outbox.store().wait(&WaitRequest::new(OwnerToken::new()).timeout(LONG)).await.unwrap();
    assert_ne!(woken, Wake::TimedOut);
}

async fn obx_103_a_wait_is_woken_by_an_enqueue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let hears = fx.hears_of_enqueues();
    let timeout = if hears { LONG } else { Duration::from_secs(1) };
    for round in 0..3 {
        let store = world.outbox.store().clone();
        let waiting =
            tokio::spawn(
                async move { store.wait(&WaitRequest::new(OwnerToken::new()).timeout(timeout)).await },
            );
        // Whether the wait has begun by now or not, it must not miss this.
        for _ in 0..round * 20 {
            tokio::task::yield_now().await;
        }
        let outbox = if round == 1 { &world.outbox } else { &second };
        let id = outbox.enqueue(Message::new(TOPIC, "")).await.unwrap().work_item;
        let woken = waiting.await.unwrap().unwrap();
        assert!(!hears || woken != Wake::TimedOut, "it slept through");
        let owner = OwnerToken::new();
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.id(), id);
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
}

async fn obx_103_a_wait_ends_when_a_message_becomes_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "").due_in(Duration::from_millis(200))).await;
    let owner = OwnerToken::new();
    // It may end a little early; what counts is that it does not sleep through.
    loop {
        let claimed = world.claim(owner, 1).await;
        if let Some(item) = claimed.first() {
            assert_eq!(item.id(), id);
            break;
        }
        assert_ne!(
            world.outbox.store().wait(&WaitRequest::new(owner).timeout(LONG)).await.unwrap(),
            Wake::TimedOut
        );
    }
}

async fn obx_103_a_wait_without_work_times_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "").due_in(LONG)).await;
    let owner = OwnerToken::new();
    for _ in 0..2 {
        // A wake-up for nothing is allowed, since it costs one empty claim; a stream of them is not.
        let mut wakes = 0;
        while world
            .outbox
            .store()
            .wait(&WaitRequest::new(owner).timeout(Duration::from_millis(50)))
            .await
            .unwrap()
            != Wake::TimedOut
        {
            wakes += 1;
            assert!(wakes < 20, "it never waits");
        }
        // A wait that was dropped leaves nothing behind that would harm the next one.
        interrupted(5, world.outbox.store().wait(&WaitRequest::new(owner).timeout(LONG))).await;
    }
}
