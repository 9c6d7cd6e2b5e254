//! 6.2: what a claim takes, how it locks it, and what it never takes.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::{ErrorKind, OwnerToken};
use uuid::Uuid;

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{GRAIN, LEASE, TOPIC, World, handles, ids, set};

cases! { $ claim_cases:
    obx_017_a_claim_takes_up_to_the_batch ["OBX-017", "OBX-026", "PRIM-OUTBOX-002"],
    obx_018_a_claim_takes_what_is_due_and_leaves_the_rest ["OBX-018", "PRIM-OUTBOX-006"],
    obx_019_a_leased_message_is_not_claimed_again ["OBX-019"],
    obx_019_a_lapsed_lease_is_claimed_again_without_a_reap ["OBX-019", "R2"],
    obx_020_the_lock_holds_for_the_lease_from_the_databases_now ["OBX-020"],
    obx_021_the_owner_is_recorded ["OBX-021", "R10"],
    obx_022_a_claim_returns_exactly_what_it_locked ["OBX-022"],
    obx_023_nothing_ready_gives_an_empty_claim ["OBX-023"],
    obx_024_done_messages_are_never_claimed ["OBX-024"],
    obx_025_failed_messages_are_never_claimed ["OBX-025"],
    obx_027_rejects_a_lease_of_zero_and_one_above_a_day ["OBX-027", "OBX-097"],
    obx_028_rejects_a_batch_of_zero ["OBX-028", "PRIM-OUTBOX-001", "OBX-098"],
    obx_018_a_past_due_time_does_not_jump_the_queue ["OBX-018", "PRIM-OUTBOX-006"],
    obx_029_an_abandoned_message_waits_for_its_next_attempt ["OBX-029"],
    r10_a_nil_owner_is_refused_everywhere ["R10"],
    r3_a_delivery_is_counted_when_it_is_claimed ["R3"],
    r3_a_message_at_the_delivery_limit_fails_instead_of_being_handed_out ["R3"],
    r3_a_message_whose_every_delivery_died_fails_at_the_limit ["R3"],
    r3_rejected_messages_do_not_hide_the_ready_ones_behind_them ["R3"],
    r8_topics_can_be_chosen_and_left_out ["R8"],
    r10_generations_grow_with_every_claim ["R10"],
}

pub(super) async fn obx_017_a_claim_takes_up_to_the_batch(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = set(&world.enqueue_some(10).await);
    let owner = OwnerToken::new();
    let first = world.claim(owner, 4).await;
    let second = world.claim(owner, 4).await;
    let third = world.claim(owner, 4).await;
    assert_eq!([first.len(), second.len(), third.len()], [4, 4, 2]);
    let taken: BTreeSet<_> = [first, second, third].iter().flat_map(|part| ids(part)).collect();
    assert_eq!(taken, all, "each exactly once");
    world.assert_nothing_due().await;
}

pub(super) async fn obx_018_a_claim_takes_what_is_due_and_leaves_the_rest(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let later = world.enqueue(Message::new("later", "").due_in(Duration::from_secs(60))).await;
    let now = world.enqueue(Message::new("now", "")).await;
    let owner = OwnerToken::new();
    assert_eq!(world.claim_one(owner).await.id(), now);
    assert_eq!(world.row(later).await.status, Status::Ready);
    world.advance(Duration::from_secs(61)).await;
    let claimed = world.claim(OwnerToken::new(), 50).await;
    // The first claim's lease of 30 s lapsed on the way.
    assert_eq!(ids(&claimed), set(&[now, later]));
}

pub(super) async fn obx_018_a_past_due_time_does_not_jump_the_queue(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let waiting = world.enqueue(Message::new("waiting", "")).await;
    // So that the order can't depend on the clock's precision.
    world.advance(Duration::from_secs(5)).await;
    let past = world.now().await - Duration::from_secs(3600);
    let pushy = world.enqueue(Message::new("pushy", "").due_at(past)).await;
    let messages = vec![Message::new("pushy", "").due_at(Timestamp::UNIX_EPOCH)];
    let pushier = world.outbox.enqueue_many(messages).await.unwrap()[0].work_item;
    for id in [pushy, pushier] {
        let row = world.row(id).await;
        let (next, created) = (row.next_attempt_at, row.created_at);
        assert!(next >= created, "due at {next}, before it was enqueued at {created}");
        assert!(row.due_at.unwrap() <= past, "what was asked for is kept");
    }
    for expected in [waiting, pushy, pushier] {
        assert_eq!(world.claim(OwnerToken::new(), 1).await[0].id(), expected);
    }
}

