//! Cursors of fan-outs: who moves them, and that nobody moves them back.

use std::time::Duration;

use futures_util::future::join;
use jiff::{SignedDuration, Timestamp};
use mainstay_core::audit::Anchor;
use mainstay_core::fanout::{Fanout, FanoutDefinition, FanoutSlice, KnownShards, Pass, Slice};
use mainstay_core::queue::{Context, HandlerError};
use mainstay_core::runtime::RunningMainstay;
use mainstay_core::{ErrorKind, OwnerToken};
use serde_json::json;

use crate::case::cases;
use crate::crew::{Reporter, Reports};
use crate::fixture::{End, Fixture};
use crate::world::World;

use super::administration::{BY, data, only};
use super::fanout::{definition, end_slices, fanout, key, messages, pass, shards};

cases! { $ fanout_cursors_cases:
    r23_a_shard_with_a_slice_in_flight_is_not_forgotten ["R23"],
    r23_shards_that_are_added_to_what_is_deleted_leave_nothing ["R23"],
    r23_a_fan_out_is_deleted_with_its_shards ["R23"],
    r23_a_fan_out_with_a_slice_in_flight_is_not_deleted ["R23"],
    r23_a_fan_out_that_is_deleted_while_it_is_planned_leaves_no_slice ["R23"],
    r23_a_cursor_never_moves_back ["R23"],
    r23_completions_that_race_leave_the_latest ["R23"],
    r23_a_cursor_moves_with_the_callers_transaction ["R23"],
    r23_a_handler_completes_its_slice_in_its_own_transaction ["R23", "MST-030"],
    r23_a_handler_that_just_succeeds_has_done_all_up_to_its_beginning ["R23"],
    r23_a_handler_that_fails_leaves_the_cursor ["R23"],
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn slice(shard: &str) -> FanoutSlice {
    FanoutSlice::new(&key(), shard, second(0))
}

async fn completed(fanout: &Fanout, shard: &str) -> Option<Timestamp> {
    fanout.cursor("etl", "payments", shard).await.unwrap().and_then(|cursor| cursor.last_completed_at)
}

async fn r23_a_cursor_never_moves_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    for (at, moves, stands) in
        [(10, true, 10), (5, false, 10), (10, false, 10), (11, true, 11), (-1_000, false, 11)]
    {
        assert_eq!(fanout.complete(&slice("a"), second(at)).await.unwrap(), moves, "{at}");
        assert_eq!(completed(&fanout, "a").await, Some(second(stands)));
    }
    // To the microsecond.
    let next = second(11) + SignedDuration::from_micros(1);
    assert!(fanout.complete(&slice("a"), next).await.unwrap());
    assert_eq!(completed(&fanout, "a").await, Some(next));
    assert_eq!(completed(&fanout, "b").await, None, "nobody else's");
    // Planning does not move it either.
    fanout.register(definition()).await.unwrap();
    assert_eq!(pass(&world, &shards(["b"])).await.dispatched.len(), 1);
    assert_eq!((completed(&fanout, "a").await, completed(&fanout, "b").await), (Some(next), None));
}

async fn r23_completions_that_race_leave_the_latest(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let one = fanout(&world);
    let other = Fanout::new(fx.second().await.as_ref());
    for round in 0..20 {
        let shard = format!("shard-{}", round % 3);
        let (early, late) = (second(round * 10), second(round * 10 + 5));
        // Whichever is asked first, and whichever comes first.
        let (first, then) = if round % 2 == 0 { (early, late) } else { (late, early) };
        let (slice, again) = (slice(&shard), slice(&shard));
        let (a, b) = tokio::join!(one.complete(&slice, first), other.complete(&again, then));
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!(if round % 2 == 0 { b } else { a }, "the later one always moves it");
        assert_eq!(completed(&one, &shard).await, Some(late), "round {round}");
    }
}

async fn r23_a_cursor_moves_with_the_callers_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    assert!(fx.complete_slice_in(&fanout, &slice("a"), second(1), "one", End::Commit).await.unwrap());
    assert_eq!(completed(&fanout, "a").await, Some(second(1)));
    assert!(fx.complete_slice_in(&fanout, &slice("a"), second(2), "undone", End::Rollback).await.unwrap());
    assert_eq!(completed(&fanout, "a").await, Some(second(1)));
    assert!(!fx.complete_slice_in(&fanout, &slice("a"), second(0), "back", End::Commit).await.unwrap());
    assert_eq!(completed(&fanout, "a").await, Some(second(1)));
    assert_eq!(fx.notes().await, ["back", "one"]);
}

/// A worker that hands its slices to the case and waits for what to answer.
struct Handed {
    slice: Slice,
    context: Context,
    answer: tokio::sync::oneshot::Sender<Result<(), HandlerError>>,
}

