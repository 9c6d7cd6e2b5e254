//! Steps of joins that are counted, each once, by hand and by the end of their messages.

use std::time::Duration;

use mainstay_core::join::{JoinMode, JoinState, MemberState, NewJoin, Reported, Step};
use mainstay_core::outbox::Message;
use mainstay_core::queue::{FailureReason, Outcome, Settlement, Status};
use mainstay_core::{OwnerToken, WorkItemId};

use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, handles};

use super::joins::{counts, joined, members, of, of_topic};

cases! { $ join_counting_cases:
    join_020_a_completed_step_is_counted_once ["JOIN-020", "JOIN-022"],
    join_021_a_failed_step_is_counted_once ["JOIN-021", "JOIN-022"],
    join_023_the_counters_never_exceed_the_expected_steps ["JOIN-023"],
    join_024_member_and_counters_change_together ["JOIN-024"],
    join_030_an_ack_counts_for_every_join ["JOIN-030", "JOIN-080", "JOIN-081"],
    join_031_a_fail_counts_for_every_join ["JOIN-031", "JOIN-080", "JOIN-081"],
    join_031_what_is_given_back_does_not_count ["JOIN-031"],
    join_032_a_settle_that_is_rolled_back_counts_nothing ["JOIN-032", "R22"],
    join_033_a_stale_settle_counts_nothing ["JOIN-033", "R4"],
    join_034_by_hand_and_by_ack_is_the_same ["JOIN-034"],
    join_034_a_message_that_has_ended_is_counted_when_attached ["JOIN-034"],
    join_043_the_last_update_moves_with_each_change ["JOIN-043"],
}

async fn counted_once(fx: &dyn Fixture, step: Step, state: MemberState, expected: (u32, u32)) {
    let joins = World::open(fx).await.joins();
    let id = joins.start(NewJoin::new(3)).await.unwrap();
    let items = [WorkItemId::new(), WorkItemId::new()];
    joins.attach(id, &items).await.unwrap();
    let Reported::Counted(counted) = joins.report(id, items[0], step).await.unwrap() else {
        panic!("not counted")
    };
    assert_eq!(
        (counted.completed, counted.failed, counted.state),
        (expected.0, expected.1, JoinState::Pending)
    );
    for again in [step, Step::Completed, Step::Failed] {
        assert_eq!(joins.report(id, items[0], again).await.unwrap(), Reported::Already);
    }
    let join = of(&joins, id).await;
    assert_eq!((join.completed, join.failed, join.remaining()), (expected.0, expected.1, 2));
    let mut all = vec![(items[0], state), (items[1], MemberState::Pending)];
    all.sort_by_key(|member| member.0);
    assert_eq!(members(&joins, id).await, all);
}

async fn join_020_a_completed_step_is_counted_once(fx: &dyn Fixture) {
    counted_once(fx, Step::Completed, MemberState::Completed, (1, 0)).await;
}

async fn join_021_a_failed_step_is_counted_once(fx: &dyn Fixture) {
    counted_once(fx, Step::Failed, MemberState::Failed, (0, 1)).await;
}

async fn join_023_the_counters_never_exceed_the_expected_steps(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    for mode in [JoinMode::All, JoinMode::Any, JoinMode::Quorum(2)] {
        // More members than steps, and all of them end in one settle.
        let (id, items) = joined(&world, NewJoin::new(3).mode(mode), 7).await;
        let owner = OwnerToken::new();
        let claimed = world.claim(owner, 10).await;
        assert_eq!(claimed.len(), 7);
        let settlements: Vec<_> = handles(&claimed)
            .into_iter()
            .enumerate()
            .map(|(n, claim)| Settlement {
                claim,
                outcome: if n % 2 == 0 {
                    Outcome::Ack
                } else {
                    Outcome::Fail { reason: FailureReason::Handler, error: None }
                },
            })
            .collect();
        world.outbox.settle(owner, &settlements).await.unwrap();
        let join = of(&joins, id).await;
        assert!(join.has_ended() && join.completed + join.failed <= 3, "{join:?}");
        let states = members(&joins, id).await;
        let marked = |state| states.iter().filter(|member| member.1 == state).count() as u32;
        assert_eq!(
            (marked(MemberState::Completed), marked(MemberState::Failed)),
            (join.completed, join.failed)
        );
        assert_eq!(
            joins.report(id, pending(&states), Step::Completed).await.unwrap(),
            Reported::Ended(join.state)
        );
        assert_eq!(of(&joins, id).await, join);
        assert_eq!(items.len(), 7);
    }
}

