//! 6.3: what an ack records, and whose acks count.

use std::time::Duration;

use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimHandle, Outcome, Settled, Settlement, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{GRAIN, LEASE, TOPIC, World, handles, set, snapshot};

cases! { $ ack_cases:
    obx_030_an_ack_marks_the_message_processed ["OBX-030", "OBX-031", "OBX-032"],
    obx_033_an_ack_by_another_owner_changes_nothing ["OBX-033", "PRIM-OUTBOX-003"],
    obx_034_unknown_ids_are_ignored_and_reported ["OBX-034", "R4"],
    obx_035_an_acked_message_is_not_claimed_again ["OBX-035"],
    obx_036_an_empty_list_is_a_no_op ["OBX-036"],
    r4_a_settle_returns_exactly_what_changed ["R4"],
    r10_a_stale_claim_of_the_same_owner_settles_nothing ["R10", "MST-006"],
    r4_a_claim_settled_twice_is_stale_the_second_time ["R4"],
    r4_one_call_settles_each_claim_its_own_way ["R4", "OBX-080"],
    r11_a_renewed_claim_outlives_its_first_lease ["R11"],
    r11_a_lost_claim_can_not_be_renewed ["R11", "R10"],
}

pub(super) async fn obx_030_an_ack_marks_the_message_processed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "payload").correlation("c")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let before = world.now().await;
    let settled = world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    let after = world.now().await;
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![] });
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason), (Status::Done, None));
    assert!(row.is_processed());
    let processed = row.processed_at.expect("when it was processed");
    assert!(before <= processed && processed <= after, "{before} {processed} {after}");
    assert_eq!(row.processed_by, Some(owner));
    assert_eq!((row.owner, row.locked_until), (None, None));
    assert_eq!((row.attempts, row.retry_count()), (1, 0));
    // Its identity and contents are still there.
    assert_eq!((row.message_id, row.topic.as_str()), (claimed.message_id, TOPIC));
    assert_eq!(row.correlation_id.as_deref(), Some("c"));
    assert_eq!(row.created_at, claimed.created_at);
}

pub(super) async fn obx_033_an_ack_by_another_owner_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(2).await;
    let owner = OwnerToken::new();
    let claimed = handles(&world.claim(owner, 50).await);
    let before: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    let settled = world.outbox.ack(OwnerToken::new(), &claimed).await.unwrap();
    assert_eq!(settled.changed, []);
    assert_eq!(set(&settled.stale), set(&all));
    let after: Vec<_> = world.rows(&all).await.iter().map(snapshot).collect();
    assert_eq!(before, after);
    // The owner still can.
    assert_eq!(set(&world.outbox.ack(owner, &claimed).await.unwrap().changed), set(&all));
}

pub(super) async fn obx_034_unknown_ids_are_ignored_and_reported(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let ready = world.enqueue(Message::new("ready", "").due_in(Duration::from_secs(600))).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await.handle;
    let unknown = WorkItemId::new();
    let claims = [ClaimHandle::new(unknown, 1), claimed, ClaimHandle::new(ready, 0)];
    let settled = world.outbox.ack(owner, &claims).await.unwrap();
    assert_eq!(settled.changed, [id]);
    assert_eq!(set(&settled.stale), set(&[unknown, ready]));
    assert_eq!(world.row(ready).await.status, Status::Ready, "what is not claimed can't be acked");
}

pub(super) async fn obx_035_an_acked_message_is_not_claimed_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let rest = world.claim(owner, 50).await;
    assert_eq!(rest.iter().map(|item| item.id()).collect::<Vec<_>>(), all[2..]);
    world.advance(LEASE * 10).await;
    let again = world.claim(owner, 50).await;
    assert_eq!(again.len(), 2, "only those that were not acked come back");
    assert!(again.iter().all(|item| all[2..].contains(&item.id())));
}

pub(super) async fn obx_036_an_empty_list_is_a_no_op(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    world.claim_one(owner).await;
    let before = snapshot(&world.row(id).await);
    let nothing = Settled::default();
    assert_eq!(world.outbox.ack(owner, &[]).await.unwrap(), nothing);
    assert_eq!(world.outbox.abandon(owner, &[], None, None).await.unwrap(), nothing);
    assert_eq!(world.outbox.release(owner, &[], None).await.unwrap(), nothing);
    assert_eq!(world.outbox.fail(owner, &[], None).await.unwrap(), nothing);
    assert_eq!(world.outbox.renew(owner, &[], LEASE).await.unwrap(), nothing);
    assert_eq!(world.outbox.settle(owner, &[]).await.unwrap(), nothing);
    assert_eq!(world.outbox.cancel(&[]).await.unwrap(), []);
    assert_eq!(world.outbox.requeue(&[]).await.unwrap(), []);
    assert_eq!(world.outbox.enqueue_many(vec![]).await.unwrap(), []);
    assert_eq!(snapshot(&world.row(id).await), before);
    // A provider may be called without the client in front.
    assert_eq!(world.outbox.store().settle(owner, &[]).await.unwrap(), nothing);
    assert_eq!(world.outbox.store().renew(owner, &[], LEASE).await.unwrap(), nothing);
    assert_eq!(world.outbox.store().enqueue(&[]).await.unwrap(), []);
}

