//! How joins end: by their steps, at their deadline, by being cancelled; and what follows.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay_core::join::{
    JoinMode, JoinOptions, JoinReason, JoinRetention, JoinService, JoinState, MemberState, NewJoin, Reported,
    Step,
};
use mainstay_core::outbox::{Message, OnFailure};
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::runtime::start;
use mainstay_core::{ErrorKind, JoinId, MessageId, OwnerToken, WorkItemId};

use super::joins::{counts, joined, members, of, of_topic};
use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, handles};

cases! { $ join_ends_cases:
    join_040_a_join_ends_when_all_steps_have ["JOIN-040", "JOIN-041", "R22"],
    join_041_one_failed_step_fails_the_join ["JOIN-041"],
    join_041_any_ends_with_the_first_completed_step ["JOIN-041", "R22"],
    join_041_a_quorum_ends_as_soon_as_it_is_decided ["JOIN-041", "R22"],
    join_042_an_ended_join_is_frozen ["JOIN-042"],
    r22_a_continuation_keeps_all_it_was_given ["R22"],
    r22_a_continuation_reaches_its_handler ["R22"],
    r22_copies_of_a_message_follow_several_joins ["R22"],
    r22_without_a_continuation_a_join_ends_alone ["R22"],
    r22_a_deadline_fails_a_join ["R22"],
    r22_mode_deadline_decides_by_what_is_there ["R22"],
    r22_a_step_after_the_deadline_does_not_count ["R22"],
    r22_the_service_ends_joins_at_their_deadlines ["R22"],
    r22_a_cancelled_join_cancels_its_waiting_messages ["R22"],
    mst_042_an_expired_message_fails_its_joins ["MST-042"],
    r3_a_message_at_its_delivery_limit_fails_its_joins ["R3", "JOIN-031"],
    r29_ended_joins_are_purged_with_their_members ["R29"],
    r26_pending_and_overdue_joins_are_counted ["R26"],
}

/// Reports steps of items that are no messages: how the join stood after each.
async fn reports(world: &World<'_>, join: NewJoin, steps: &[Step]) -> (JoinId, Vec<JoinState>) {
    let joins = world.joins();
    let id = joins.start(join).await.unwrap();
    let items: Vec<_> = steps.iter().map(|_| WorkItemId::new()).collect();
    joins.attach(id, &items).await.unwrap();
    let mut states = Vec::new();
    for (item, step) in items.iter().zip(steps) {
        states.push(match joins.report(id, *item, *step).await.unwrap() {
            Reported::Counted(counted) => counted.state,
            other => panic!("{other:?}"),
        });
    }
    (id, states)
}

use JoinState::{Completed, Failed, Pending};

async fn join_040_a_join_ends_when_all_steps_have(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join = NewJoin::new(3).on_completed(Message::new("next", "")).on_failed(Message::new("never", ""));
    let (id, states) = reports(&world, join, &[Step::Completed; 3]).await;
    assert_eq!(states, [Pending, Pending, Completed]);
    let join = of(&world.joins(), id).await;
    assert_eq!((counts(&join), join.reason), ((3, 0, Completed), None));
    assert_eq!(join.ended_at, Some(join.updated_at));
    assert_eq!((of_topic(&world, "next").await.len(), of_topic(&world, "never").await.len()), (1, 0));
}

async fn join_041_one_failed_step_fails_the_join(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join =
        || NewJoin::new(3).on_completed(Message::new("never", "")).on_failed(Message::new("sorry", ""));
    let (id, states) = reports(&world, join(), &[Step::Failed, Step::Completed, Step::Completed]).await;
    assert_eq!(states, [Pending, Pending, Failed], "all steps are waited for");
    let join = of(&world.joins(), id).await;
    assert_eq!((counts(&join), join.reason), ((2, 1, Failed), Some(JoinReason::Steps)));
    assert_eq!((of_topic(&world, "sorry").await.len(), of_topic(&world, "never").await.len()), (1, 0));
}

