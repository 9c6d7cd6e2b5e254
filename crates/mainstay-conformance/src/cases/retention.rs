//! Retention: what is deleted, what never is, and in what portions.

use std::time::Duration;

use mainstay_core::outbox::{Message, Retention};
use mainstay_core::queue::Status;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles};

cases! { $ retention_cases:
    r29_old_done_messages_go_and_the_rest_stays ["R29"],
    r29_failed_messages_are_kept_until_told_otherwise ["R29"],
    r29_what_is_not_terminal_is_never_deleted ["R29"],
    r29_each_transaction_deletes_one_batch ["R29"],
    r29_the_idempotency_key_goes_with_its_message ["R29", "R5"],
    r29_the_default_is_thirty_days ["R29"],
    prim_api_003_options_out_of_bounds_are_refused ["PRIM-API-003"],
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Enqueues and acks `count` messages.
async fn finish(world: &World<'_>, count: usize) -> Vec<WorkItemId> {
    let ids = world.enqueue_some(count).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    assert_eq!(world.outbox.ack(owner, &claims).await.unwrap().changed.len(), count);
    ids
}

async fn exists(world: &World<'_>, id: WorkItemId) -> bool {
    world.outbox.get(id).await.unwrap().is_some()
}

pub(super) async fn r29_old_done_messages_go_and_the_rest_stays(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let old = finish(&world, 3).await;
    world.advance(10 * DAY).await;
    let recent = finish(&world, 2).await;
    let retention = Retention::default().done(Some(5 * DAY));
    assert_eq!(world.outbox.purge(&retention).await.unwrap(), 3);
    for id in old {
        assert!(!exists(&world, id).await);
    }
    for id in recent {
        assert_eq!(world.row(id).await.status, Status::Done);
    }
    assert_eq!(world.outbox.purge(&retention).await.unwrap(), 0);
    assert_eq!(world.outbox.purge(&Retention::default().done(None)).await.unwrap(), 0, "none keeps for ever");
}

pub(super) async fn r29_failed_messages_are_kept_until_told_otherwise(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let failed = world.enqueue(Message::new("failed", "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.fail(owner, &claim, None).await.unwrap();
    let cancelled = world.enqueue(Message::new("cancelled", "")).await;
    world.outbox.cancel(&[cancelled]).await.unwrap();
    world.advance(1_000 * DAY).await;
    assert_eq!(world.outbox.purge(&Retention::default().done(Some(DAY))).await.unwrap(), 0);
    assert!(exists(&world, failed).await && exists(&world, cancelled).await);
    let told = Retention::default().failed(Some(DAY));
    assert_eq!(world.outbox.purge(&told).await.unwrap(), 2);
    assert!(!exists(&world, failed).await && !exists(&world, cancelled).await);
}

pub(super) async fn r29_what_is_not_terminal_is_never_deleted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ready = world.enqueue(Message::new("ready", "")).await;
    let running = world.enqueue(Message::new("running", "")).await;
    let waiting = world.enqueue(Message::new("waiting", "").due_in(2_000 * DAY)).await;
    let owner = OwnerToken::new();
    let request = mainstay_core::queue::ClaimRequest::new(owner).lease(LEASE);
    world.claim_batch(&request.only_topics(vec!["running".to_owned()])).await;
    world.advance(1_000 * DAY).await;
    let shortest = Duration::from_millis(1);
    let retention = Retention::default().done(Some(shortest)).failed(Some(shortest));
    assert_eq!(world.outbox.purge(&retention).await.unwrap(), 0);
    for id in [ready, running, waiting] {
        assert!(exists(&world, id).await);
    }
}

pub(super) async fn r29_each_transaction_deletes_one_batch(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    finish(&world, 7).await;
    world.advance(40 * DAY).await;
    let retention = Retention::default().batch(3);
    let store = world.outbox.store();
    let mut batches = Vec::new();
    for _ in 0..4 {
        batches.push(store.purge(&retention, None).await.unwrap());
    }
    assert_eq!(batches, [3, 3, 1, 0]);
    finish(&world, 7).await;
    world.advance(40 * DAY).await;
    assert_eq!(world.outbox.purge(&retention).await.unwrap(), 7, "the client goes on until none is left");
}

pub(super) async fn r29_the_idempotency_key_goes_with_its_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let keyed = || Message::new(TOPIC, "").idempotency_key("order-7");
    let first = world.enqueue(keyed()).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.ack(owner, &claim).await.unwrap();
    world.advance(31 * DAY).await;
    assert!(!world.outbox.enqueue(keyed()).await.unwrap().added, "kept as long as the message is");
    assert_eq!(world.outbox.purge(&Retention::default()).await.unwrap(), 1);
    let again = world.outbox.enqueue(keyed()).await.unwrap();
    assert!(again.added);
    assert_ne!(again.work_item, first);
}

pub(super) async fn r29_the_default_is_thirty_days(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = finish(&world, 1).await[0];
    world.advance(29 * DAY).await;
    assert_eq!(world.outbox.purge(&Retention::default()).await.unwrap(), 0);
    assert!(exists(&world, id).await);
    world.advance(2 * DAY).await;
    assert_eq!(world.outbox.purge(&Retention::default()).await.unwrap(), 1);
}

pub(super) async fn prim_api_003_options_out_of_bounds_are_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    finish(&world, 1).await;
    world.advance(40 * DAY).await;
    let bad = [
        ("batch", Retention::default().batch(0)),
        ("batch", Retention::default().batch(100_001)),
        ("interval", Retention::default().interval(Duration::ZERO)),
    ];
    for (field, retention) in bad {
        let error = world.outbox.purge(&retention).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    assert_eq!(world.total().await, 1, "what was refused deleted nothing");
    for name in ["", "a$b", "a\0b", "{{schema}}", &"x".repeat(41)] {
        let schema = mainstay_core::store::Names::default().with_schema(name).unwrap_err();
        assert_eq!((schema.kind(), schema.field()), (ErrorKind::InvalidArgument, Some("schema")));
        let table = mainstay_core::store::Names::default().with_outbox(name).unwrap_err();
        assert_eq!((table.kind(), table.field()), (ErrorKind::InvalidArgument, Some("outbox table")));
    }
}
