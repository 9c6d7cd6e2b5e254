//! 6.4: giving a message back to be tried again.

use std::time::Duration;

use mainstay_core::outbox::{Message, OutboxMessage};
use mainstay_core::queue::{ClaimHandle, ClaimRequest, Outcome, Settled, Settlement, Status};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{LEASE, TOPIC, World, handles, ids, set, snapshot};

cases! { $ abandon_cases:
    obx_037_an_abandon_frees_the_message ["OBX-037", "PRIM-OUTBOX-004"],
    obx_038_an_abandon_counts_a_retry ["OBX-038"],
    obx_039_the_backoff_doubles_from_one_second_to_sixty ["OBX-039", "OBX-061", "OBX-062", "R7"],
    obx_040_an_abandon_by_another_owner_changes_nothing ["OBX-040"],
    obx_041_unknown_ids_are_ignored_by_an_abandon ["OBX-041"],
    obx_042_an_abandoned_message_comes_back_after_the_backoff ["OBX-042", "PRIM-OUTBOX-004"],
    obx_043_an_abandon_records_the_error ["OBX-043", "R6"],
    r6_a_given_delay_wins_over_the_backoff ["R6"],
    r6_a_delay_of_zero_is_refused ["R6"],
    r6_a_delay_above_ten_years_is_refused_as_a_whole ["R6"],
    r6_error_texts_are_bounded_and_clean ["R6"],
    r6_an_abandon_without_an_error_keeps_the_earlier_one ["R6"],
    r12_a_release_gives_back_at_once_and_uncounted ["R12"],
    r8_a_release_with_a_delay_waits ["R8"],
}

pub(super) async fn obx_037_an_abandon_frees_the_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    let settled = world.outbox.abandon(owner, &claim, None, None).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![] });
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner, row.locked_until), (Status::Ready, None, None));
    assert_eq!((row.processed_at, row.processed_by), (None, None));
    assert!(!row.is_processed());
}

pub(super) async fn obx_038_an_abandon_counts_a_retry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    for retries in 1..=3 {
        let claims = handles(&world.claim(owner, 50).await);
        assert_eq!(claims.len(), 3);
        // The same claim named twice counts once.
        let claims = [claims.clone(), claims].concat();
        let settled = world.outbox.abandon(owner, &claims, None, None).await.unwrap();
        assert_eq!(set(&settled.changed), set(&all));
        for row in world.rows(&all).await {
            assert_eq!((row.retry_count(), row.attempts), (retries, retries));
        }
        world.advance(Duration::from_secs(61)).await;
    }
}

/// Claims the only due message, abandons it, and returns the wait the database set, as a range in seconds.
async fn wait_after_abandon(world: &World<'_>, delay: Option<Duration>) -> (OutboxMessage, f64, f64) {
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    let before = world.now().await;
    world.outbox.abandon(owner, &[claimed.handle], delay, None).await.unwrap();
    let after = world.now().await;
    let row = world.row(claimed.id()).await;
    let longest = row.next_attempt_at.duration_since(before).as_secs_f64();
    let shortest = row.next_attempt_at.duration_since(after).as_secs_f64();
    (row, shortest, longest)
}

pub(super) async fn obx_039_the_backoff_doubles_from_one_second_to_sixty(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    for expected in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0] {
        let (row, shortest, longest) = wait_after_abandon(&world, None).await;
        assert!(
            shortest <= expected && expected <= longest,
            "after {} retries: {shortest} to {longest}, not {expected}",
            row.retry_count() - 1
        );
        world.advance(Duration::from_secs_f64(expected)).await;
    }
}

pub(super) async fn obx_040_an_abandon_by_another_owner_changes_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    let before = snapshot(&world.row(id).await);
    let settled = world.outbox.abandon(OwnerToken::new(), &claim, None, Some("x".to_owned())).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![], stale: vec![id] });
    assert_eq!(snapshot(&world.row(id).await), before);
    world.assert_nothing_due().await;
}

pub(super) async fn obx_041_unknown_ids_are_ignored_by_an_abandon(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = world.claim_one(owner).await.handle;
    let unknown = WorkItemId::new();
    let claims = [ClaimHandle::new(unknown, 7), claim];
    let settled = world.outbox.abandon(owner, &claims, None, None).await.unwrap();
    assert_eq!(settled, Settled { changed: vec![id], stale: vec![unknown] });
    assert_eq!(world.total().await, 1, "an unknown id adds nothing");
}

pub(super) async fn obx_042_an_abandoned_message_comes_back_after_the_backoff(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "payload")).await;
    let owner = OwnerToken::new();
    for _ in 0..5 {
        let claim = [world.claim_one(owner).await.handle];
        world.outbox.abandon(owner, &claim, None, None).await.unwrap();
        world.advance(Duration::from_secs(16)).await;
    }
    // The sixth wait is 32 seconds: long enough that the time this takes does not matter.
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.abandon(owner, &claim, None, None).await.unwrap();
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(20)).await;
    world.assert_nothing_due().await;
    world.advance(Duration::from_secs(12)).await;
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!((claimed.id(), claimed.attempt, claimed.payload.as_str()), (id, 7, "payload"));
}

pub(super) async fn obx_043_an_abandon_records_the_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world
        .outbox
        .abandon(owner, &claim, None, Some("connection refused: ünïcode '".to_owned()))
        .await
        .unwrap();
    assert_eq!(world.row(id).await.last_error.as_deref(), Some("connection refused: ünïcode '"));
    world.advance(Duration::from_secs(2)).await;
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.last_error.as_deref(), Some("connection refused: ünïcode '"));
}