async fn join_041_any_ends_with_the_first_completed_step(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let any = || {
        NewJoin::new(3)
            .mode(JoinMode::Any)
            .on_completed(Message::new("won", ""))
            .on_failed(Message::new("lost", ""))
    };
    let (_, states) = reports(&world, any(), &[Step::Failed, Step::Completed]).await;
    assert_eq!(states, [Pending, Completed]);
    let (id, states) = reports(&world, any(), &[Step::Failed; 3]).await;
    assert_eq!(states, [Pending, Pending, Failed]);
    assert_eq!(of(&world.joins(), id).await.reason, Some(JoinReason::Steps));
    assert_eq!((of_topic(&world, "won").await.len(), of_topic(&world, "lost").await.len()), (1, 1));
}

async fn join_041_a_quorum_ends_as_soon_as_it_is_decided(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let quorum = || NewJoin::new(5).mode(JoinMode::Quorum(3));
    let (yes, no) = (Step::Completed, Step::Failed);
    let (_, states) = reports(&world, quorum(), &[yes, no, yes, no, yes]).await;
    assert_eq!(states, [Pending, Pending, Pending, Pending, Completed]);
    let (id, states) = reports(&world, quorum(), &[no, yes, no, yes, no]).await;
    assert_eq!(states, [Pending, Pending, Pending, Pending, Failed]);
    assert_eq!(counts(&of(&world.joins(), id).await), (2, 3, Failed));
    // Larger than one part of the counters holds, and counted in batches.
    let join = NewJoin::new(1_500).mode(JoinMode::Quorum(1_000)).on_completed(Message::new("majority", ""));
    let (id, _) = joined(&world, join, 1_500).await;
    let owner = OwnerToken::new();
    for batch in 1..=15 {
        let claimed = world
            .claim_batch(&ClaimRequest::new(owner).batch(100).only_topics(vec![TOPIC.to_owned()]))
            .await
            .items;
        world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
        let join = of(&world.joins(), id).await;
        assert_eq!(
            counts(&join),
            ((100 * batch).min(1_000), 0, if batch < 10 { Pending } else { Completed })
        );
    }
    assert_eq!(of_topic(&world, "majority").await.len(), 1);
}

async fn join_042_an_ended_join_is_frozen(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = NewJoin::new(4)
        .mode(JoinMode::Any)
        .deadline_in(Duration::from_secs(10))
        .on_completed(Message::new("once", ""));
    let (id, items) = joined(&world, join, 4).await;
    joins.report(id, items[0], Step::Completed).await.unwrap();
    let (ended, states) = (of(&joins, id).await, members(&joins, id).await);
    assert_eq!(ended.state, Completed);
    // Whatever happens to its steps, whoever reports, and when the deadline passes.
    let owner = OwnerToken::new();
    let claimed =
        world.claim_batch(&ClaimRequest::new(owner).only_topics(vec![TOPIC.to_owned()])).await.items;
    world.outbox.ack(owner, &handles(&claimed[..2])).await.unwrap();
    world.outbox.fail(owner, &handles(&claimed[2..]), None).await.unwrap();
    assert_eq!(joins.report(id, items[3], Step::Failed).await.unwrap(), Reported::Ended(Completed));
    assert_eq!(joins.report(id, items[0], Step::Failed).await.unwrap(), Reported::Already);
    assert!(!joins.cancel(id).await.unwrap().changed);
    assert_eq!((of(&joins, id).await, members(&joins, id).await), (ended, states));
    world.advance(Duration::from_secs(60)).await;
    assert_eq!(joins.expire(10).await.unwrap(), []);
    assert_eq!(counts(&of(&joins, id).await), (1, 0, Completed));
    assert_eq!(of_topic(&world, "once").await.len(), 1);
}

