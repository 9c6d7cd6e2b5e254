//! Runs of fan-outs that something follows: when, how often, and what a death in between leaves.

use std::convert::Infallible;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::JoinId;
use mainstay_core::OwnerToken;
use mainstay_core::fanout::{FanoutSlice, Pass, PlannedSlice, Planner, RunContinuation, Slice, shards_from};
use mainstay_core::join::{Join, JoinFilter, JoinPage, JoinState, MemberState};
use mainstay_core::lease::Leases;
use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimRequest, HandlerError};
use mainstay_core::runtime::FanoutWorkBuilder;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::Fixture;
use crate::world::{World, handles, interrupted};

use super::fanout::{MINUTE, definition, fanout, key, messages, shards};
use super::fanout_planners::Always;
use super::fanout_service::{DAY, process};
use super::joins::{counts, members, of, of_topic};
use super::lease::{acquire, still};

cases! { $ fanout_runs_cases:
    r23_when_all_slices_are_done_something_follows_once ["R23", "R22"],
    r23_when_a_slice_has_failed_something_else_follows ["R23", "R22"],
    r23_a_run_that_dies_leaves_neither_join_nor_slices ["R23", "R22"],
    r23_a_run_without_due_slices_starts_no_join ["R23", "R22"],
    r23_a_run_of_many_shards_has_one_join ["R23", "R22"],
    r23_a_slice_made_before_is_a_step_of_the_run_too ["R23", "R22"],
    r23_what_follows_a_run_reaches_its_handler ["R23", "R22"],
    r23_what_cannot_follow_a_run_is_refused ["R23"],
}

fn followed() -> RunContinuation {
    RunContinuation::default().then(Message::new("all.done", "{}")).or_else(Message::new("some.failed", "{}"))
}

async fn pass(world: &World<'_>, planner: &dyn Planner) -> Pass {
    let leases = Leases::new(world.provider.leases());
    let lease = acquire(&leases, &key().lease_name(), still()).await;
    let pass = fanout(world).coordinate_with(&key(), planner, &followed(), &lease).await.unwrap();
    assert!(lease.close().await.unwrap(), "the lease was held to the end");
    pass
}

/// Joins of this fan-out's runs, newest first.
async fn runs(world: &World<'_>) -> Vec<Join> {
    let filter = JoinFilter::default().grouping_key(key().message_topic());
    world.joins().list(&filter, JoinPage::first(1_000)).await.unwrap()
}

/// How many messages have followed: on success, on failure.
async fn follow_ups(world: &World<'_>) -> (usize, usize) {
    (of_topic(world, "all.done").await.len(), of_topic(world, "some.failed").await.len())
}

/// Ends up to `most` slices, in failure or success. How many.
async fn end(world: &World<'_>, most: u32, fail: bool) -> usize {
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(most).only_topics(vec![key().message_topic()]);
    let claimed = handles(&world.claim_batch(&request).await.items);
    let settled = match fail {
        true => world.outbox.fail(owner, &claimed, None).await,
        false => world.outbox.ack(owner, &claimed).await,
    };
    assert_eq!(settled.unwrap().changed.len(), claimed.len());
    claimed.len()
}

async fn r23_when_all_slices_are_done_something_follows_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    let mut before = None;
    for round in 1..=2 {
        let pass = pass(&world, &shards(["a", "b", "c"])).await;
        let run = pass.run.expect("a run that something follows has a join");
        assert_ne!(before.replace(run), Some(run), "each run has its own");
        assert_eq!(pass.dispatched.len(), 3);
        assert!(pass.dispatched.iter().all(|slice| slice.run_id == Some(run)));
        let steps: Vec<_> = members(&world.joins(), run).await.into_iter().map(|(item, _)| item).collect();
        assert_eq!(steps.len(), 3);
        for message in world.rows(&steps).await {
            let slice: FanoutSlice = serde_json::from_str(message.payload.as_deref().unwrap()).unwrap();
            assert_eq!(slice.run_id, Some(run), "the slice tells of it");
        }
        let join = of(&world.joins(), run).await;
        assert_eq!((counts(&join), join.expected), ((0, 0, JoinState::Pending), 3));
        assert_eq!(end(&world, 2, false).await, 2);
        assert_eq!(follow_ups(&world).await, (round - 1, 0), "one is still under way");
        assert_eq!(end(&world, 2, false).await, 1);
        assert_eq!(follow_ups(&world).await, (round, 0));
        assert_eq!(counts(&of(&world.joins(), run).await), (3, 0, JoinState::Completed));
        world.advance(10 * MINUTE).await;
    }
    assert_eq!(runs(&world).await.len(), 2);
}