pub(super) async fn r4_a_settle_returns_exactly_what_changed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(6).await;
    let (mine, theirs) = (OwnerToken::new(), OwnerToken::new());
    let my_claims = world.claim(mine, 3).await;
    let their_claims = world.claim(theirs, 3).await;
    let mixed = [handles(&my_claims), handles(&their_claims)].concat();
    let settled = world.outbox.ack(mine, &mixed).await.unwrap();
    assert_eq!(set(&settled.changed), set(&all[..3]));
    assert_eq!(set(&settled.stale), set(&all[3..]));
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.in_progress), (3, 3));
}

pub(super) async fn r10_a_stale_claim_of_the_same_owner_settles_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let stale = world.claim_one(owner).await.handle;
    world.advance(LEASE * 2).await;
    // The same worker wakes up, claims again, and then the old attempt tries to finish.
    let fresh = world.claim_one(owner).await.handle;
    assert_ne!(stale, fresh);
    let before = snapshot(&world.row(id).await);
    let late = Settled { changed: vec![], stale: vec![id] };
    let error = || Some("late".to_owned());
    assert_eq!(world.outbox.ack(owner, &[stale]).await.unwrap(), late);
    assert_eq!(world.outbox.abandon(owner, &[stale], None, error()).await.unwrap(), late);
    assert_eq!(world.outbox.release(owner, &[stale], None).await.unwrap(), late);
    assert_eq!(world.outbox.fail(owner, &[stale], error()).await.unwrap(), late);
    assert_eq!(world.outbox.renew(owner, &[stale], LEASE * 9).await.unwrap(), late);
    assert_eq!(snapshot(&world.row(id).await), before);
    assert_eq!(world.outbox.ack(owner, &[fresh]).await.unwrap().changed, [id]);
}

pub(super) async fn r4_a_claim_settled_twice_is_stale_the_second_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    assert_eq!(world.outbox.ack(owner, &claim).await.unwrap().changed, [id]);
    let before = snapshot(&world.row(id).await);
    let late = Settled { changed: vec![], stale: vec![id] };
    assert_eq!(world.outbox.ack(owner, &claim).await.unwrap(), late);
    assert_eq!(world.outbox.fail(owner, &claim, Some("no".to_owned())).await.unwrap(), late);
    assert_eq!(world.outbox.abandon(owner, &claim, None, None).await.unwrap(), late);
    assert_eq!(snapshot(&world.row(id).await), before, "a second processed-at must not replace the first");
}

pub(super) async fn r4_one_call_settles_each_claim_its_own_way(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    let outcomes = [
        Outcome::Ack,
        Outcome::Abandon { delay: Some(Duration::from_secs(40)), error: Some("again".to_owned()) },
        Outcome::Release { delay: None, error: None },
        Outcome::fail("for good"),
    ];
    let settlements = claimed.iter().zip(outcomes);
    let settlements = settlements.map(|(item, outcome)| Settlement { claim: item.handle, outcome });
    let settled = world.outbox.settle(owner, &settlements.collect::<Vec<_>>()).await.unwrap();
    assert_eq!(set(&settled.changed), set(&all));
    let rows = world.rows(&all).await;
    let stands = |index: usize| (rows[index].status, rows[index].attempts, rows[index].last_error.as_deref());
    assert_eq!(stands(0), (Status::Done, 1, None));
    assert_eq!(stands(1), (Status::Ready, 1, Some("again")));
    assert_eq!(stands(2), (Status::Ready, 0, None));
    assert_eq!(stands(3), (Status::Failed, 1, Some("for good")));
    assert_eq!(world.claim_one(owner).await.id(), all[2], "only the released one is due at once");
}

pub(super) async fn r11_a_renewed_claim_outlives_its_first_lease(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    world.advance(LEASE / 2).await;
    let before = world.now().await;
    let renewed = world.outbox.renew(owner, &[claimed.handle], LEASE).await.unwrap();
    let after = world.now().await;
    assert_eq!(renewed, Settled { changed: vec![id], stale: vec![] });
    let row = world.row(id).await;
    let locked = row.locked_until.unwrap();
    assert!(before + LEASE <= locked && locked <= after + LEASE + GRAIN);
    assert_eq!((row.attempts, row.generation), (1, claimed.handle.generation()), "a renewal is no claim");
    world.advance(LEASE - Duration::from_secs(5)).await;
    world.assert_nothing_due().await;
    assert_eq!(world.outbox.ack(owner, &[claimed.handle]).await.unwrap().changed, [id]);
}

pub(super) async fn r11_a_lost_claim_can_not_be_renewed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (first, second) = (OwnerToken::new(), OwnerToken::new());
    let lost = world.claim_one(first).await.handle;
    world.advance(LEASE * 2).await;
    world.claim_one(second).await;
    let before = snapshot(&world.row(id).await);
    let renewed = world.outbox.renew(first, &[lost], LEASE).await.unwrap();
    assert_eq!(renewed, Settled { changed: vec![], stale: vec![id] });
    assert_eq!(snapshot(&world.row(id).await), before);
}