async fn worker(world: &World<'_>, reporter: Reporter<Handed>) -> RunningMainstay {
    let quiet = |outbox: mainstay_core::runtime::OutboxBuilder| {
        outbox.retention(None).reap_every(None).gauges_every(None).options(|options| {
            options.poll_min = Duration::from_millis(10);
            options.poll_max = Duration::from_millis(200);
        })
    };
    let handle = move |slice: Slice, context: Context| {
        let reporter = reporter.clone();
        async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            // Nobody may be listening any more.
            let _ = reporter.send(Handed { slice, context, answer });
            answered.await.unwrap_or(Ok(()))
        }
    };
    let mainstay = mainstay_core::runtime::Mainstay::builder_over(world.provider.clone())
        .outbox(quiet)
        .fanout("etl", |etl| {
            etl.coordinate(false)
                .work_key("payments", |work| work.every(Duration::from_secs(600)).handler(handle))
        })
        .build()
        .unwrap();
    mainstay.start().await.unwrap()
}

async fn r23_a_handler_completes_its_slice_in_its_own_transaction(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let (reporter, mut reports) = Reports::new();
    let worker = worker(&world, reporter).await;
    assert_eq!(pass(&world, &shards(["a"])).await.dispatched.len(), 1);
    let handed: Handed = reports.next().await;
    assert_eq!((handed.slice.shard_key.as_str(), handed.slice.window_start), ("a", None));
    // Rolled back, nothing of it has happened.
    fx.complete_slice(&handed.context, &handed.slice, second(1), "undone", End::Rollback).await.unwrap();
    assert_eq!(completed(&fanout, "a").await, None);
    fx.complete_slice(&handed.context, &handed.slice, second(2), "done", End::Commit).await.unwrap();
    assert_eq!(completed(&fanout, "a").await, Some(second(2)));
    assert_eq!(fx.notes().await, ["done"]);
    let _ = handed.answer.send(Ok(()));
    world.until_idle().await;
    worker.stop().await.unwrap();
    assert_eq!(completed(&fanout, "a").await, Some(second(2)), "what the handler said stands");
    let cursor = fanout.cursor("etl", "payments", "a").await.unwrap().unwrap();
    assert!(!cursor.in_flight);
}

async fn r23_a_handler_that_just_succeeds_has_done_all_up_to_its_beginning(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let (reporter, mut reports) = Reports::new();
    let worker = worker(&world, reporter).await;
    let before = world.now().await;
    assert_eq!(pass(&world, &shards(["a", "b"])).await.dispatched.len(), 2);
    let (one, two): (Handed, Handed) = (reports.next().await, reports.next().await);
    let after = world.now().await;
    let (began, shard) = (one.slice.began_at(), one.slice.shard_key.clone());
    assert!((before..=after).contains(&began), "by the database's clock");
    assert_eq!(completed(&fanout, &shard).await, None);
    let _ = one.answer.send(Ok(()));
    // One that has acked in a transaction of its own, and said nothing of its slice.
    let (later, other) = (two.slice.began_at(), two.slice.shard_key.clone());
    let follow_up = mainstay_core::outbox::Message::new("unrelated", "").due_in(Duration::from_secs(3_600));
    fx.complete(&two.context, "acked", follow_up).await.unwrap();
    let _ = two.answer.send(Ok(()));
    world
        .until("both cursors have moved", async |_| {
            (completed(&fanout, &shard).await, completed(&fanout, &other).await) == (Some(began), Some(later))
        })
        .await;
    world.until_idle().await;
    worker.stop().await.unwrap();
    // The next window begins where they ended.
    world.advance(Duration::from_secs(660)).await;
    for slice in pass(&world, &shards(["a", "b"])).await.dispatched {
        let start = slice.window_start.unwrap();
        assert_eq!(Some(start), completed(&fanout, &slice.shard_key).await);
    }
    assert_eq!(messages(&world).await.len(), 4);
}

async fn r23_a_handler_that_fails_leaves_the_cursor(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    let (reporter, mut reports) = Reports::new();
    let worker = worker(&world, reporter).await;
    assert_eq!(pass(&world, &shards(["a"])).await.dispatched.len(), 1);
    let handed: Handed = reports.next().await;
    let _ = handed.answer.send(Err(HandlerError::retry_after(Duration::from_millis(1), "not yet")));
    let handed: Handed = reports.next().await;
    assert_eq!(handed.context.attempt(), 2);
    assert_eq!(completed(&fanout, "a").await, None);
    // What is said before a failure stands: it was done.
    assert!(handed.slice.complete(second(1)).await.unwrap());
    let _ = handed.answer.send(Err(HandlerError::fail("never")));
    world.until_idle().await;
    worker.stop().await.unwrap();
    assert_eq!(completed(&fanout, "a").await, Some(second(1)));
}