pub(super) async fn obx_019_a_leased_message_is_not_claimed_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    assert_eq!(ids(&world.claim(owner, 50).await), set(&all));
    world.advance(LEASE - Duration::from_secs(10)).await;
    assert!(world.claim(owner, 50).await.is_empty(), "not by the same owner");
    let other = world.second().await.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap();
    assert!(other.items.is_empty(), "and not by another one");
    for row in world.rows(&all).await {
        assert_eq!((row.owner, row.attempts, row.claims()), (Some(owner), 1, 1));
    }
}

pub(super) async fn obx_019_a_lapsed_lease_is_claimed_again_without_a_reap(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "x")).await;
    let (first, second) = (OwnerToken::new(), OwnerToken::new());
    let stale = world.claim_one(first).await;
    world.advance(LEASE + Duration::from_secs(1)).await;
    let fresh = world.claim_one(second).await;
    assert_eq!((fresh.id(), fresh.attempt), (id, 2), "the delivery that lapsed counts");
    assert!(fresh.handle.generation() > stale.handle.generation());
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner, row.attempts), (Status::InProgress, Some(second), 2));
}

pub(super) async fn obx_020_the_lock_holds_for_the_lease_from_the_databases_now(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for lease in [Duration::from_secs(1), Duration::from_millis(12_500), Duration::from_secs(24 * 3600)] {
        let id = world.enqueue(Message::new(TOPIC, "")).await;
        let owner = OwnerToken::new();
        let before = world.now().await;
        let claimed = world.claim_batch(&ClaimRequest::new(owner).lease(lease)).await.items;
        let after = world.now().await;
        assert_eq!(claimed.len(), 1);
        let locked = claimed[0].locked_until;
        assert!(
            before + lease <= locked && locked <= after + lease + GRAIN,
            "{before} + {lease:?}: {locked}"
        );
        assert!(before <= claimed[0].claimed_at && claimed[0].claimed_at <= after);
        assert_eq!(world.row(id).await.locked_until, Some(locked));
        world.outbox.ack(owner, &[claimed[0].handle]).await.unwrap();
    }
}

pub(super) async fn obx_021_the_owner_is_recorded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    world.claim_one(owner).await;
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner), (Status::InProgress, Some(owner)));
    assert_eq!((row.processed_at, row.processed_by), (None, None));
}

pub(super) async fn obx_022_a_claim_returns_exactly_what_it_locked(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(7).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 5).await;
    let taken = ids(&claimed);
    assert_eq!(taken.len(), 5);
    // In the order they became due.
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), all[..5]);
    for row in world.rows(&all).await {
        let expected = if taken.contains(&row.id) { Status::InProgress } else { Status::Ready };
        assert_eq!(row.status, expected);
        assert_eq!(row.owner.is_some(), taken.contains(&row.id));
    }
    for item in &claimed {
        let row = world.row(item.id()).await;
        assert_eq!((item.message_id, &item.topic), (row.message_id, &row.topic));
        assert_eq!(Some(&item.payload), row.payload.as_ref());
        assert_eq!((item.attempt, item.handle.generation()), (row.attempts, row.generation));
        assert_eq!(item.created_at, row.created_at);
    }
}

pub(super) async fn obx_023_nothing_ready_gives_an_empty_claim(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.assert_nothing_due().await;
    world.enqueue(Message::new(TOPIC, "").due_in(Duration::from_secs(3600))).await;
    world.assert_nothing_due().await;
}

pub(super) async fn obx_024_done_messages_are_never_claimed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    world.enqueue_some(3).await;
    let claimed = world.claim(owner, 50).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(90 * 24 * 3600)).await;
    world.assert_nothing_due().await;
    assert_eq!(world.outbox.stats().await.unwrap().done, 3);
}

