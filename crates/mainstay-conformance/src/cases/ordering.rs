//! Ordering keys, priorities and expiry.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mainstay_core::outbox::{Message, OnFailure};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, FailureReason, Status};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use mainstay_tests::eventually;

use crate::case::cases;
use crate::fixture::{Fixture, Lacking};
use crate::world::{LEASE, TOPIC, World, handles, ids, set};

cases! { $ ordering_cases:
    mst_040_one_of_a_key_at_a_time_in_order ["MST-040"],
    mst_040_a_retry_keeps_its_place ["MST-040"],
    mst_040_keys_do_not_wait_for_each_other ["MST-040"],
    mst_040_a_failed_message_lets_the_next_one_go ["MST-040"],
    mst_040_a_failed_message_holds_its_key_when_told_to ["MST-040"],
    mst_040_a_held_key_goes_on_when_released ["MST-040"],
    mst_040_a_lapsed_claim_goes_before_the_rest_of_its_key ["MST-040", "R2"],
    mst_040_a_requeued_message_and_a_dead_workers_claim_do_not_block_each_other ["MST-040", "R2", "R16"],
    mst_040_a_late_renewal_does_not_run_two_of_a_key ["MST-040", "R11"],
    mst_040_a_renewal_that_is_held_up_does_not_run_two_of_a_key ["MST-040", "R11"],
    mst_040_a_renewal_that_commits_late_does_not_run_two_of_a_key ["MST-040", "R11"],
    mst_040_many_workers_keep_the_order_of_every_key ["MST-040", "OBX-083"],
    mst_040_rejects_an_empty_and_an_over_long_key ["MST-040"],
    mst_041_higher_priority_goes_first ["MST-041"],
    mst_041_nothing_starves_in_small_batches ["MST-041"],
    mst_041_nothing_starves_in_large_batches ["MST-041"],
    mst_041_rejects_a_priority_out_of_range ["MST-041"],
    mst_042_an_expired_message_is_never_handed_out ["MST-042"],
    mst_042_an_expiry_in_the_past_fails_at_the_first_claim ["MST-042"],
    mst_042_expired_messages_do_not_hide_the_ready_ones ["MST-042"],
    mst_042_an_expired_head_lets_its_key_go_on ["MST-042", "MST-040"],
}

fn keyed(key: &str, payload: impl ToString) -> Message {
    Message::new(TOPIC, payload.to_string()).ordering_key(key)
}

pub(super) async fn mst_040_one_of_a_key_at_a_time_in_order(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut all = Vec::new();
    for number in 0..5 {
        all.push(world.enqueue(keyed("k", number)).await);
    }
    let owner = OwnerToken::new();
    for id in all {
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.id(), id, "in the order they were enqueued");
        world.assert_nothing_due().await;
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
    world.assert_nothing_due().await;
}

pub(super) async fn mst_040_a_retry_keeps_its_place(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = world.enqueue(keyed("k", 1)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.abandon(owner, &claim, Some(Duration::from_secs(60)), None).await.unwrap();
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(60)).await;
    let claimed = world.claim_one(owner).await;
    assert_eq!((claimed.id(), claimed.attempt), (first, 2));
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(world.claim_one(owner).await.id(), second);
}

pub(super) async fn mst_040_keys_do_not_wait_for_each_other(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let a1 = world.enqueue(keyed("a", 1)).await;
    let _a2 = world.enqueue(keyed("a", 2)).await;
    let b1 = world.enqueue(keyed("b", 1)).await;
    let _b2 = world.enqueue(keyed("b", 2)).await;
    let free = world.enqueue_some(2).await;
    // Keys are case-sensitive.
    let upper = world.enqueue(keyed("A", 1)).await;
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(ids(&claimed), set(&[vec![a1, b1, upper], free].concat()));
    world.assert_nothing_due().await;
}

pub(super) async fn mst_040_a_failed_message_lets_the_next_one_go(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(keyed("k", 1)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.fail(owner, &claim, None).await.unwrap();
    assert_eq!(world.claim_one(owner).await.id(), second);
    assert_eq!(world.outbox.stats().await.unwrap().held_keys, 0);
}

pub(super) async fn mst_040_a_failed_message_holds_its_key_when_told_to(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = world.enqueue(keyed("k", 1).on_failure(OnFailure::Hold)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let other = world.enqueue(keyed("other", 1)).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 50).await;
    assert_eq!(ids(&claimed), set(&[first, other]));
    world.outbox.fail(owner, &handles(&claimed), None).await.unwrap();
    assert_eq!(world.outbox.stats().await.unwrap().held_keys, 1);
    world.advance(Duration::from_secs(24 * 3600)).await;
    world.assert_nothing_due().await;
    // What comes later waits too.
    world.enqueue(keyed("k", 3)).await;
    world.assert_nothing_due().await;
    // A requeue of the failed one ends the hold, and it goes first.
    assert_eq!(world.outbox.requeue(&[first]).await.unwrap(), [first]);
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.id(), first);
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(world.claim_one(owner).await.id(), second);
    assert_eq!(world.outbox.stats().await.unwrap().held_keys, 0);
}

