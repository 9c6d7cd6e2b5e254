//! 6.6: messages whose worker is gone.

use std::time::Duration;

use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, set, snapshot};

cases! { $ reap_cases:
    obx_049_a_reap_takes_all_lapsed_leases_and_only_those ["OBX-049"],
    obx_050_a_reap_frees_the_message ["OBX-050"],
    obx_051_a_reaped_message_is_claimable_at_once ["OBX-051"],
    obx_052_a_reap_leaves_settled_messages_alone ["OBX-052"],
    r2_a_reap_makes_the_old_claim_stale ["R2", "R10"],
    r2_many_lapsed_leases_are_all_reaped ["R2", "OBX-049"],
}

pub(super) async fn obx_049_a_reap_takes_all_lapsed_leases_and_only_those(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let lapsed = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    assert_eq!(ids(&world.claim(owner, 50).await), set(&lapsed));
    world.advance(LEASE + Duration::from_secs(1)).await;
    // Claimed after the others lapsed, so that one claim does not take them too.
    let held = world.enqueue(Message::new("held", "")).await;
    let request = ClaimRequest::new(owner).only_topics(vec!["held".to_owned()]);
    assert_eq!(ids(&world.claim_batch(&request).await.items), set(&[held]));
    let ready = world.enqueue(Message::new("ready", "").due_in(Duration::from_secs(600))).await;
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.in_progress, stats.lapsed), (4, 3));

    let untouched = [snapshot(&world.row(held).await), snapshot(&world.row(ready).await)];
    assert_eq!(world.outbox.reap_expired().await.unwrap(), 3);
    assert_eq!([snapshot(&world.row(held).await), snapshot(&world.row(ready).await)], untouched);
    for row in world.rows(&lapsed).await {
        assert_eq!(row.status, Status::Ready);
    }
    assert_eq!(world.outbox.reap_expired().await.unwrap(), 0, "once");
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.in_progress, stats.lapsed), (1, 0));
}

pub(super) async fn obx_050_a_reap_frees_the_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    world.claim_one(owner).await;
    world.advance(LEASE * 2).await;
    assert_eq!(world.outbox.reap_expired().await.unwrap(), 1);
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner, row.locked_until), (Status::Ready, None, None));
    assert_eq!((row.attempts, row.retry_count()), (1, 1), "a lapsed lease is a failed delivery");
    assert_eq!(row.claims(), 1);
}

pub(super) async fn obx_051_a_reaped_message_is_claimable_at_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(2).await;
    world.claim(OwnerToken::new(), 50).await;
    world.advance(LEASE * 2).await;
    world.outbox.reap_expired().await.unwrap();
    let claimed = world.second().await.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items;
    assert_eq!(ids(&claimed), set(&all));
    assert!(claimed.iter().all(|item| item.attempt == 2));
}

pub(super) async fn obx_052_a_reap_leaves_settled_messages_alone(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all: Vec<WorkItemId> = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    world.outbox.ack(owner, &claims[..1]).await.unwrap();
    world.outbox.fail(owner, &claims[1..2], None).await.unwrap();
    world.outbox.abandon(owner, &claims[2..], Some(Duration::from_secs(9_000)), None).await.unwrap();
    world.advance(LEASE * 2).await;
    let before: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(world.outbox.reap_expired().await.unwrap(), 0);
    let after: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(before, after);
}

pub(super) async fn r2_a_reap_makes_the_old_claim_stale(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.advance(LEASE * 2).await;
    world.outbox.reap_expired().await.unwrap();
    let before = snapshot(&world.row(id).await);
    assert_eq!(world.outbox.ack(owner, &claim).await.unwrap().stale, [id]);
    assert_eq!(world.outbox.renew(owner, &claim, LEASE).await.unwrap().stale, [id]);
    assert_eq!(snapshot(&world.row(id).await), before);
    world.claim_one(OwnerToken::new()).await;
}

pub(super) async fn r2_many_lapsed_leases_are_all_reaped(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let messages: Vec<Message> = (0..2_500).map(|_| Message::new(TOPIC, "")).collect();
    world.outbox.enqueue_many(messages).await.unwrap();
    assert_eq!(world.claim(OwnerToken::new(), 2_500).await.len(), 2_500);
    world.advance(LEASE * 2).await;
    // A provider may reap in batches; what one call leaves, the next ones take.
    let mut reaped = 0;
    loop {
        match world.outbox.reap_expired().await.unwrap() {
            0 => break,
            count => reaped += count,
        }
    }
    assert_eq!(reaped, 2_500);
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.in_progress, stats.lapsed), (2_500, 0, 0));
}