async fn r23_when_a_slice_has_failed_something_else_follows(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    let run = pass(&world, &shards(["a", "b", "c"])).await.run.unwrap();
    assert_eq!(end(&world, 1, true).await, 1);
    assert_eq!(follow_ups(&world).await, (0, 0), "all of them are waited for");
    assert_eq!(end(&world, 2, false).await, 2);
    assert_eq!(follow_ups(&world).await, (0, 1));
    assert_eq!(counts(&of(&world.joins(), run).await), (2, 1, JoinState::Failed));
    // What is made of the failed shard later is another run.
    world.advance(10 * MINUTE).await;
    assert_ne!(pass(&world, &shards(["a", "b", "c"])).await.run, Some(run));
    assert_eq!(end(&world, 3, false).await, 3);
    assert_eq!(follow_ups(&world).await, (1, 1));
}

async fn r23_a_run_that_dies_leaves_neither_join_nor_slices(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition().cron("@hourly").every(Duration::ZERO)).await.unwrap();
    world.advance(60 * MINUTE).await;
    let (planner, followed) = (shards(["a", "b", "c"]), followed());
    let leases = Leases::new(world.provider.leases());
    let (mut nothing, mut all) = (0, 0);
    for polls in 1..60 {
        let lease = acquire(&leases, &key().lease_name(), still().wait(MINUTE)).await;
        interrupted(polls, fanout.coordinate_with(&key(), &planner, &followed, &lease)).await;
        // Whatever became of its transaction, it has ended when the lease can be given up.
        lease.close().await.unwrap();
        let (runs, slices) = (runs(&world).await, messages(&world).await.len());
        let noted = fanout.get("etl", "payments").await.unwrap().unwrap().last_run_at.is_some();
        match runs.as_slice() {
            [] => {
                assert_eq!((slices, noted), (0, false), "after {polls} polls");
                nothing += 1;
            }
            [run] => {
                let steps = members(&world.joins(), run.id).await.len();
                assert_eq!((run.expected, steps, slices, noted), (3, 3, 3, true), "after {polls} polls");
                all += 1;
            }
            more => panic!("{} joins after {polls} polls", more.len()),
        }
    }
    assert!(nothing > 0, "it died before the end at least once");
    if all == 0 {
        assert!(pass(&world, &planner).await.run.is_some());
    }
    assert_eq!(end(&world, 10, false).await, 3);
    assert_eq!(follow_ups(&world).await, (1, 0));
}

async fn r23_a_run_without_due_slices_starts_no_join(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fanout = fanout(&world);
    fanout.register(definition()).await.unwrap();
    assert_eq!(pass(&world, &shards([])).await.run, None, "there is no shard");
    assert!(pass(&world, &shards(["a"])).await.run.is_some());
    let in_flight = pass(&world, &shards(["a"])).await;
    assert_eq!((in_flight.run, in_flight.in_flight), (None, 1), "its slice is under way");
    assert_eq!(end(&world, 1, false).await, 1);
    assert_eq!(pass(&world, &shards(["a"])).await.run, None, "nothing is due");
    // Nor does one that somebody asked for, which is met all the same.
    fanout.run_now("etl", "payments").await.unwrap();
    assert_eq!(pass(&world, &shards([])).await.run, None);
    assert_eq!(fanout.get("etl", "payments").await.unwrap().unwrap().run_requested_at, None);
    assert_eq!(runs(&world).await.len(), 1);
    assert_eq!(follow_ups(&world).await, (1, 0));
    fanout.run_now("etl", "payments").await.unwrap();
    assert!(pass(&world, &shards(["a"])).await.run.is_some());
    assert_eq!(fanout.get("etl", "payments").await.unwrap().unwrap().run_requested_at, None);
}