pub(super) async fn mst_040_a_held_key_goes_on_when_released(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(keyed("k", 1).on_failure(OnFailure::Hold)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.fail(owner, &claim, None).await.unwrap();
    world.assert_nothing_due().await;
    assert!(!world.outbox.release_key("other").await.unwrap());
    assert!(world.outbox.release_key("k").await.unwrap());
    assert!(!world.outbox.release_key("k").await.unwrap(), "once");
    assert_eq!(world.claim_one(owner).await.id(), second);
}

pub(super) async fn mst_040_a_lapsed_claim_goes_before_the_rest_of_its_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let first = world.enqueue(keyed("k", 1)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    world.claim_one(OwnerToken::new()).await;
    world.advance(LEASE * 2).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert_eq!((claimed.id(), claimed.attempt), (first, 2));
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    assert_eq!(world.claim_one(owner).await.id(), second);
}

pub(super) async fn mst_040_a_requeued_message_and_a_dead_workers_claim_do_not_block_each_other(
    fx: &dyn Fixture,
) {
    let world = World::open(fx).await;
    let first = world.enqueue(keyed("k", 1)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.fail(owner, &claim, None).await.unwrap();
    // The worker of the second dies, and the first, which is older, is requeued.
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), second);
    assert_eq!(world.outbox.requeue(&[first]).await.unwrap(), [first]);
    world.assert_nothing_due().await;
    world.advance(LEASE * 2).await;
    let mut order = Vec::new();
    for _ in 0..2 {
        let claimed = world.claim_one(owner).await;
        order.push(claimed.id());
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
    assert_eq!(set(&order), set(&[first, second]), "neither waits for the other for ever");
}

pub(super) async fn mst_040_a_late_renewal_does_not_run_two_of_a_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // More urgent, so that a claim of one finds it without coming past the other.
    let first = world.enqueue(keyed("k", 1).priority(9)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let (slow, quick) = (OwnerToken::new(), OwnerToken::new());
    let claim = [world.claim_one(quick).await.handle];
    world.outbox.fail(quick, &claim, None).await.unwrap();
    let paused = [world.claim_one(slow).await.handle];
    assert_eq!(world.outbox.requeue(&[first]).await.unwrap(), [first]);
    world.advance(LEASE * 2).await;
    let mut running = world.claim(quick, 1).await.remove(0);
    if running.id() == second {
        // Also right: what was begun is finished before the requeued one has its turn.
        world.outbox.ack(quick, &[running.handle]).await.unwrap();
        running = world.claim(quick, 1).await.remove(0);
    }
    assert_eq!(running.id(), first);
    // The worker of the second was paused and wakes up: its claim must not come back to life beside the first.
    let renewed = world.outbox.renew(slow, &paused, LEASE).await.unwrap();
    assert_eq!((renewed.changed, renewed.stale), (vec![], vec![second]));
    assert_eq!(world.outbox.ack(quick, &[running.handle]).await.unwrap().changed, [first]);
}

/// Two of a key, of which `owner` has claimed the second, while the first waits: it failed, and was requeued since.
async fn overtaken(world: &World<'_>, owner: OwnerToken) -> (WorkItemId, ClaimHandle) {
    let first = world.enqueue(keyed("k", 1)).await;
    let second = world.enqueue(keyed("k", 2)).await;
    let other = OwnerToken::new();
    let claim = [world.claim_one(other).await.handle];
    world.outbox.fail(other, &claim, None).await.unwrap();
    let claim = world.claim_one(owner).await.handle;
    assert_eq!(claim.id(), second);
    assert_eq!(world.outbox.requeue(&[first]).await.unwrap(), [first]);
    (first, claim)
}

/// How long the server may take to get where a case waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn mst_040_a_renewal_that_is_held_up_does_not_run_two_of_a_key(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let world = World::open(fx).await;
    let mut session = world.session().await?;
    let (slow, quick) = (OwnerToken::new(), OwnerToken::new());
    let (first, claim) = overtaken(&world, slow).await;
    session.begin().await;
    session.lock_queue().await;
    let renewal = async { world.outbox.renew(slow, &[claim], LEASE).await.unwrap() };
    let claiming = async {
        // The renewal begins while the lease is live, and goes on after the lapse and after the claim that relies on it.
        eventually(PATIENCE, "the renewal waits", async || session.is_waited_for().await).await;
        session.end_leases(Duration::ZERO).await;
        let claimed = session.claim(quick).await;
        session.commit().await;
        claimed
    };
    let (renewed, claimed) = futures_util::join!(renewal, claiming);
    assert_eq!(claimed, [first]);
    assert_eq!((renewed.changed, renewed.stale), (vec![], vec![claim.id()]), "two of a key are in progress");
    // The claim that lapsed has ended: its item waits for its turn again.
    assert_eq!(world.row(claim.id()).await.status, Status::Ready);
    assert_eq!(world.row(first).await.status, Status::InProgress);
    Ok(())
}