/// A member that was not counted.
fn pending(states: &[(WorkItemId, MemberState)]) -> WorkItemId {
    states.iter().find(|member| member.1 == MemberState::Pending).expect("one was not counted").0
}

async fn join_024_member_and_counters_change_together(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = joins.start(NewJoin::new(2)).await.unwrap();
    let items = [WorkItemId::new(), WorkItemId::new()];
    joins.attach(id, &items).await.unwrap();
    let mut transaction = world.outbox.store().begin().await.unwrap();
    joins.report_in(&mut transaction, id, items[0], Step::Completed).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (0, 0, JoinState::Pending));
    assert!(members(&joins, id).await.iter().all(|member| member.1 == MemberState::Pending));
    let mut transaction = world.outbox.store().begin().await.unwrap();
    joins.report_in(&mut transaction, id, items[0], Step::Completed).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Pending));
    assert_eq!(
        members(&joins, id).await.iter().filter(|member| member.1 == MemberState::Completed).count(),
        1
    );
    // And an attach.
    let late = WorkItemId::new();
    let mut transaction = world.outbox.store().begin().await.unwrap();
    joins.attach_in(&mut transaction, id, &[late]).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(members(&joins, id).await.len(), 2);
}

async fn end_of_a_message_in_three_joins(fx: &dyn Fixture, fail: bool) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(joins.start(NewJoin::new(2)).await.unwrap());
    }
    let other = joins.start(NewJoin::new(2)).await.unwrap();
    let item = world.enqueue(Message::new(TOPIC, "").join(ids[0]).join(ids[1])).await;
    joins.attach(ids[2], &[item]).await.unwrap();
    let mut expected = ids.clone();
    expected.sort();
    assert_eq!(joins.of_item(item).await.unwrap(), expected);
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    match fail {
        false => world.outbox.ack(owner, &handles(&claimed)).await.unwrap(),
        true => world.outbox.fail(owner, &handles(&claimed), Some("no".to_owned())).await.unwrap(),
    };
    let counted = if fail { (0, 1, JoinState::Pending) } else { (1, 0, JoinState::Pending) };
    for id in ids {
        assert_eq!(counts(&of(&joins, id).await), counted);
    }
    assert_eq!(counts(&of(&joins, other).await), (0, 0, JoinState::Pending));
}

async fn join_030_an_ack_counts_for_every_join(fx: &dyn Fixture) {
    end_of_a_message_in_three_joins(fx, false).await;
}

async fn join_031_a_fail_counts_for_every_join(fx: &dyn Fixture) {
    end_of_a_message_in_three_joins(fx, true).await;
}

async fn join_031_what_is_given_back_does_not_count(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, items) = joined(&world, NewJoin::new(2), 2).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 2).await;
    let joins = world.joins();
    world.outbox.abandon(owner, &[claimed[0].handle], None, Some("later".to_owned())).await.unwrap();
    world.outbox.release(owner, &[claimed[1].handle], None).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (0, 0, JoinState::Pending));
    // A cancelled message has failed.
    world.outbox.cancel(&items).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (0, 2, JoinState::Failed));
    // One that is requeued stays counted, and is not counted again.
    world.outbox.requeue(&items).await.unwrap();
    let again = world.claim(owner, 2).await;
    world.outbox.ack(owner, &handles(&again)).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (0, 2, JoinState::Failed));
}

async fn join_032_a_settle_that_is_rolled_back_counts_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join = NewJoin::new(1).on_completed(Message::new("done", ""));
    let (id, items) = joined(&world, join, 1).await;
    let joins = world.joins();
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    let ack = [Settlement { claim: claimed[0].handle, outcome: Outcome::Ack }];
    let mut transaction = world.outbox.store().begin().await.unwrap();
    transaction.settle(owner, &ack).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (0, 0, JoinState::Pending));
    assert_eq!(of_topic(&world, "done").await.len(), 0);
    assert_eq!(world.row(items[0]).await.status, Status::InProgress);
    let mut transaction = world.outbox.store().begin().await.unwrap();
    transaction.settle(owner, &ack).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Completed));
    assert_eq!(of_topic(&world, "done").await.len(), 1);
}

async fn join_033_a_stale_settle_counts_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, _) = joined(&world, NewJoin::new(2), 1).await;
    let joins = world.joins();
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    let stranger = world.outbox.ack(OwnerToken::new(), &handles(&claimed)).await.unwrap();
    assert_eq!(stranger.changed, []);
    assert_eq!(counts(&of(&joins, id).await), (0, 0, JoinState::Pending));
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let again = world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(again.changed, []);
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Pending));
}

