//! Joins under concurrency: exact counts and one continuation, whatever happens at once.

use std::time::Duration;

use futures_util::future::{join_all, join3};
use mainstay_core::join::{JoinMode, JoinState, Joins, MemberState, NewJoin, Reported, Step};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::{OwnerToken, WorkItemId};

use super::joins::{counts, joined, members, of, of_topic};
use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::{TOPIC, World, handles, interrupted};

cases! { $ join_races_cases:
    join_060_concurrent_settles_count_exactly ["JOIN-060", "JOIN-030", "R22"],
    join_060_concurrent_failures_and_acks_count_exactly ["JOIN-060", "JOIN-031"],
    join_060_a_quorum_is_reached_once ["JOIN-060", "JOIN-023", "R22"],
    join_060_concurrent_reports_count_exactly ["JOIN-060", "JOIN-022"],
    join_061_concurrent_attaches_keep_each_member_once ["JOIN-061"],
    join_061_an_attach_meets_the_settle_of_its_message ["JOIN-061", "JOIN-032"],
    join_062_settles_over_many_joins_in_any_order_all_succeed ["JOIN-062"],
    join_062_cancels_meet_settles ["JOIN-062", "JOIN-042"],
    join_060_a_deadline_meets_the_last_step ["JOIN-060", "R22"],
    join_032_dropped_calls_leave_counters_and_members_alike ["JOIN-032", "JOIN-024"],
}

/// Several instances on one database.
async fn crew(fx: &dyn Fixture, size: usize) -> Vec<(Outbox, Joins)> {
    let mut crew = Vec::new();
    for _ in 0..size {
        let provider = fx.second().await;
        crew.push((Outbox::new(provider.outbox()), Joins::new(provider.joins())));
    }
    crew
}

/// Claims and ends messages of the usual topic, `batch` at a time, until there are none. Every `failing`th fails.
async fn drain(outbox: &Outbox, batch: u32, failing: Option<usize>) -> usize {
    let owner = OwnerToken::new();
    let mut settled = 0;
    loop {
        let request = ClaimRequest::new(owner).batch(batch).only_topics(vec![TOPIC.to_owned()]);
        let claimed = outbox.claim(&request).await.unwrap().items;
        if claimed.is_empty() {
            return settled;
        }
        let (failed, done): (Vec<_>, Vec<_>) = claimed.iter().partition(|item| {
            failing.is_some_and(|n| item.payload.parse::<usize>().unwrap().is_multiple_of(n))
        });
        let handles = |items: Vec<&mainstay_core::queue::Claimed>| {
            items.iter().map(|item| item.handle).collect::<Vec<_>>()
        };
        settled += claimed.len();
        outbox.ack(owner, &handles(done)).await.unwrap();
        outbox.fail(owner, &handles(failed), None).await.unwrap();
    }
}

async fn join_060_concurrent_settles_count_exactly(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // Enough for several parts of the counters; batches that divide nothing evenly.
    for (steps, batch) in [(2_000, 7), (900, 64), (30, 1)] {
        let topic = format!("next-{steps}");
        let join = NewJoin::new(steps)
            .on_completed(Message::new(topic.clone(), ""))
            .on_failed(Message::new("never", ""));
        let (id, _) = joined(&world, join, steps as usize).await;
        let crew = crew(fx, 4).await;
        let drained = join_all(crew.iter().chain(&crew).map(|(outbox, _)| drain(outbox, batch, None))).await;
        assert_eq!(drained.iter().sum::<usize>(), steps as usize);
        assert_eq!(counts(&of(&world.joins(), id).await), (steps, 0, JoinState::Completed));
        assert_eq!(of_topic(&world, &topic).await.len(), 1, "exactly one continuation");
    }
    assert_eq!(of_topic(&world, "never").await.len(), 0);
}

async fn join_060_concurrent_failures_and_acks_count_exactly(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join =
        NewJoin::new(1_000).on_completed(Message::new("never", "")).on_failed(Message::new("sorry", ""));
    let (id, _) = joined(&world, join, 1_000).await;
    let crew = crew(fx, 4).await;
    join_all(crew.iter().map(|(outbox, _)| drain(outbox, 13, Some(10)))).await;
    assert_eq!(counts(&of(&world.joins(), id).await), (900, 100, JoinState::Failed));
    assert_eq!((of_topic(&world, "sorry").await.len(), of_topic(&world, "never").await.len()), (1, 0));
    let states = members(&world.joins(), id).await;
    assert_eq!(states.iter().filter(|member| member.1 == MemberState::Failed).count(), 100);
}