async fn r22_a_continuation_keeps_all_it_was_given(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (item, message) = (WorkItemId::new(), MessageId::new());
    let continuation = Message::new("next", "payload 📦 \\ \"x\", {}")
        .work_item_id(item)
        .message_id(message)
        .correlation("request-1")
        .ordering_key("order-1")
        .on_failure(OnFailure::Hold)
        .priority(-3)
        .header("source", "test");
    let (id, _) = reports(&world, NewJoin::new(1).on_completed(continuation), &[Step::Completed]).await;
    let row = world.row(item).await;
    assert_eq!(
        (row.message_id, row.topic.as_str(), row.payload.as_deref()),
        (message, "next", Some("payload 📦 \\ \"x\", {}"))
    );
    assert_eq!(
        (row.correlation_id.as_deref(), row.ordering_key.as_deref(), row.priority),
        (Some("request-1"), Some("order-1"), -3)
    );
    assert_eq!(row.headers.get("source").map(String::as_str), Some("test"));
    assert_eq!(row.headers.get("mainstay-join"), Some(&id.to_string()));
    assert_eq!((row.status, row.attempts), (Status::Ready, 0));
    // It is a message like any other, with its hold.
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.fail(owner, &handles(&claimed), None).await.unwrap();
    assert!(world.outbox.release_key("order-1").await.unwrap(), "its key was held");
    let bare = world.joins().start(NewJoin::new(1).on_completed(Message::new("", ""))).await.unwrap_err();
    assert_eq!((bare.kind(), bare.operation()), (ErrorKind::InvalidArgument, "join.start"));
    let late = Message::new("t", "").due_in(Duration::from_secs(1));
    let late = world.joins().start(NewJoin::new(1).on_failed(late)).await.unwrap_err();
    assert_eq!(late.field(), Some("on_failed"));
}

async fn r22_a_continuation_reaches_its_handler(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (heard, mut hear) = tokio::sync::mpsc::unbounded_channel();
    let running = world
        .work(|outbox| {
            let outbox = outbox.raw_handler(TOPIC, |context| async move {
                assert_eq!(context.join(), None);
                if context.payload() == "1" {
                    Err(mainstay_core::queue::HandlerError::fail("no"))
                } else {
                    Ok(())
                }
            });
            outbox.raw_handler("next", move |context| {
                let _ = heard.send((context.join(), context.payload().to_owned()));
                async {}
            })
        })
        .await;
    let join = || {
        NewJoin::new(3).on_completed(Message::new("next", "well")).on_failed(Message::new("next", "badly"))
    };
    let id = world.joins().start(join()).await.unwrap();
    for n in 2..5 {
        world.enqueue(Message::new(TOPIC, n.to_string()).join(id)).await;
    }
    assert_eq!(hear.recv().await, Some((Some(id), "well".to_owned())));
    let (failed, _) = joined(&world, join(), 3).await;
    assert_eq!(hear.recv().await, Some((Some(failed), "badly".to_owned())));
    running.stop().await.unwrap();
    assert_eq!(counts(&of(&world.joins(), failed).await), (2, 1, Failed));
}

async fn r22_copies_of_a_message_follow_several_joins(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let next = Message::new("next", "{}").ordering_key("k");
    let id = WorkItemId::new();
    let join = |expected| NewJoin::new(expected).on_completed(next.clone().work_item_id(id));
    for _ in 0..2 {
        let (_, states) = reports(&world, join(1), &[Step::Completed]).await;
        assert_eq!(states, [Completed]);
    }
    // By the end of messages, too, and once the first of them is done.
    let owner = OwnerToken::new();
    let first = world.claim(owner, 10).await;
    world.outbox.ack(owner, &handles(&first)).await.unwrap();
    let (third, _) = joined(&world, join(2), 2).await;
    let steps = world.claim(owner, 10).await;
    assert_eq!(world.outbox.ack(owner, &handles(&steps)).await.unwrap().changed.len(), 3, "with the second");
    assert_eq!(of(&world.joins(), third).await.state, Completed);
    // At a deadline, which must not keep others from ending.
    let late = join(1).deadline_in(Duration::from_secs(1)).mode(JoinMode::Deadline);
    world.joins().start(late).await.unwrap();
    world.advance(Duration::from_secs(2)).await;
    assert_eq!(world.joins().store().expire(10).await.unwrap().len(), 1);

    let found = of_topic(&world, "next").await;
    assert_eq!(found.len(), 4, "each has a message of its own");
    let ids: BTreeSet<_> = found.iter().map(|message| message.id).collect();
    let message_ids: BTreeSet<_> = found.iter().map(|message| message.message_id).collect();
    assert!(ids.len() == 4 && message_ids.len() == 4 && ids.contains(&id));
}