async fn join_034_by_hand_and_by_ack_is_the_same(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = |topic: &str| {
        NewJoin::new(3).on_failed(Message::new(topic, "payload")).on_completed(Message::new("never", ""))
    };
    let (by_ack, _) = joined(&world, join("by-ack"), 3).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 3).await;
    world.outbox.ack(owner, &handles(&claimed[..2])).await.unwrap();
    world.outbox.fail(owner, &handles(&claimed[2..]), None).await.unwrap();
    let by_hand = joins.start(join("by-hand")).await.unwrap();
    let items: Vec<_> = (0..3).map(|_| WorkItemId::new()).collect();
    joins.attach(by_hand, &items).await.unwrap();
    for (item, step) in items.iter().zip([Step::Completed, Step::Completed, Step::Failed]) {
        joins.report(by_hand, *item, step).await.unwrap();
    }
    let (one, other) = (of(&joins, by_ack).await, of(&joins, by_hand).await);
    assert_eq!(counts(&one), (2, 1, JoinState::Failed));
    assert_eq!((counts(&one), one.reason), (counts(&other), other.reason));
    for (topic, join) in [("by-ack", by_ack), ("by-hand", by_hand)] {
        let continuation = of_topic(&world, topic).await;
        assert_eq!(continuation.len(), 1);
        assert_eq!(continuation[0].payload.as_deref(), Some("payload"));
        assert_eq!(continuation[0].headers.get("mainstay-join"), Some(&join.to_string()));
    }
    assert_eq!(of_topic(&world, "never").await.len(), 0);
    // A message that was reported by hand is not counted again when it ends, and the other way round.
    let (id, items) = joined(&world, NewJoin::new(3), 2).await;
    joins.report(id, items[0], Step::Failed).await.unwrap();
    let claimed = world
        .outbox
        .claim(&mainstay_core::queue::ClaimRequest::new(owner).only_topics(vec![TOPIC.to_owned()]))
        .await
        .unwrap();
    world.outbox.ack(owner, &handles(&claimed.items)).await.unwrap();
    assert_eq!(joins.report(id, items[1], Step::Failed).await.unwrap(), Reported::Already);
    assert_eq!(counts(&of(&joins, id).await), (1, 1, JoinState::Pending));
}

async fn join_034_a_message_that_has_ended_is_counted_when_attached(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let items = world.enqueue_some(4).await;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 4).await;
    let handle = |item| claimed.iter().find(|one| one.id() == item).unwrap().handle;
    world.outbox.ack(owner, &[handle(items[0])]).await.unwrap();
    world.outbox.fail(owner, &[handle(items[1])], None).await.unwrap();
    let join = NewJoin::new(3).on_failed(Message::new("over", ""));
    let id = joins.start(join).await.unwrap();
    let attached = joins.attach(id, &items[..3]).await.unwrap();
    let counted = attached.counted.expect("two had ended");
    assert_eq!((attached.added, counted.completed, counted.failed), (3, 1, 1));
    assert_eq!(counts(&of(&joins, id).await), (1, 1, JoinState::Pending));
    // The last of them had ended too: the attach ends the join.
    world.outbox.ack(owner, &[handle(items[3])]).await.unwrap();
    let attached = joins.attach(id, &[items[3]]).await.unwrap();
    assert_eq!(attached.counted.map(|counted| counted.state), Some(JoinState::Failed));
    assert_eq!(counts(&of(&joins, id).await), (2, 1, JoinState::Failed));
    assert_eq!(of_topic(&world, "over").await.len(), 1);
}

async fn join_043_the_last_update_moves_with_each_change(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, items) = joined(&world, NewJoin::new(3), 2).await;
    let joins = world.joins();
    let second = Duration::from_secs(1);
    let mut last = of(&joins, id).await.updated_at;
    world.advance(second).await;
    last -= second;
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    let next = of(&joins, id).await;
    assert!(next.updated_at > last, "{next:?}");
    assert_eq!(next.created_at, last, "creation stays");
    world.advance(second).await;
    let other = if claimed[0].id() == items[0] { items[1] } else { items[0] };
    joins.report(id, other, Step::Failed).await.unwrap();
    let after = of(&joins, id).await;
    assert!(after.updated_at > next.updated_at - second, "{after:?}");
    world.advance(second).await;
    joins.cancel(id).await.unwrap();
    let ended = of(&joins, id).await;
    assert!(ended.updated_at > after.updated_at - second, "{ended:?}");
    assert_eq!(ended.ended_at, Some(ended.updated_at));
}