pub(super) async fn r6_a_given_delay_wins_over_the_backoff(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    for delay in [Duration::from_millis(1500), Duration::from_secs(7 * 24 * 3600)] {
        let (_, shortest, longest) = wait_after_abandon(&world, Some(delay)).await;
        let expected = delay.as_secs_f64();
        assert!(shortest <= expected && expected <= longest, "{shortest} to {longest}, not {expected}");
        world.advance(delay).await;
    }
}

pub(super) async fn r6_a_delay_of_zero_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    let before = snapshot(&world.row(id).await);
    let zero = Some(Duration::ZERO);
    for refused in [
        world.outbox.abandon(owner, &claim, zero, None).await,
        world.outbox.release(owner, &claim, zero).await,
    ] {
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("delay")));
    }
    assert_eq!(snapshot(&world.row(id).await), before);
}

pub(super) async fn r6_a_delay_above_ten_years_is_refused_as_a_whole(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    let of = |id: WorkItemId| *claims.iter().find(|claim| claim.id() == id).unwrap();
    let longest = Duration::from_secs(3_650 * 24 * 3_600);
    let settlements = |delay: Duration| -> Vec<Settlement> {
        let delay = Some(delay);
        let outcomes = [
            Outcome::Ack,
            Outcome::Abandon { delay, error: None },
            Outcome::Release { delay, error: None },
            Outcome::fail("no"),
        ];
        all.iter().zip(outcomes).map(|(id, outcome)| Settlement { claim: of(*id), outcome }).collect()
    };
    for delay in [longest + Duration::from_secs(1), Duration::MAX] {
        let error = world.outbox.settle(owner, &settlements(delay)).await.unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("delay")));
        assert!(world.rows(&all).await.iter().all(|row| row.status == Status::InProgress));
    }
    let settled = world.outbox.settle(owner, &settlements(longest)).await.unwrap();
    assert_eq!((set(&settled.changed), settled.stale), (set(&all), vec![]));
    let rows = world.rows(&all).await;
    let states: Vec<_> = rows.iter().map(|row| row.status).collect();
    assert_eq!(states, [Status::Done, Status::Ready, Status::Ready, Status::Failed]);
    let nearly = world.now().await + longest - Duration::from_secs(24 * 3600);
    assert!(rows[1..3].iter().all(|row| row.next_attempt_at > nearly));
    world.assert_nothing_due().await;
}

pub(super) async fn r6_error_texts_are_bounded_and_clean(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let texts = [
        ("é".repeat(3_000), Some("é".repeat(2_048))),
        ("a".repeat(2_048), Some("a".repeat(2_048))),
        (String::new(), None),
        ("nul \0 inside".to_owned(), Some("nul \u{fffd} inside".to_owned())),
    ];
    for (given, stored) in texts {
        let abandoned = world.enqueue(Message::new(TOPIC, "")).await;
        let owner = OwnerToken::new();
        let claim = [world.claim_one(owner).await.handle];
        world.outbox.abandon(owner, &claim, None, Some(given.clone())).await.unwrap();
        assert_eq!(world.row(abandoned).await.last_error, stored);
        world.advance(Duration::from_secs(2)).await;
        let claim = [world.claim_one(owner).await.handle];
        world.outbox.fail(owner, &claim, Some(given)).await.unwrap();
        assert_eq!(world.row(abandoned).await.last_error, stored);
    }
}

pub(super) async fn r6_an_abandon_without_an_error_keeps_the_earlier_one(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    for error in [Some("the real one"), None, Some("")] {
        let claim = [world.claim_one(owner).await.handle];
        world.outbox.abandon(owner, &claim, None, error.map(str::to_owned)).await.unwrap();
        assert_eq!(world.row(id).await.last_error.as_deref(), Some("the real one"));
        world.advance(Duration::from_secs(61)).await;
    }
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.release(owner, &claim, None).await.unwrap();
    assert_eq!(world.row(id).await.last_error.as_deref(), Some("the real one"));
}

pub(super) async fn r12_a_release_gives_back_at_once_and_uncounted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(3).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 50).await);
    assert_eq!(set(&world.outbox.release(owner, &claims, None).await.unwrap().changed), set(&all));
    for row in world.rows(&all).await {
        assert_eq!((row.status, row.owner, row.locked_until), (Status::Ready, None, None));
        assert_eq!((row.attempts, row.retry_count(), row.claims()), (0, 0, 1));
    }
    // No time passes, and another worker has them.
    let claimed = world.second().await.claim(&ClaimRequest::new(OwnerToken::new())).await;
    let claimed = claimed.unwrap().items;
    assert_eq!(ids(&claimed), set(&all));
    assert!(claimed.iter().all(|item| item.attempt == 1));
    assert!(world.rows(&all).await.iter().all(|row| row.claims() == 2));
}

pub(super) async fn r8_a_release_with_a_delay_waits(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let claim = [world.claim_one(owner).await.handle];
    world.outbox.release(owner, &claim, Some(LEASE * 2)).await.unwrap();
    world.assert_nothing_due().await;
    assert_eq!(world.row(id).await.attempts, 0);
    world.advance(LEASE * 2).await;
    let claimed = world.claim_one(owner).await;
    assert_eq!((claimed.id(), claimed.attempt), (id, 1));
}