async fn r22_without_a_continuation_a_join_ends_alone(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    reports(&world, NewJoin::new(1), &[Step::Completed]).await;
    reports(&world, NewJoin::new(1).on_completed(Message::new("t", "")), &[Step::Failed]).await;
    assert_eq!(world.total().await, 0);
}

async fn r22_a_deadline_fails_a_join(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let minute = Duration::from_secs(60);
    let join = || NewJoin::new(2).on_failed(Message::new("late", "")).on_completed(Message::new("never", ""));
    let id = joins.start(join().deadline_in(minute)).await.unwrap();
    let item = WorkItemId::new();
    joins.attach(id, &[item]).await.unwrap();
    joins.report(id, item, Step::Completed).await.unwrap();
    let other = joins.start(join().deadline_in(3 * minute)).await.unwrap();
    let endless = joins.start(join()).await.unwrap();
    assert_eq!(joins.expire(10).await.unwrap(), []);
    let left = joins.store().next_deadline().await.unwrap().unwrap();
    assert!(left <= minute && left > minute / 2, "{left:?}");
    world.advance(2 * minute).await;
    assert_eq!(joins.store().next_deadline().await.unwrap(), Some(Duration::ZERO));
    let expired = joins.expire(10).await.unwrap();
    assert_eq!(
        expired.iter().map(|one| (one.join, one.state, one.reason)).collect::<Vec<_>>(),
        [(id, Failed, Some(JoinReason::Deadline))]
    );
    let ended = of(&joins, id).await;
    assert_eq!((counts(&ended), ended.reason), ((1, 0, Failed), Some(JoinReason::Deadline)));
    assert_eq!((of_topic(&world, "late").await.len(), of_topic(&world, "never").await.len()), (1, 0));
    assert_eq!(joins.expire(10).await.unwrap(), [], "once");
    world.advance(2 * minute).await;
    assert_eq!(joins.expire(10).await.unwrap().len(), 1);
    assert_eq!((of(&joins, other).await.state, of(&joins, endless).await.state), (Failed, Pending));
    assert_eq!(joins.store().next_deadline().await.unwrap(), None);
    assert_eq!(joins.expire(0).await.unwrap_err().field(), Some("limit"));
}

async fn r22_mode_deadline_decides_by_what_is_there(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = || {
        NewJoin::new(3)
            .mode(JoinMode::Deadline)
            .deadline_in(Duration::from_secs(60))
            .on_completed(Message::new("enough", ""))
    };
    // Before the deadline as all.
    let (_, states) = reports(&world, join(), &[Step::Completed; 3]).await;
    assert_eq!(states, [Pending, Pending, Completed]);
    let (some, _) = reports(&world, join(), &[Step::Completed]).await;
    let (none, _) = reports(&world, join(), &[]).await;
    let (failed, _) = reports(&world, join(), &[Step::Completed, Step::Failed]).await;
    world.advance(Duration::from_secs(120)).await;
    assert_eq!(joins.expire(10).await.unwrap().len(), 3);
    assert_eq!(counts(&of(&joins, some).await), (1, 0, Completed));
    assert_eq!(counts(&of(&joins, none).await), (0, 0, Completed));
    let failed = of(&joins, failed).await;
    assert_eq!((counts(&failed), failed.reason), ((1, 1, Failed), Some(JoinReason::Steps)));
    assert_eq!(of_topic(&world, "enough").await.len(), 3);
}