pub(super) async fn mst_040_a_renewal_that_commits_late_does_not_run_two_of_a_key(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let world = World::open(fx).await;
    let mut session = world.session().await?;
    let (slow, quick) = (OwnerToken::new(), OwnerToken::new());
    let (first, claim) = overtaken(&world, slow).await;
    // Renewed in time by a transaction that stays open. Should the lease have lapsed before that, once more.
    loop {
        session.end_leases(Duration::from_millis(500)).await;
        session.begin().await;
        if session.renew(slow, claim.id()).await == [claim.id()] {
            break;
        }
        session.commit().await;
    }
    let lapse = world.now().await + Duration::from_millis(500);
    eventually(PATIENCE, "the lease that others see lapses", async || world.now().await > lapse).await;
    let claimed = world.claim(quick, 50).await;
    assert_eq!(ids(&claimed), set(&[]), "the second may have been renewed, and it has");
    session.commit().await;
    world.assert_nothing_due().await;
    assert_eq!(world.outbox.ack(slow, &[claim]).await.unwrap().changed, [claim.id()]);
    assert_eq!(world.claim_one(quick).await.id(), first);
    Ok(())
}

pub(super) async fn mst_040_many_workers_keep_the_order_of_every_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    const KEYS: usize = 5;
    const EACH: usize = 8;
    let messages = (0..KEYS * EACH).map(|n| keyed(&format!("key {}", n % KEYS), n / KEYS)).collect();
    world.outbox.enqueue_many(messages).await.unwrap();
    let running = std::sync::Mutex::new(BTreeSet::<String>::new());
    let order = std::sync::Mutex::new(BTreeMap::<String, Vec<usize>>::new());
    let workers = (0..6_usize).map(|number| {
        let outbox = if number.is_multiple_of(2) { world.outbox.clone() } else { second.clone() };
        let (running, order) = (&running, &order);
        async move {
            let owner = OwnerToken::new();
            while order.lock().unwrap().values().map(Vec::len).sum::<usize>() < KEYS * EACH {
                let claimed = outbox.claim(&ClaimRequest::new(owner).batch(3)).await.unwrap().items;
                for item in claimed {
                    let key = item.ordering_key.clone().unwrap();
                    assert!(running.lock().unwrap().insert(key.clone()), "{key} runs twice at once");
                    tokio::task::yield_now().await;
                    order.lock().unwrap().entry(key.clone()).or_default().push(item.payload.parse().unwrap());
                    // Not running from here on: the ack lets the next one go before it has returned.
                    running.lock().unwrap().remove(&key);
                    let settled = outbox.ack(owner, &[item.handle]).await.unwrap();
                    assert_eq!(settled.changed, [item.id()]);
                }
                tokio::task::yield_now().await;
            }
        }
    });
    futures_util::future::join_all(workers).await;
    let order = order.into_inner().unwrap();
    assert_eq!(order.len(), KEYS);
    for (key, handled) in order {
        assert_eq!(handled, (0..EACH).collect::<Vec<_>>(), "{key}");
    }
}

pub(super) async fn mst_040_rejects_an_empty_and_an_over_long_key(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for key in [String::new(), "k".repeat(256)] {
        let error = world.enqueue_error(keyed(&key, "")).await;
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("ordering_key")));
        let error = world.outbox.release_key(&key).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("ordering_key")));
    }
    let longest = "ß".repeat(255);
    let id = world.enqueue(keyed(&longest, "")).await;
    assert_eq!(world.row(id).await.ordering_key, Some(longest));
}

pub(super) async fn mst_041_higher_priority_goes_first(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut by_level = BTreeMap::new();
    for level in [0, -9, 9, 3, -2] {
        by_level.insert(level, world.enqueue(Message::new(TOPIC, "").priority(level)).await);
    }
    let expected: Vec<WorkItemId> = by_level.into_values().rev().collect();
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<Vec<_>>(), expected);
    assert_eq!(claimed.iter().map(|item| item.priority).collect::<Vec<_>>(), [9, 3, 0, -2, -9]);
}

