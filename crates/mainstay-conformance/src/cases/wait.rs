//! Waiting for work.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::{WaitRequest, Wake};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, interrupted};

cases! { $ wait_cases:
    obx_103_work_that_is_due_ends_a_wait_at_once ["OBX-103"],
    obx_103_a_wait_is_woken_by_an_enqueue ["OBX-103"],
    obx_103_a_wait_ends_when_a_message_becomes_due ["OBX-103"],
    obx_103_a_wait_without_work_times_out ["OBX-103"],
    obx_103_a_wait_is_for_the_topics_asked_for ["OBX-103"],
}

/// Much longer than any of the waits below take: only a wait that misses its reason gets there.
const LONG: Duration = Duration::from_secs(120);

pub(super) async fn obx_103_work_that_is_due_ends_a_wait_at_once(fx: &dyn Fixture) {
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

pub(super) async fn obx_103_a_wait_is_woken_by_an_enqueue(fx: &dyn Fixture) {
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

pub(super) async fn obx_103_a_wait_ends_when_a_message_becomes_due(fx: &dyn Fixture) {
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

pub(super) async fn obx_103_a_wait_without_work_times_out(fx: &dyn Fixture) {
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

/// Waits shortly, over and over while that ends for nothing: a wake-up too many is allowed, a stream of them is not.
async fn times_out(world: &World<'_>, request: &WaitRequest) -> bool {
    let request = request.clone().timeout(Duration::from_millis(50));
    for _ in 0..20 {
        if world.outbox.store().wait(&request).await.unwrap() == Wake::TimedOut {
            return true;
        }
    }
    false
}

pub(super) async fn obx_103_a_wait_is_for_the_topics_asked_for(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let request = WaitRequest::new(OwnerToken::new());
    let topics = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    world.enqueue(Message::new("slow", "")).await;
    world.enqueue(Message::new("slow", "").priority(5)).await;
    let (without, only) =
        (request.clone().except_topics(topics(&["slow"])), request.clone().only_topics(topics(&["fast"])));
    assert!(times_out(&world, &without).await, "what is left out ends no wait");
    assert!(times_out(&world, &only).await);
    assert!(!times_out(&world, &request).await, "but it is due");
    // The same for a lease that has lapsed.
    assert_eq!(world.claim(OwnerToken::new(), 50).await.len(), 2);
    world.advance(LEASE * 2).await;
    assert!(times_out(&world, &without).await);
    assert!(!times_out(&world, &request).await);
    // What is wanted ends a wait, though there is more of the other.
    world.enqueue(Message::new("fast", "")).await;
    for request in [&without, &only] {
        let request = request.clone().timeout(LONG);
        assert_ne!(world.outbox.store().wait(&request).await.unwrap(), Wake::TimedOut);
        let claim = ClaimRequest::new(OwnerToken::new()).lease(Duration::from_millis(1));
        let claim = claim.only_topics(request.only_topics).except_topics(request.except_topics);
        let claimed = world.claim_batch(&claim).await.items;
        assert_eq!(claimed.iter().map(|item| item.topic.as_str()).collect::<Vec<_>>(), ["fast"]);
        world.advance(LEASE).await;
    }
}