pub(super) async fn obx_025_failed_messages_are_never_claimed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    world.enqueue_some(3).await;
    let claimed = world.claim(owner, 50).await;
    world.outbox.fail(owner, &handles(&claimed), None).await.unwrap();
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(90 * 24 * 3600)).await;
    world.assert_nothing_due().await;
    assert_eq!(world.outbox.stats().await.unwrap().failed, 3);
}

pub(super) async fn obx_027_rejects_a_lease_of_zero_and_one_above_a_day(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    for lease in [Duration::ZERO, Duration::from_secs(24 * 3600 + 1)] {
        let error = world.outbox.claim(&ClaimRequest::new(owner).lease(lease)).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("lease")));
    }
    let claimed = world.claim_one(owner).await;
    let error = world.outbox.renew(owner, &[claimed.handle], Duration::ZERO).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("lease")));
    assert_eq!(world.row(claimed.id()).await.attempts, 1, "what was refused took nothing");
}

pub(super) async fn obx_028_rejects_a_batch_of_zero(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    for batch in [0, 100_001] {
        let request = ClaimRequest::new(OwnerToken::new()).batch(batch);
        let error = world.outbox.claim(&request).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("batch")));
        assert!(error.message().contains(&batch.to_string()), "what was found is named: {error}");
    }
    let error =
        world.outbox.claim(&ClaimRequest::new(OwnerToken::new()).delivery_limit(0)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("delivery_limit")));
    assert_eq!(world.row(id).await.status, Status::Ready);
}

pub(super) async fn obx_029_an_abandoned_message_waits_for_its_next_attempt(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let delay = Some(Duration::from_secs(100));
    world.outbox.abandon(owner, &[claimed.handle], delay, None).await.unwrap();
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(90)).await;
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(11)).await;
    assert_eq!(world.claim_one(owner).await.id(), id);
}

pub(super) async fn r10_a_nil_owner_is_refused_everywhere(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let nil = OwnerToken::from_uuid(Uuid::nil());
    let error = world.outbox.claim(&ClaimRequest::new(nil)).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("owner")));
    assert_eq!(world.row(id).await.status, Status::Ready);

    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    let refused = [
        world.outbox.ack(nil, &claim).await,
        world.outbox.abandon(nil, &claim, None, None).await,
        world.outbox.release(nil, &claim, None).await,
        world.outbox.fail(nil, &claim, None).await,
        world.outbox.renew(nil, &claim, LEASE).await,
    ];
    for result in refused {
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("owner")));
    }
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner), (Status::InProgress, Some(owner)));
}

pub(super) async fn r3_a_delivery_is_counted_when_it_is_claimed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    for attempt in 1..=3 {
        let claimed = world.claim_one(owner).await;
        assert_eq!((claimed.attempt, claimed.retry_count()), (attempt, attempt - 1));
        let row = world.row(id).await;
        assert_eq!((row.attempts, row.retry_count()), (attempt, attempt - 1));
        world.advance(LEASE * 2).await;
    }
    // A release gives the delivery back, an abandon does not.
    let claimed = world.claim_one(owner).await;
    world.outbox.release(owner, &[claimed.handle], None).await.unwrap();
    assert_eq!(world.row(id).await.attempts, 3);
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.attempt, 4);
    world.outbox.abandon(owner, &[claimed.handle], None, None).await.unwrap();
    assert_eq!(world.row(id).await.attempts, 4);
}

