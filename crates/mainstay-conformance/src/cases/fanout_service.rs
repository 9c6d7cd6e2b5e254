//! Coordinators of fan-outs at work: what wakes them, who takes over, and what they tell.

use std::convert::Infallible;
use std::time::Duration;

use mainstay_core::fanout::{Fanout, FanoutChange, FanoutSlice, Slice, shards_from};
use mainstay_core::lease::LeaseOptions;
use mainstay_core::runtime::{FanoutWorkBuilder, Mainstay, OutboxBuilder, RunningMainstay};
use mainstay_core::store::Wake;
use tracing::Level;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::World;

use super::fanout::{definition, fanout, key, messages};

cases! { $ fanout_service_cases:
    r23_whoever_changes_a_policy_wakes_its_coordinator ["R23"],
    r23_a_change_at_run_time_takes_effect_at_once ["R23"],
    r23_slices_are_made_and_handled_as_they_fall_due ["R23"],
    r23_another_coordinator_takes_over ["R23"],
    r23_a_planner_that_fails_is_asked_again ["R23"],
    r26_fan_outs_are_logged_and_counted ["R26", "R27", "R23"],
}

/// Much longer than any of the waits below take: only a wait that misses its reason gets there.
const LONG: Duration = Duration::from_secs(120);
pub(super) const DAY: Duration = Duration::from_secs(24 * 3_600);

async fn r23_whoever_changes_a_policy_wakes_its_coordinator(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = Fanout::new(fx.second().await.as_ref());
    let hears = fx.hears_of_enqueues();
    let timeout = if hears { LONG } else { Duration::from_secs(1) };
    for (round, change) in
        ["registered", "changed", "run", "shards", "registered anew"].into_iter().enumerate()
    {
        let version = second.get("etl", "payments").await.unwrap().map(|policy| policy.version);
        let store = world.provider.fanout();
        let waiting = tokio::spawn(async move { store.wait(&key(), version, timeout).await.unwrap() });
        // Whether the wait has begun by now or not, it must not miss this.
        for _ in 0..round * 20 {
            tokio::task::yield_now().await;
        }
        match change {
            "registered" => drop(second.register(definition()).await.unwrap()),
            "changed" => {
                drop(second.set("etl", "payments", &FanoutChange::default().enabled(false)).await.unwrap());
            }
            "run" => second.run_now("etl", "payments").await.unwrap(),
            "shards" => drop(second.add_shards("etl", "payments", ["new"]).await.unwrap()),
            _ => drop(second.register(definition().every(DAY)).await.unwrap()),
        }
        let woken = waiting.await.unwrap();
        assert!(!hears || woken != Wake::TimedOut, "{change}: it slept through");
    }
    // What is as it was known, or is about another, wakes nobody.
    let version = second.get("etl", "payments").await.unwrap().map(|policy| policy.version);
    let store = world.provider.fanout();
    second.register(definition().every(DAY)).await.unwrap();
    assert_eq!(store.wait(&key(), version, Duration::from_millis(50)).await.unwrap(), Wake::TimedOut);
}

/// A process that coordinates and handles, with these settings.
pub(super) fn process(
    world: &World<'_>,
    set_up: impl FnOnce(FanoutWorkBuilder) -> FanoutWorkBuilder,
    handlers: impl FnOnce(OutboxBuilder) -> OutboxBuilder,
) -> Mainstay {
    let leases = LeaseOptions::default().duration(Duration::from_secs(2));
    Mainstay::builder_over(world.provider.clone())
        .leases(leases)
        .outbox(|outbox| {
            handlers(outbox).retention(None).reap_every(None).gauges_every(None).options(|options| {
                options.poll_min = Duration::from_millis(10);
                options.poll_max = Duration::from_millis(200);
            })
        })
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None))
        .fanout("etl", |etl| {
            etl.options(|options| {
                options.poll_min = Duration::from_millis(10);
                options.poll_max = Duration::from_millis(500);
            })
            .work_key("payments", set_up)
        })
        .build()
        .unwrap()
}

pub(super) async fn done(world: &World<'_>) -> u64 {
    world.outbox.stats().await.unwrap().done
}

