//! 6.12: many workers on one table.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use futures_util::future::{join, join_all};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, set};

cases! { $ concurrency_cases:
    obx_080_a_call_that_fails_part_way_leaves_nothing ["OBX-080"],
    obx_081_what_is_not_committed_is_not_seen ["OBX-081"],
    obx_082_settles_in_opposite_orders_do_not_deadlock ["OBX-082"],
    obx_083_many_workers_share_the_work ["OBX-083", "OBX-099"],
    obx_084_concurrent_claims_are_disjoint ["OBX-084"],
    obx_084_a_lapsed_message_is_taken_over_by_one_worker_only ["OBX-084", "R2"],
    obx_084_racing_settles_of_one_claim_count_once ["OBX-084", "R4"],
}

pub(super) async fn obx_080_a_call_that_fails_part_way_leaves_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let taken = world.enqueue(Message::new(TOPIC, "")).await;
    let mut messages: Vec<Message> =
        (0..20).map(|n| Message::new(TOPIC, "").idempotency_key(format!("key {n}"))).collect();
    messages.push(Message::new(TOPIC, "").work_item_id(taken));
    world.outbox.enqueue_many(messages).await.expect_err("the last one breaks the primary key");
    assert_eq!(world.total().await, 1);
    // Not even the idempotency keys are left.
    let again = world.outbox.enqueue(Message::new(TOPIC, "").idempotency_key("key 0")).await.unwrap();
    assert!(again.added);
}

pub(super) async fn obx_081_what_is_not_committed_is_not_seen(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let message = Message::new(TOPIC, "").prepare(&Default::default()).unwrap();
    let mut transaction = world.outbox.store().begin().await.unwrap();
    let id = transaction.enqueue(&[message]).await.unwrap()[0].work_item;
    if world.provider.capabilities().shared {
        assert!(world.second().await.get(id).await.unwrap().is_none(), "a dirty read");
    }
    transaction.rollback().await.unwrap();
    assert!(world.outbox.get(id).await.unwrap().is_none());
    world.assert_nothing_due().await;
}

pub(super) async fn obx_082_settles_in_opposite_orders_do_not_deadlock(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let owner = OwnerToken::new();
    for _ in 0..10 {
        let messages = (0..100).map(|_| Message::new(TOPIC, "")).collect();
        world.outbox.enqueue_many(messages).await.unwrap();
        let forth = handles(&world.claim(owner, 100).await);
        assert_eq!(forth.len(), 100);
        let back: Vec<ClaimHandle> = forth.iter().rev().copied().collect();
        // Both lock the same hundred rows, from either end.
        let (renewed, also) =
            join(world.outbox.renew(owner, &forth, LEASE), second.renew(owner, &back, LEASE)).await;
        let (renewed, also) = (renewed.unwrap(), also.unwrap());
        assert_eq!((renewed.stale, also.stale), (vec![], vec![]), "every claim is held");
        // One may pass over what the other is renewing.
        let extended: HashSet<_> = renewed.changed.into_iter().chain(also.changed).collect();
        assert_eq!(extended.len(), 100, "each claim is extended");
        let (acked, failed) = join(world.outbox.ack(owner, &forth), second.fail(owner, &back, None)).await;
        let (acked, failed) = (acked.unwrap(), failed.unwrap());
        let changed = [acked.changed, failed.changed].concat();
        assert_eq!(set(&changed).len(), 100, "each claim is settled exactly once");
    }
}

/// Claims and acks until all is done; returns what it had.
async fn work(outbox: Outbox, batch: u32) -> Vec<WorkItemId> {
    let owner = OwnerToken::new();
    let mut handled = Vec::new();
    loop {
        let claimed = outbox.claim(&ClaimRequest::new(owner).batch(batch)).await.unwrap().items;
        if claimed.is_empty() {
            return handled;
        }
        let settled = outbox.ack(owner, &handles(&claimed)).await.unwrap();
        assert_eq!(set(&settled.changed), ids(&claimed));
        handled.extend(ids(&claimed));
        tokio::task::yield_now().await;
    }
}

pub(super) async fn obx_083_many_workers_share_the_work(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let messages = (0..2_000).map(|n: u32| Message::new(TOPIC, n.to_string())).collect();
    let enqueued = world.outbox.enqueue_many(messages).await.unwrap();
    let all: Vec<WorkItemId> = enqueued.iter().map(|one| one.work_item).collect();
    let workers = (0..8_u32).map(|number| {
        let outbox = if number.is_multiple_of(2) { world.outbox.clone() } else { second.clone() };
        work(outbox, 17 + number)
    });
    let handled = join_all(workers).await.concat();
    assert_eq!(set(&handled), set(&all), "each message once, by one worker");
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.open(), stats.failed), (2_000, 0, 0));
}

pub(super) async fn obx_084_concurrent_claims_are_disjoint(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    for _ in 0..5 {
        let all = set(&world.enqueue_some(30).await);
        let claims = (0..12_u32).map(|number| {
            let outbox = if number.is_multiple_of(2) { world.outbox.clone() } else { second.clone() };
            async move {
                let owner = OwnerToken::new();
                (owner, outbox.claim(&ClaimRequest::new(owner).batch(7)).await.unwrap().items)
            }
        });
        let mut owners = BTreeMap::new();
        for (owner, items) in join_all(claims).await {
            assert!(items.len() <= 7);
            for item in items {
                assert_eq!(item.attempt, 1);
                assert!(owners.insert(item.id(), (owner, item.handle)).is_none(), "claimed twice");
            }
        }
        // Rows locked by one claim are skipped by the others, so a few may be left over; then they are free.
        let owner = OwnerToken::new();
        for item in world.claim(owner, 50).await {
            assert!(owners.insert(item.id(), (owner, item.handle)).is_none(), "claimed twice");
        }
        assert_eq!(owners.keys().copied().collect::<BTreeSet<_>>(), all);
        for (id, (owner, claim)) in owners {
            assert_eq!(world.row(id).await.owner, Some(owner), "the row belongs to who was told so");
            world.outbox.ack(owner, &[claim]).await.unwrap();
        }
    }
}

pub(super) async fn obx_084_a_lapsed_message_is_taken_over_by_one_worker_only(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    for attempt in 1..=5 {
        let claims = (0..6_u32).map(|number| {
            let outbox = if number.is_multiple_of(2) { world.outbox.clone() } else { second.clone() };
            async move { outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items }
        });
        let claimed = join_all(claims).await.concat();
        assert_eq!(ids(&claimed), set(&[id]));
        assert_eq!(claimed.len(), 1, "one worker of six");
        assert_eq!(claimed[0].attempt, attempt);
        world.advance(LEASE + Duration::from_secs(1)).await;
    }
}

pub(super) async fn obx_084_racing_settles_of_one_claim_count_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let owner = OwnerToken::new();
    for _ in 0..10 {
        let id = world.enqueue(Message::new(TOPIC, "")).await;
        let claim = [world.claim_one(owner).await.handle];
        let (acked, failed) = join(world.outbox.ack(owner, &claim), second.fail(owner, &claim, None)).await;
        let (acked, failed) = (acked.unwrap(), failed.unwrap());
        assert_eq!(acked.changed.len() + failed.changed.len(), 1, "one of the two wins");
        let expected = if acked.changed.is_empty() { Status::Failed } else { Status::Done };
        assert_eq!(world.row(id).await.status, expected, "and the row says who");
    }
}