async fn join_060_a_quorum_is_reached_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join = NewJoin::new(1_200)
        .mode(JoinMode::Quorum(500))
        .on_completed(Message::new("reached", ""))
        .on_failed(Message::new("never", ""));
    let (id, _) = joined(&world, join, 1_200).await;
    let crew = crew(fx, 4).await;
    join_all(crew.iter().chain(&crew).map(|(outbox, _)| drain(outbox, 11, Some(4)))).await;
    let join = of(&world.joins(), id).await;
    assert_eq!((join.completed, join.state), (500, JoinState::Completed));
    assert!(join.failed <= 300, "{join:?}");
    assert_eq!((of_topic(&world, "reached").await.len(), of_topic(&world, "never").await.len()), (1, 0));
    let states = members(&world.joins(), id).await;
    let marked = |state| states.iter().filter(|member| member.1 == state).count() as u32;
    assert_eq!((marked(MemberState::Completed), marked(MemberState::Failed)), (join.completed, join.failed));
}

async fn join_060_concurrent_reports_count_exactly(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let id = joins
        .start(NewJoin::new(20).on_completed(Message::new("next", "")).on_failed(Message::new("next", "")))
        .await
        .unwrap();
    let items: Vec<_> = (0..20).map(|_| WorkItemId::new()).collect();
    joins.attach(id, &items).await.unwrap();
    let crew = crew(fx, 3).await;
    // Everybody reports everything, some of them the other way round: the first one counts.
    let reports = crew.iter().enumerate().flat_map(|(n, (_, joins))| {
        let step = if n == 1 { Step::Failed } else { Step::Completed };
        items.iter().map(move |item| joins.report(id, *item, step))
    });
    let answers = join_all(reports).await;
    let counted =
        answers.iter().filter(|answer| matches!(answer.as_ref().unwrap(), Reported::Counted(_))).count();
    assert_eq!(counted, 20);
    let join = of(&joins, id).await;
    assert_eq!(join.completed + join.failed, 20);
    assert!(join.has_ended());
    assert_eq!(of_topic(&world, "next").await.len(), 1);
}

async fn join_061_concurrent_attaches_keep_each_member_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.joins().start(NewJoin::new(100)).await.unwrap();
    let items = world.enqueue_some(30).await;
    let crew = crew(fx, 4).await;
    let attaches = (0..12).map(|n| {
        let joins = &crew[n % 4].1;
        // Overlapping, and in different orders.
        let mut some: Vec<_> = items.iter().copied().cycle().skip(n).take(20).collect();
        if n % 2 == 0 {
            some.reverse();
        }
        async move { joins.attach(id, &some).await.unwrap().added }
    });
    let added: u64 = join_all(attaches).await.into_iter().sum();
    assert_eq!((added, members(&world.joins(), id).await.len()), (30, 30));
}

async fn join_061_an_attach_meets_the_settle_of_its_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let crew = crew(fx, 2).await;
    let joins = world.joins();
    for round in 0..30 {
        let join = NewJoin::new(3)
            .on_completed(Message::new("next", round.to_string()))
            .on_failed(Message::new("never", ""));
        let id = joins.start(join).await.unwrap();
        let items = world.enqueue_some(3).await;
        let owner = OwnerToken::new();
        let claimed =
            world.claim_batch(&ClaimRequest::new(owner).only_topics(vec![TOPIC.to_owned()])).await.items;
        assert_eq!(claimed.len(), 3);
        let handles = handles(&claimed);
        // Whichever comes first, each step is counted exactly once.
        let (acked, attached, second) = join3(
            crew[0].0.ack(owner, &handles),
            crew[1].1.attach(id, &items[..2]),
            crew[0].1.attach(id, &items[1..]),
        )
        .await;
        assert_eq!(acked.unwrap().changed.len(), 3);
        attached.unwrap();
        second.unwrap();
        assert_eq!(counts(&of(&joins, id).await), (3, 0, JoinState::Completed), "round {round}");
    }
    assert_eq!((of_topic(&world, "next").await.len(), of_topic(&world, "never").await.len()), (30, 0));
}

async fn join_062_settles_over_many_joins_in_any_order_all_succeed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(joins.start(NewJoin::new(300).on_completed(Message::new("next", ""))).await.unwrap());
    }
    // Every message is a step of all of them, named in another order each time.
    let messages = (0..300usize).map(|n| {
        let turned = ids.iter().copied().cycle().skip(n % 8).take(8);
        turned.fold(Message::new(TOPIC, n.to_string()), |message, id| message.join(id))
    });
    world.outbox.enqueue_many(messages.collect()).await.unwrap();
    let crew = crew(fx, 4).await;
    join_all(crew.iter().chain(&crew).map(|(outbox, _)| drain(outbox, 5, None))).await;
    for id in ids {
        assert_eq!(counts(&of(&joins, id).await), (300, 0, JoinState::Completed));
    }
    assert_eq!(of_topic(&world, "next").await.len(), 8);
}

