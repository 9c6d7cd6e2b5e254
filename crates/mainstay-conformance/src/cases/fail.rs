//! 6.5: giving a message up.

use std::time::Duration;

use mainstay_core::outbox::{Message, MessageFilter, Page};
use mainstay_core::queue::{ClaimHandle, FailureReason, Settled, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, set, snapshot};

cases! { $ fail_cases:
    obx_044_a_fail_ends_the_message_for_good ["OBX-044", "PRIM-OUTBOX-005", "R1"],
    obx_045_a_fail_records_the_error ["OBX-045", "R6"],
    obx_046_a_fail_by_another_owner_changes_nothing ["OBX-046"],
    obx_047_unknown_ids_are_ignored_by_a_fail ["OBX-047"],
    obx_048_a_failed_message_is_not_claimed_again ["OBX-048"],
    r1_a_waiting_message_can_be_cancelled ["R1"],
    r1_only_a_waiting_message_can_be_cancelled ["R1"],
}

pub(super) async fn obx_044_a_fail_ends_the_message_for_good(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "payload")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    let before = world.now().await;
    let settled = world.outbox.fail(owner, &claim, Some("broken".to_owned())).await.unwrap();
    let after = world.now().await;
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![] });
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::Handler)));
    assert!(!row.is_processed(), "failed is not processed");
    assert_eq!((row.owner, row.locked_until), (None, None), "claim ownership is removed");
    assert_eq!(row.processed_by, Some(owner));
    let when = row.processed_at.expect("when it failed");
    assert!(before <= when && when <= after);
    assert_eq!((row.attempts, row.payload.as_deref()), (1, Some("payload")), "kept for a replay");
    // Nothing but a requeue changes it.
    let settled_before = snapshot(&row);
    assert_eq!(world.outbox.ack(owner, &claim).await.unwrap().changed, []);
    assert_eq!(world.outbox.reap_expired().await.unwrap(), 0);
    assert_eq!(snapshot(&world.row(id).await), settled_before);
}

pub(super) async fn obx_045_a_fail_records_the_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let with = world.enqueue(Message::new("with", "")).await;
    let without = world.enqueue(Message::new("without", "")).await;
    let owner = OwnerToken::new();
    for item in world.claim(owner, 50).await {
        let error = (item.id() == with).then(|| "no such customer".to_owned());
        world.outbox.fail(owner, &[item.handle], error).await.unwrap();
    }
    assert_eq!(world.row(with).await.last_error.as_deref(), Some("no such customer"));
    assert_eq!(world.row(without).await.last_error, None);
}

pub(super) async fn obx_046_a_fail_by_another_owner_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let claim = [world.claim_one(OwnerToken::new()).await.handle];
    let before = snapshot(&world.row(id).await);
    let settled = world.outbox.fail(OwnerToken::new(), &claim, Some("x".to_owned())).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![], stale: vec![id] });
    assert_eq!(snapshot(&world.row(id).await), before);
}

pub(super) async fn obx_047_unknown_ids_are_ignored_by_a_fail(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = world.claim_one(owner).await.handle;
    let unknown = WorkItemId::new();
    let settled = world.outbox.fail(owner, &[ClaimHandle::new(unknown, 1), claim], None).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![unknown] });
    assert_eq!(world.total().await, 1);
}

pub(super) async fn obx_048_a_failed_message_is_not_claimed_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.fail(owner, &handles(&claimed), None).await.unwrap();
    assert_eq!(world.claim(owner, 50).await.iter().map(|item| item.id()).collect::<Vec<_>>(), all[2..]);
    world.advance(LEASE * 100).await;
    let again = world.claim(owner, 50).await;
    assert_eq!(crate::world::ids(&again), set(&all[2..]));
}

pub(super) async fn r1_a_waiting_message_can_be_cancelled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let due = world.enqueue(Message::new("due", "")).await;
    let later = world.enqueue(Message::new("later", "").due_in(Duration::from_secs(60))).await;
    let kept = world.enqueue(Message::new("kept", "")).await;
    let cancelled = world.outbox.cancel(&[due, later, due, WorkItemId::new()]).await.unwrap();
    assert_eq!(set(&cancelled), set(&[due, later]), "each once, the unknown one not");
    for id in [due, later] {
        let row = world.row(id).await;
        assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::Cancelled)));
        assert!(row.last_error.unwrap().contains("cancelled"));
        assert!(row.processed_at.is_some());
        assert_eq!(row.attempts, 0);
    }
    let filter = MessageFilter::all().reason(FailureReason::Cancelled);
    let listed = world.outbox.list(&filter, Page::default()).await.unwrap();
    assert_eq!(set(&listed.iter().map(|row| row.id).collect::<Vec<_>>()), set(&[due, later]));
    world.advance(Duration::from_secs(61)).await;
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), kept);
}

pub(super) async fn r1_only_a_waiting_message_can_be_cancelled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    world.outbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    world.outbox.fail(owner, &[claimed[1].handle], None).await.unwrap();
    let before: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(world.outbox.cancel(&all).await.unwrap(), [], "done, failed and running ones stay");
    let after: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(before, after);
}