async fn r22_a_step_after_the_deadline_does_not_count(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = || NewJoin::new(1).deadline_in(Duration::from_secs(60)).on_failed(Message::new("late", ""));
    let (by_ack, _) = joined(&world, join(), 1).await;
    let by_hand = joins.start(join()).await.unwrap();
    let item = WorkItemId::new();
    joins.attach(by_hand, &[item]).await.unwrap();
    let untouched = joins.start(join()).await.unwrap();
    world.advance(Duration::from_secs(120)).await;
    // Nobody has looked at the deadlines.
    let owner = OwnerToken::new();
    let claimed = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    assert_eq!(joins.report(by_hand, item, Step::Completed).await.unwrap(), Reported::Ended(Failed));
    for id in [by_ack, by_hand] {
        let join = of(&joins, id).await;
        assert_eq!((counts(&join), join.reason), ((0, 0, Failed), Some(JoinReason::Deadline)));
        assert!(members(&joins, id).await.iter().all(|member| member.1 == MemberState::Pending));
    }
    let error = joins.attach(untouched, &[item]).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("join")), "{error}");
    joins.expire(10).await.unwrap();
    assert_eq!(of_topic(&world, "late").await.len(), 3);
}

async fn r22_the_service_ends_joins_at_their_deadlines(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let mut options = JoinOptions::default();
    options.poll_max = Duration::from_secs(3_600);
    let mut service = start(std::sync::Arc::new(JoinService::new(joins.clone(), options).unwrap()));
    service.started().await;
    // Nothing was due, and nothing near. What this process starts is noticed all the same.
    let mut ids = Vec::new();
    for millis in [400, 50, 200] {
        let join =
            NewJoin::new(1).deadline_in(Duration::from_millis(millis)).on_failed(Message::new("late", ""));
        ids.push(joins.start(join).await.unwrap());
    }
    world
        .until("all deadlines have passed and were noticed", async |world: &World<'_>| {
            of_topic(world, "late").await.len() == 3
        })
        .await;
    service.stop().await.unwrap();
    for id in ids {
        let join = of(&joins, id).await;
        assert_eq!((join.state, join.reason), (Failed, Some(JoinReason::Deadline)));
        assert!(join.ended_at >= join.deadline_at, "not before its time");
    }
    for options in [
        {
            let mut o = JoinOptions::default();
            o.batch = 0;
            o
        },
        {
            let mut o = JoinOptions::default();
            o.poll_max = Duration::ZERO;
            o
        },
    ] {
        JoinService::new(joins.clone(), options).expect_err("out of bounds");
    }
}

async fn r22_a_cancelled_join_cancels_its_waiting_messages(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join =
        || NewJoin::new(4).on_completed(Message::new("never", "")).on_failed(Message::new("never", ""));
    let other = joins.start(NewJoin::new(1).on_failed(Message::new("other", ""))).await.unwrap();
    let (id, items) = joined(&world, join(), 3).await;
    let shared = world.enqueue(Message::new(TOPIC, "").join(id).join(other)).await;
    let by_hand = WorkItemId::new();
    joins.attach(id, &[by_hand]).await.unwrap();
    let owner = OwnerToken::new();
    let running = world.claim(owner, 1).await;
    let done = world.claim(owner, 1).await;
    world.outbox.ack(owner, &handles(&done)).await.unwrap();
    let cancelled = joins.cancel(id).await.unwrap();
    assert!(cancelled.changed);
    let mut expected: Vec<_> =
        items.iter().copied().filter(|item| *item != running[0].id() && *item != done[0].id()).collect();
    expected.push(shared);
    let mut got = cancelled.messages.clone();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);
    for item in &got {
        let row = world.row(*item).await;
        assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::Cancelled)));
    }
    let join = of(&joins, id).await;
    assert_eq!((counts(&join), join.reason), ((1, 0, JoinState::Cancelled), None));
    let states = members(&joins, id).await;
    let stands = |item: WorkItemId| states.iter().find(|member| member.0 == item).unwrap().1;
    assert_eq!(
        (stands(running[0].id()), stands(by_hand), stands(shared)),
        (MemberState::Pending, MemberState::Pending, MemberState::Cancelled)
    );
    // What another join makes of it is its own affair.
    assert_eq!(counts(&of(&joins, other).await), (0, 1, Failed));
    assert_eq!(of_topic(&world, "other").await.len(), 1);
    // What was running goes on, and changes nothing here.
    world.outbox.ack(owner, &handles(&running)).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 0, JoinState::Cancelled));
    assert_eq!(joins.cancel(id).await.unwrap(), mainstay_core::join::CancelledJoin::default());
    assert_eq!(of_topic(&world, "never").await.len(), 0);
}