async fn r23_a_shard_with_a_slice_in_flight_is_not_forgotten(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    assert_eq!(pass(&world, &shards(["a"])).await.dispatched.len(), 1);
    let slice = messages(&world).await[0].id;
    for claimed in [false, true] {
        let refused = fanout.forget_shard("etl", "payments", "a").await.unwrap_err();
        let what = (refused.kind(), refused.field());
        assert_eq!(what, (ErrorKind::InvalidArgument, Some("shard_key")), "claimed: {claimed}");
        let told = refused.to_string();
        assert!(told.contains("in flight") && told.contains(&slice.to_string()), "{told}");
        if !claimed {
            assert_eq!(world.claim(OwnerToken::new(), 10).await.len(), 1);
        }
    }
    // The cursor is as it was: nothing is planned beside the slice.
    let known = KnownShards::new(world.provider.fanout());
    assert_eq!(pass(&world, &known).await.in_flight, 1);
}

async fn r23_shards_that_are_added_to_what_is_deleted_leave_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (fanout, second) = (fanout(&world), Fanout::new(fx.second().await.as_ref()));
    let unknown = fanout.add_shards("etl", "payments", ["a"]).await.unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound, "{unknown}");
    for _ in 0..20 {
        fanout
            .register(FanoutDefinition::new("etl", "payments").every(Duration::from_secs(600)))
            .await
            .unwrap();
        let many = (0..50).map(|number| format!("{number:02}"));
        let (added, deleted) =
            join(second.add_shards("etl", "payments", many), fanout.delete("etl", "payments")).await;
        let taken_along = match added {
            Ok(added) => added,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
                0
            }
        };
        assert_eq!(deleted.unwrap(), Some(taken_along));
        assert_eq!(fanout.cursors("etl", "payments", None, 100).await.unwrap(), []);
    }
}

async fn r23_a_fan_out_is_deleted_with_its_shards(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world).by(BY);
    for (topic, work_key) in [("etl", "payments"), ("etl", "vendors")] {
        let definition = FanoutDefinition::new(topic, work_key).every(Duration::from_secs(600));
        fanout.register(definition).await.unwrap();
        fanout.add_shards(topic, work_key, ["a", "b", "c"]).await.unwrap();
    }
    assert_eq!(fanout.delete("etl", "payments").await.unwrap(), Some(3));
    assert_eq!(fanout.get("etl", "payments").await.unwrap(), None);
    assert_eq!(fanout.cursors("etl", "payments", None, 10).await.unwrap(), []);
    // Nobody else's.
    assert!(fanout.get("etl", "vendors").await.unwrap().is_some());
    assert_eq!(fanout.cursors("etl", "vendors", None, 10).await.unwrap().len(), 3);
    let record = only(&world, "fanout.delete").await;
    assert_eq!(record.anchors, [Anchor::new("fanout", "etl:payments")]);
    let told = data(&record);
    assert_eq!((&told["before"]["every_seconds"], &told["after"]), (&json!(600), &json!(null)));
    assert_eq!(told["shards"], json!(3));
    // What is not there is not deleted, and not told.
    assert_eq!(fanout.delete("etl", "payments").await.unwrap(), None);
    only(&world, "fanout.delete").await;
    assert_eq!(pass(&world, &shards(["a"])).await, Pass::default());
    // A program that registers it begins anew.
    assert_eq!(fanout.register(definition()).await.unwrap().version, 1);
    assert_eq!(fanout.cursors("etl", "payments", None, 10).await.unwrap(), []);
}

async fn r23_a_fan_out_with_a_slice_in_flight_is_not_deleted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    assert_eq!(pass(&world, &shards(["a", "b"])).await.dispatched.len(), 2);
    let refused = fanout.delete("etl", "payments").await.unwrap_err();
    assert_eq!((refused.kind(), refused.field()), (ErrorKind::InvalidArgument, Some("work_key")));
    assert!(refused.to_string().contains("in flight"), "{refused}");
    assert!(fanout.get("etl", "payments").await.unwrap().is_some());
    assert_eq!(fanout.cursors("etl", "payments", None, 10).await.unwrap().len(), 2);
    assert_eq!(end_slices(&world, true).await, 2);
    assert_eq!(fanout.delete("etl", "payments").await.unwrap(), Some(2));
}

async fn r23_a_fan_out_that_is_deleted_while_it_is_planned_leaves_no_slice(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    for _ in 0..5 {
        fanout.register(definition()).await.unwrap();
        let planner = shards(["a", "b"]);
        let (pass, deleted) = tokio::join!(pass(&world, &planner), fanout.delete("etl", "payments"));
        // Either there are slices and it stays, or it is gone and there are none.
        match deleted {
            Ok(deleted) => assert!(deleted.is_some() && pass.dispatched.is_empty()),
            Err(error) => {
                assert_eq!((error.field(), pass.dispatched.len()), (Some("work_key"), 2), "{error}");
                assert_eq!(end_slices(&world, false).await, 2);
                assert_eq!(fanout.delete("etl", "payments").await.unwrap(), Some(2));
            }
        }
    }
}