async fn join_062_cancels_meet_settles(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let crew = crew(fx, 3).await;
    for round in 0..10 {
        let topic = format!("next-{round}");
        let join = || {
            NewJoin::new(40)
                .on_completed(Message::new(topic.clone(), ""))
                .on_failed(Message::new(topic.clone(), ""))
        };
        let (one, other) = (joins.start(join()).await.unwrap(), joins.start(join()).await.unwrap());
        let steps = (0..40).map(|n| Message::new(TOPIC, n.to_string()).join(one).join(other));
        world.outbox.enqueue_many(steps.collect()).await.unwrap();
        let (.., cancelled) =
            join3(drain(&crew[0].0, 3, None), drain(&crew[1].0, 4, None), crew[2].1.cancel(one)).await;
        let cancelled = cancelled.unwrap();
        drain(&crew[0].0, 10, None).await;
        let (first, second) = (of(&joins, one).await, of(&joins, other).await);
        assert_eq!(first.state == JoinState::Cancelled, cancelled.changed, "{first:?}");
        // Frozen by the cancel: what was counted and what stands in the members agree.
        let states = members(&joins, one).await;
        let marked = |state| states.iter().filter(|member| member.1 == state).count() as u32;
        assert_eq!(
            (marked(MemberState::Completed), marked(MemberState::Failed)),
            (first.completed, first.failed)
        );
        // The other one counts every step, the cancelled ones as failed.
        assert_eq!((second.completed + second.failed, second.has_ended()), (40, true), "{second:?}");
        assert_eq!(second.failed as usize, cancelled.messages.len());
        let continued = if cancelled.changed { 1 } else { 2 };
        assert_eq!(of_topic(&world, &topic).await.len(), continued);
    }
}

async fn join_060_a_deadline_meets_the_last_step(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let crew = crew(fx, 3).await;
    for round in 0..20 {
        let topic = format!("end-{round}");
        let join = NewJoin::new(1)
            .deadline_in(Duration::from_millis(3))
            .on_completed(Message::new(topic.clone(), "completed"))
            .on_failed(Message::new(topic.clone(), "failed"));
        let id = joins.start(join).await.unwrap();
        let item = WorkItemId::new();
        if joins.attach(id, &[item]).await.is_err() {
            // It was over before that.
            joins.expire(10).await.unwrap();
            continue;
        }
        let expired = async { crew[0].1.expire(10).await.unwrap() };
        let (_, reported, _) =
            join3(expired, crew[1].1.report(id, item, Step::Completed), crew[2].1.expire(10)).await;
        let reported = reported.unwrap();
        world
            .until("the join has ended", async |world: &World<'_>| {
                world.joins().expire(10).await.unwrap();
                of(&world.joins(), id).await.has_ended()
            })
            .await;
        let join = of(&joins, id).await;
        let counted = matches!(reported, Reported::Counted(_));
        assert_eq!(
            (join.state == JoinState::Completed, join.completed),
            (counted, u32::from(counted)),
            "{join:?}"
        );
        let continuation = of_topic(&world, &topic).await;
        assert_eq!(continuation.len(), 1);
        assert_eq!(continuation[0].payload.as_deref(), Some(join.state.as_str()));
    }
}

async fn join_032_dropped_calls_leave_counters_and_members_alike(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let (id, items) = joined(&world, NewJoin::new(40).on_completed(Message::new("next", "")), 40).await;
    let owner = OwnerToken::new();
    let claimed = world.claim_batch(&ClaimRequest::new(owner).batch(40)).await.items;
    // Given up after every number of polls: what was asked for happened as a whole or not at all.
    for (n, item) in claimed.iter().enumerate() {
        match n % 3 {
            0 => drop(interrupted(n / 3, world.outbox.ack(owner, &[item.handle])).await),
            1 => drop(interrupted(n / 3, joins.report(id, item.id(), Step::Completed)).await),
            _ => drop(interrupted(n / 3, joins.attach(id, &items)).await),
        }
    }
    // What is still to be done, is done now; the rest was.
    world.outbox.ack(owner, &handles(&claimed)).await.unwrap();
    world
        .until("every step is counted", async |world: &World<'_>| of(&world.joins(), id).await.has_ended())
        .await;
    assert_eq!(counts(&of(&joins, id).await), (40, 0, JoinState::Completed));
    assert!(members(&joins, id).await.iter().all(|member| member.1 == MemberState::Completed));
    assert_eq!(of_topic(&world, "next").await.len(), 1);
}