async fn r23_a_change_at_run_time_takes_effect_at_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let daily =
        |work: FanoutWorkBuilder| work.every(DAY).enabled(false).shards(["a", "b"]).handler(async |_, _| {});
    let running = process(&world, daily, |outbox| outbox).start().await.unwrap();
    let fanout = Fanout::new(fx.second().await.as_ref());
    fanout.set("etl", "payments", &FanoutChange::default().enabled(true)).await.unwrap();
    world.until("the slices of both shards are done", async |world| done(world).await == 2).await;
    // Nothing is due for a day; but it is asked for.
    fanout.run_now("etl", "payments").await.unwrap();
    world.until("they are done again", async |world| done(world).await == 4).await;
    world
        .until("the run is noted", async |_| {
            fanout.get("etl", "payments").await.unwrap().unwrap().run_requested_at.is_none()
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(messages(&world).await.len(), 4);
}

async fn r23_slices_are_made_and_handled_as_they_fall_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::<FanoutSlice>::new();
    let every_second = |work: FanoutWorkBuilder| {
        let planner = shards_from(|| std::future::ready(Ok::<_, Infallible>(vec!["a", "b"])));
        work.every(Duration::from_secs(1)).planner(planner).handler(move |slice: Slice, _| {
            // Nobody may be listening any more.
            let _ = reporter.send(FanoutSlice::clone(&slice));
            std::future::ready(())
        })
    };
    let running = process(&world, every_second, |outbox| outbox).start().await.unwrap();
    world.until("each shard came round three times", async |world| done(world).await >= 6).await;
    running.stop().await.unwrap();
    let fanout = fanout(&world);
    let mut ends = std::collections::BTreeMap::new();
    for slice in reports.rest() {
        // Each window begins where the one before ended, without a gap.
        if let Some(last) = ends.insert(slice.shard_key.clone(), slice.due_at) {
            assert!(slice.window_start.unwrap() >= last, "{slice:?} after {last}");
            assert!(slice.due_at >= slice.window_start.unwrap() + Duration::from_secs(1), "{slice:?}");
        }
    }
    for cursor in fanout.cursors("etl", "payments", None, 10).await.unwrap() {
        assert!(cursor.last_completed_at.unwrap() >= ends[&cursor.shard_key] - Duration::from_secs(2));
    }
}

async fn r23_another_coordinator_takes_over(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let other = World::over(fx, fx.second().await, mainstay_core::store::Names::default());
    let set_up =
        |work: FanoutWorkBuilder| work.every(Duration::from_secs(1)).shards(["a"]).handler(async |_, _| {});
    let leases = mainstay_core::lease::Leases::new(world.provider.leases());
    let epoch = async || leases.get(&key().lease_name()).await.unwrap().map_or(0, |record| record.epoch);
    let first: RunningMainstay = process(&world, set_up, |outbox| outbox).start().await.unwrap();
    world.until("the first one coordinates", async |_| epoch().await == 1).await;
    let second = process(&other, set_up, |outbox| outbox).start().await.unwrap();
    world.until("slices are made", async |world| done(world).await >= 2).await;
    assert_eq!(epoch().await, 1, "one of them, all the time");
    // Dies without a word; its lease lapses.
    drop(first);
    let before = done(&world).await;
    world
        .until("the other one goes on", async |world| epoch().await == 2 && done(world).await >= before + 2)
        .await;
    second.stop().await.unwrap();
    assert!(!leases.get(&key().lease_name()).await.unwrap().unwrap().held, "given up at the end");
}

async fn r23_a_planner_that_fails_is_asked_again(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (meter, logs) = (Meter::new(), Logs::capture());
    let _recording = meter.install();
    let calls = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let planner = shards_from(move || {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = if call < 2 { Err(std::io::Error::other("no tenants today")) } else { Ok(vec!["a"]) };
        std::future::ready(answer)
    });
    let set_up = |work: FanoutWorkBuilder| work.every(DAY).planner(planner).handler(async |_, _| {});
    let running = process(&world, set_up, |outbox| outbox).start().await.unwrap();
    world.until("the slice is done", async |world| done(world).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(logs.find(Level::WARN, "a pass of the fan-out failed").len(), 2);
    assert_eq!(meter.read().get("mainstay_fanout_failed_passes_total fanout=etl:payments"), Some(&2));
}

async fn r26_fan_outs_are_logged_and_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (meter, logs) = (Meter::new(), Logs::capture());
    let _recording = meter.install();
    let planner =
        shards_from(|| std::future::ready(Ok::<_, Infallible>(vec!["a".to_owned(), "b".repeat(300)])));
    let set_up = |work: FanoutWorkBuilder| work.every(DAY).planner(planner).handler(async |_, _| {});
    let mainstay = process(&world, set_up, |outbox| outbox);
    let running = mainstay.start().await.unwrap();
    world.until("the slice is done", async |world| done(world).await == 1).await;
    mainstay.fanout().set("etl", "payments", &FanoutChange::default().every(DAY / 2)).await.unwrap();
    running.stop().await.unwrap();
    let counted = meter.read();
    for (name, count) in [
        ("mainstay_fanout_dispatched_total fanout=etl:payments", 1),
        ("mainstay_fanout_completed_total fanout=etl:payments", 1),
        ("mainstay_fanout_administered_total action=set", 1),
        ("mainstay_outbox_enqueued_total topic=fanout:etl:payments", 1),
    ] {
        assert_eq!(counted.get(name), Some(&count), "{name} of {counted:?}");
    }
    assert!(
        counted
            .get("mainstay_fanout_refused_shards_total fanout=etl:payments")
            .is_some_and(|count| *count > 0)
    );
    for (level, text) in [
        (Level::INFO, "the fan-out is registered"),
        (Level::INFO, "coordinating the fan-out"),
        (Level::INFO, "slices were put into the outbox"),
        (Level::DEBUG, "a slice is completed"),
        (Level::INFO, "changed by an operator"),
    ] {
        assert_eq!(logs.find(level, text).len(), 1, "{text}");
    }
    assert!(!logs.text().contains("windowStart"), "no payload is logged");
}
