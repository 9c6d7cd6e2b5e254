//! 7.2: sizes, from nothing to the largest allowed.

use std::time::Duration;

use mainstay_core::outbox::{Message, MessageFilter};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, Outcome, Settlement, Status};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, set};

cases! { $ limits_cases:
    obx_096_large_payloads_round_trip ["OBX-096", "MST-021"],
    mst_021_a_payload_of_64_mib_round_trips_and_a_larger_one_is_refused ["MST-021", "OBX-096"],
    mst_021_headers_are_bounded ["MST-021"],
    mst_020_repeated_ids_are_tolerated ["MST-020"],
    mst_020_a_hundred_thousand_ids_in_one_call_work ["MST-020"],
    obx_099_a_claim_of_ten_thousand_works ["OBX-099", "OBX-098"],
    obx_097_any_lease_within_bounds_is_taken ["OBX-097"],
}

pub(super) async fn obx_096_large_payloads_round_trip(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    for size in [1, 8_000, 8_192, 1 << 20, 5 << 20] {
        // Not all the same, so that a part that is lost or moved shows.
        let payload: String = (0..size).map(|n: usize| char::from(b'a' + (n % 26) as u8)).collect();
        let id = world.enqueue(Message::new(TOPIC, payload.clone())).await;
        let claimed = world.claim_one(owner).await;
        // Not assert_eq, which would print megabytes.
        assert!(claimed.payload == payload, "a payload of {size} bytes came back changed from the claim");
        assert!(world.row(id).await.payload.as_ref() == Some(&payload), "… and from get, {size} bytes");
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
}

pub(super) async fn mst_021_a_payload_of_64_mib_round_trips_and_a_larger_one_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let largest = "64 bytes of text, again and again, till there are 64 MiB of it.\n".repeat(1 << 20);
    assert_eq!(largest.len(), 64 << 20);
    let id = world.enqueue(Message::new(TOPIC, largest.clone())).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert!(claimed.id() == id && claimed.payload == largest, "64 MiB came back changed");
    drop(claimed.payload);
    assert_eq!(world.outbox.ack(owner, &[claimed.handle]).await.unwrap().changed, [id]);

    let error = world.enqueue_error(Message::new(TOPIC, largest + "x")).await;
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("payload")));
    assert!(error.message().contains("67108864"), "the bound is named: {error}");
    assert_eq!(world.total().await, 1);
    let smaller = world.outbox.clone().with_payload_limit(10);
    let error = smaller.enqueue(Message::new(TOPIC, "elf Zeichen")).await.unwrap_err();
    assert_eq!(error.field(), Some("payload"), "the bound can be lowered");
}

pub(super) async fn mst_021_headers_are_bounded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let largest = "h".repeat((64 << 10) - 1);
    let id = world.enqueue(Message::new(TOPIC, "").header("x", largest.clone())).await;
    assert_eq!(world.row(id).await.headers.get("x"), Some(&largest));
    let error = world.enqueue_error(Message::new(TOPIC, "").header("xy", largest)).await;
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("headers")));
    let error = world.enqueue_error(Message::new(TOPIC, "").header("", "")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert_eq!(world.total().await, 1);
}

pub(super) async fn mst_020_repeated_ids_are_tolerated(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    let twice = |claim: ClaimHandle| [claim, claim];
    assert_eq!(world.outbox.renew(owner, &twice(claims[0]), LEASE).await.unwrap().changed, [all[0]]);
    assert_eq!(world.outbox.ack(owner, &twice(claims[0])).await.unwrap().changed, [all[0]]);
    let abandoned = world.outbox.abandon(owner, &twice(claims[1]), None, None).await.unwrap();
    assert_eq!((abandoned.changed, abandoned.stale), (vec![all[1]], vec![]));
    assert_eq!(world.row(all[1]).await.attempts, 1);
    assert_eq!(world.outbox.fail(owner, &twice(claims[2]), None).await.unwrap().changed, [all[2]]);
    // The first of two different outcomes wins.
    let settlements = [Outcome::Ack, Outcome::fail("no")];
    let settlements = settlements.map(|outcome| Settlement { claim: claims[3], outcome });
    assert_eq!(world.outbox.settle(owner, &settlements).await.unwrap().changed, [all[3]]);
    assert_eq!(world.row(all[3]).await.status, Status::Done);
    // Of two claims of one row, only the one that holds counts.
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let claim = world.claim_one(owner).await.handle;
    let other = ClaimHandle::new(id, claim.generation() + 1);
    let settled = world.outbox.ack(owner, &[other, claim]).await.unwrap();
    assert_eq!((settled.changed, settled.stale), (vec![id], vec![]));
}

pub(super) async fn mst_020_a_hundred_thousand_ids_in_one_call_work(fx: &dyn Fixture) {
    const MANY: usize = 100_000;
    let world = World::open(fx).await;
    let real = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    let mut many: Vec<ClaimHandle> = (3..MANY).map(|_| ClaimHandle::new(WorkItemId::new(), 1)).collect();
    // The real ones are at both ends and in the middle.
    many.insert(0, claims[0]);
    many.insert(MANY / 2, claims[1]);
    many.push(claims[2]);
    assert_eq!(many.len(), MANY);
    let renewed = world.outbox.renew(owner, &many, LEASE).await.unwrap();
    assert_eq!((set(&renewed.changed), renewed.stale.len()), (set(&real), MANY - 3));
    let acked = world.outbox.ack(owner, &many).await.unwrap();
    assert_eq!((set(&acked.changed), acked.stale.len()), (set(&real), MANY - 3));
    let unknown: Vec<WorkItemId> = many.iter().map(|claim| claim.id()).collect();
    assert_eq!(world.outbox.cancel(&unknown).await.unwrap(), []);
    assert_eq!(world.outbox.requeue(&unknown).await.unwrap(), []);
    assert_eq!(world.total().await, 3);
}

pub(super) async fn obx_099_a_claim_of_ten_thousand_works(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let messages = (0..10_000).map(|n: u32| Message::new(TOPIC, n.to_string())).collect();
    let enqueued = world.outbox.enqueue_many(messages).await.unwrap();
    let order: Vec<WorkItemId> = enqueued.iter().map(|one| one.work_item).collect();
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 10_000).await;
    let claimed_order: Vec<WorkItemId> = claimed.iter().map(|item| item.id()).collect();
    assert!(claimed_order == order, "all of them, in the order they were enqueued");
    assert_eq!(world.outbox.ack(owner, &handles(&claimed)).await.unwrap().changed.len(), 10_000);
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.open()), (10_000, 0));
    let page = mainstay_core::outbox::Page { limit: 1_000, before: None };
    assert_eq!(world.outbox.list(&MessageFilter::all(), page).await.unwrap().len(), 1_000);
}

pub(super) async fn obx_097_any_lease_within_bounds_is_taken(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for lease in [Duration::from_millis(1), Duration::from_secs(10), Duration::from_secs(300)] {
        world.enqueue(Message::new(TOPIC, "")).await;
        let owner = OwnerToken::new();
        let claimed = world.claim_batch(&ClaimRequest::new(owner).lease(lease)).await.items;
        let held = claimed[0].locked_until.duration_since(claimed[0].claimed_at);
        assert_eq!(held.as_millis(), lease.as_millis() as i128);
        world.outbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    }
}