async fn r23_a_run_of_many_shards_has_one_join(fx: &dyn Fixture) {
    const SHARDS: usize = 1_234;
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    let many = shards_from(|| {
        std::future::ready(Ok::<_, Infallible>((0..SHARDS).map(|n| format!("{n:05}")).collect()))
    });
    let pass = pass(&world, &many).await;
    assert_eq!((pass.dispatched.len(), messages(&world).await.len()), (SHARDS, SHARDS));
    let [run] = runs(&world).await.try_into().expect("one join");
    assert_eq!((Some(run.id), run.expected as usize), (pass.run, SHARDS));
    let mut ended = 0;
    while ended < SHARDS {
        assert_eq!(follow_ups(&world).await, (0, 0), "after {ended}");
        ended += end(&world, 500, false).await;
    }
    assert_eq!(follow_ups(&world).await, (1, 0));
}

async fn r23_a_slice_made_before_is_a_step_of_the_run_too(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    fanout(&world).register(definition()).await.unwrap();
    // As if the table of cursors came back from a copy that is older than the outbox.
    let planned = PlannedSlice::new(&key(), "fixed", None, Timestamp::UNIX_EPOCH.into());
    let message = || Message::new(key().message_topic(), "{}").work_item_id(planned.id);
    world.enqueue(message()).await;
    let run = pass(&world, &Always).await.run.unwrap();
    assert_eq!(of(&world.joins(), run).await.expected, 2);
    let steps = members(&world.joins(), run).await;
    assert!(steps.len() == 2 && steps.contains(&(planned.id, MemberState::Pending)), "{steps:?}");
    assert_eq!(end(&world, 2, false).await, 2);
    assert_eq!(follow_ups(&world).await, (1, 0));
}

async fn r23_what_follows_a_run_reaches_its_handler(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::<(String, Option<JoinId>)>::new();
    let set_up = |work: FanoutWorkBuilder| {
        let planner = shards_from(|| std::future::ready(Ok::<_, Infallible>(vec!["a", "b"])));
        let slices = reporter.clone();
        work.every(DAY)
            .planner(planner)
            .then(Message::new("all.done", "{}"))
            .or_else(Message::new("some.failed", "{}"))
            .handler(move |slice: Slice, _| {
                // Nobody may be listening any more.
                let _ = slices.send((slice.shard_key.clone(), slice.run_id));
                // The run that is asked for fails in one of its shards.
                let fails = slice.shard_key == "b" && slice.window_start.is_some();
                async move { if fails { Err(HandlerError::fail("no")) } else { Ok(()) } }
            })
    };
    let follow_up = |topic: &'static str| {
        let reporter = reporter.clone();
        move |context: mainstay_core::queue::Context| {
            let _ = reporter.send((topic.to_owned(), context.join()));
            std::future::ready(())
        }
    };
    let running = process(&world, set_up, |outbox| {
        outbox
            .raw_handler("all.done", follow_up("all.done"))
            .raw_handler("some.failed", follow_up("some.failed"))
    })
    .start()
    .await
    .unwrap();
    let mut told = Vec::new();
    for last in ["all.done", "some.failed"] {
        let mut round = [reports.next().await, reports.next().await, reports.next().await];
        round[..2].sort();
        let run = round[0].1.expect("slices that know their run");
        let wanted = ["a", "b", last].map(|name| (name.to_owned(), Some(run)));
        assert_eq!(round, wanted);
        assert!(!told.contains(&run));
        told.push(run);
        fanout(&world).run_now("etl", "payments").await.unwrap();
    }
    running.stop().await.unwrap();
}

async fn r23_what_cannot_follow_a_run_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let build = |message: Message| {
        mainstay_core::runtime::Mainstay::builder_over(world.provider.clone())
            .fanout("etl", |etl| etl.work_key("payments", |work| work.every(DAY).then(message)))
            .build()
    };
    assert!(build(Message::new("all.done", "{}")).is_ok());
    let late = Message::new("all.done", "{}").due_in(MINUTE);
    assert_eq!(build(late).unwrap_err().field(), Some("on_completed"));
    let nameless = build(Message::new("", "{}")).unwrap_err();
    assert_eq!(nameless.field(), Some("topic"));
}