async fn mst_042_an_expired_message_fails_its_joins(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = joins.start(NewJoin::new(2).on_failed(Message::new("sorry", ""))).await.unwrap();
    let soon = Duration::from_secs(1);
    let item = world.enqueue(Message::new(TOPIC, "").expires_in(soon).join(id)).await;
    let fine = world.enqueue(Message::new(TOPIC, "").join(id)).await;
    world.advance(2 * soon).await;
    let owner = OwnerToken::new();
    let batch = world.claim_batch(&ClaimRequest::new(owner)).await;
    assert_eq!(batch.rejected.iter().map(|one| one.id).collect::<Vec<_>>(), [item]);
    assert_eq!(batch.items.iter().map(|one| one.id()).collect::<Vec<_>>(), [fine]);
    assert_eq!(counts(&of(&joins, id).await), (0, 1, Pending));
    world.outbox.ack(owner, &handles(&batch.items)).await.unwrap();
    assert_eq!(counts(&of(&joins, id).await), (1, 1, Failed));
    assert_eq!(of_topic(&world, "sorry").await.len(), 1);
}

async fn r3_a_message_at_its_delivery_limit_fails_its_joins(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (id, items) = joined(&world, NewJoin::new(1).on_failed(Message::new("sorry", "")), 1).await;
    let request = || ClaimRequest::new(OwnerToken::new()).delivery_limit(1);
    assert_eq!(world.claim_batch(&request()).await.items.len(), 1);
    // Its worker has died.
    world.advance(Duration::from_secs(3_600)).await;
    let batch = world.claim_batch(&request()).await;
    assert_eq!(batch.rejected.iter().map(|one| one.id).collect::<Vec<_>>(), items);
    assert_eq!(counts(&of(&world.joins(), id).await), (0, 1, Failed));
    assert_eq!(of_topic(&world, "sorry").await.len(), 1);
}

async fn r29_ended_joins_are_purged_with_their_members(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let day = Duration::from_secs(24 * 3_600);
    let (old, items) = joined(&world, NewJoin::new(5).on_completed(Message::new("t", "")), 5).await;
    joins.cancel(old).await.unwrap();
    world.advance(31 * day).await;
    let pending = joins.start(NewJoin::new(1)).await.unwrap();
    let young = joins.start(NewJoin::new(1)).await.unwrap();
    joins.cancel(young).await.unwrap();
    let keep = JoinRetention::default().ended(None);
    assert_eq!(joins.purge(&keep).await.unwrap(), 0);
    // In batches smaller than the join is.
    assert_eq!(joins.purge(&JoinRetention::default().batch(2)).await.unwrap(), 6);
    assert_eq!((joins.get(old).await.unwrap(), joins.of_item(items[0]).await.unwrap()), (None, Vec::new()));
    assert_eq!(
        (of(&joins, pending).await.state, of(&joins, young).await.state),
        (Pending, JoinState::Cancelled)
    );
    world.advance(31 * day).await;
    assert_eq!(joins.purge(&JoinRetention::default()).await.unwrap(), 1);
    assert_eq!(of(&joins, pending).await.state, Pending, "what has not ended stays");
    assert_eq!(joins.purge(&JoinRetention::default().batch(0)).await.unwrap_err().field(), Some("batch"));
}

async fn r26_pending_and_overdue_joins_are_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    for deadline in [None, Some(60), Some(600)] {
        let join = NewJoin::new(1);
        let join = deadline.map_or(join.clone(), |seconds| join.deadline_in(Duration::from_secs(seconds)));
        joins.start(join).await.unwrap();
    }
    let over = joins.start(NewJoin::new(1)).await.unwrap();
    joins.cancel(over).await.unwrap();
    world.advance(Duration::from_secs(120)).await;
    let stats = joins.stats().await.unwrap();
    assert_eq!((stats.pending, stats.overdue), (3, 1));
}