pub(super) async fn mst_041_nothing_starves_in_small_batches(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let low = world.enqueue(Message::new(TOPIC, "").priority(-9)).await;
    let owner = OwnerToken::new();
    // There is always more urgent work, and each claim has room for one. A share of one in ten makes it all but
    // impossible to miss the low one a thousand times over (0.9^1000 is 1e-46).
    for level in std::iter::repeat_n(9, 1_000) {
        world.enqueue(Message::new(TOPIC, "").priority(level)).await;
        let claimed = world.claim(owner, 1).await;
        assert_eq!(claimed.len(), 1);
        if claimed[0].id() == low {
            return;
        }
        world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
        // One more than is taken, so that the high level never runs dry.
        world.enqueue(Message::new(TOPIC, "").priority(level)).await;
    }
    panic!("the low message was never handed out");
}

pub(super) async fn mst_041_nothing_starves_in_large_batches(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let urgent: Vec<Message> = (0..200).map(|_| Message::new(TOPIC, "").priority(5)).collect();
    world.outbox.enqueue_many(urgent).await.unwrap();
    let low: Vec<Message> = (0..20).map(|_| Message::new(TOPIC, "").priority(-5)).collect();
    world.outbox.enqueue_many(low).await.unwrap();
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(claimed.len(), 50);
    let low = claimed.iter().filter(|item| item.priority == -5).count();
    assert!(low >= 1, "every level has a share of each claim");
    assert!(low <= 10, "and the urgent level has most of it, not {}", 50 - low);
}

pub(super) async fn mst_041_rejects_a_priority_out_of_range(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for level in [-10, 10, i16::MIN, i16::MAX] {
        let error = world.enqueue_error(Message::new(TOPIC, "").priority(level)).await;
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("priority")));
    }
    assert_eq!(world.total().await, 0);
}

pub(super) async fn mst_042_an_expired_message_is_never_handed_out(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("quote", "").expires_in(Duration::from_secs(60))).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.expires_at, world.row(id).await.expires_at);
    world.outbox.abandon(owner, &[claimed.handle], None, Some("busy".to_owned())).await.unwrap();
    world.advance(Duration::from_secs(61)).await;
    let batch = world.claim_batch(&ClaimRequest::new(owner)).await;
    assert!(batch.items.is_empty());
    assert_eq!(batch.rejected.len(), 1);
    assert_eq!((batch.rejected[0].id, batch.rejected[0].reason), (id, FailureReason::Expired));
    assert_eq!(batch.rejected[0].topic, "quote");
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::Expired)));
    assert!(row.last_error.unwrap().contains("expired"));
    assert!(row.processed_at.is_some());
    world.assert_nothing_due().await;
}

pub(super) async fn mst_042_an_expiry_in_the_past_fails_at_the_first_claim(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let past = world.now().await - Duration::from_secs(5);
    let id = world.enqueue(Message::new(TOPIC, "").expires_at(past)).await;
    let batch = world.claim_batch(&ClaimRequest::new(OwnerToken::new())).await;
    assert!(batch.items.is_empty());
    assert_eq!(batch.rejected.iter().map(|one| one.id).collect::<Vec<_>>(), [id]);
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts), (Status::Failed, 0), "it was never delivered");
}

pub(super) async fn mst_042_expired_messages_do_not_hide_the_ready_ones(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let past = world.now().await - Duration::from_secs(5);
    let expired = (0..40).map(|_| Message::new(TOPIC, "").expires_at(past)).collect();
    world.outbox.enqueue_many(expired).await.unwrap();
    let good = world.enqueue_some(2).await;
    let batch = world.claim_batch(&ClaimRequest::new(OwnerToken::new()).batch(2)).await;
    assert_eq!(ids(&batch.items), set(&good));
    world.claim_batch(&ClaimRequest::new(OwnerToken::new())).await;
    assert_eq!(world.outbox.stats().await.unwrap().failed, 40);
}

pub(super) async fn mst_042_an_expired_head_lets_its_key_go_on(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let past = world.now().await - Duration::from_secs(5);
    let head = world.enqueue(keyed("k", 1).expires_at(past)).await;
    let next = world.enqueue(keyed("k", 2)).await;
    let owner = OwnerToken::new();
    let mut claimed = BTreeSet::new();
    let mut rejected = BTreeSet::new();
    // A provider may need a second look to see that the head is gone.
    for _ in 0..2 {
        let batch = world.claim_batch(&ClaimRequest::new(owner)).await;
        claimed.extend(ids(&batch.items));
        rejected.extend(batch.rejected.iter().map(|one| one.id));
    }
    assert_eq!((claimed, rejected), (set(&[next]), set(&[head])));
}