pub(super) async fn r3_a_message_at_the_delivery_limit_fails_instead_of_being_handed_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("poison", "")).await;
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).delivery_limit(2);
    for _ in 0..2 {
        let batch = world.claim_batch(&request).await;
        assert_eq!((batch.items.len(), batch.rejected.len()), (1, 0));
        let error = Some("it broke".to_owned());
        world.outbox.abandon(owner, &batch.handles(), None, error).await.unwrap();
        world.advance(Duration::from_secs(61)).await;
    }
    let batch = world.claim_batch(&request).await;
    assert!(batch.items.is_empty());
    assert_eq!(batch.rejected.len(), 1);
    let rejected = &batch.rejected[0];
    assert_eq!((rejected.id, rejected.topic.as_str()), (id, "poison"));
    assert_eq!(rejected.reason, FailureReason::DeliveryLimit);
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::DeliveryLimit)));
    assert_eq!((row.attempts, row.owner, row.locked_until), (2, None, None));
    assert!(row.processed_at.is_some());
    let error = row.last_error.expect("a clear reason");
    assert!(error.contains("delivery limit") && error.contains("it broke"), "{error}");
    world.assert_nothing_due().await;
}

pub(super) async fn r3_a_message_whose_every_delivery_died_fails_at_the_limit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("killer", "")).await;
    let request = |owner| ClaimRequest::new(owner).lease(LEASE);
    // The default limit is ten; nobody settles, nobody reaps.
    for attempt in 1..=10 {
        let batch = world.claim_batch(&request(OwnerToken::new())).await;
        assert_eq!(batch.items.len(), 1, "delivery {attempt} of 10");
        assert_eq!(batch.items[0].attempt, attempt);
        world.advance(LEASE + Duration::from_secs(1)).await;
    }
    let batch = world.claim_batch(&request(OwnerToken::new())).await;
    assert!(batch.items.is_empty());
    assert_eq!(batch.rejected.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::DeliveryLimit)));
    assert!(row.last_error.unwrap().contains("10"), "the limit is named");
}

pub(super) async fn r3_rejected_messages_do_not_hide_the_ready_ones_behind_them(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let bad = world.enqueue_some(40).await;
    let owner = OwnerToken::new();
    assert_eq!(world.claim(owner, 40).await.len(), 40);
    world.advance(LEASE * 2).await;
    let good = world.enqueue_some(3).await;
    // Forty rows are at their limit and come first; the claim must get past them.
    let batch = world.claim_batch(&ClaimRequest::new(owner).delivery_limit(1).batch(3)).await;
    assert_eq!(ids(&batch.items), set(&good));
    let mut rejected: BTreeSet<_> = batch.rejected.iter().map(|one| one.id).collect();
    let rest = world.claim_batch(&ClaimRequest::new(owner).delivery_limit(1).batch(100)).await;
    assert!(rest.items.is_empty());
    rejected.extend(rest.rejected.iter().map(|one| one.id));
    assert_eq!(rejected, set(&bad));
}

pub(super) async fn r8_topics_can_be_chosen_and_left_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let a = world.enqueue(Message::new("a", "")).await;
    let b = world.enqueue(Message::new("b", "")).await;
    let c = world.enqueue(Message::new("c", "")).await;
    let owner = OwnerToken::new();
    let topics = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let none = world.claim_batch(&ClaimRequest::new(owner).only_topics(topics(&["d", "A"]))).await;
    assert!(none.items.is_empty());
    let only = world.claim_batch(&ClaimRequest::new(owner).only_topics(topics(&["b", "d"]))).await;
    assert_eq!(ids(&only.items), set(&[b]));
    let except = world.claim_batch(&ClaimRequest::new(owner).except_topics(topics(&["a", "b"]))).await;
    assert_eq!(ids(&except.items), set(&[c]));
    assert_eq!(world.row(a).await.status, Status::Ready);
    assert_eq!(world.claim_one(owner).await.id(), a);
}

pub(super) async fn r10_generations_grow_with_every_claim(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let mut last = 0;
    for round in 0..6 {
        let claimed = world.claim_one(owner).await;
        assert!(claimed.handle.generation() > last, "round {round}");
        last = claimed.handle.generation();
        match round % 3 {
            0 => drop(world.outbox.abandon(owner, &[claimed.handle], None, None).await.unwrap()),
            1 => drop(world.outbox.release(owner, &[claimed.handle], None).await.unwrap()),
            _ => {
                world.outbox.fail(owner, &[claimed.handle], None).await.unwrap();
                assert_eq!(world.outbox.requeue(&[id]).await.unwrap(), [id]);
            }
        }
        world.advance(Duration::from_secs(61)).await;
    }
}
