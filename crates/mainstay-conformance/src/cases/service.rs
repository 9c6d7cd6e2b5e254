//! Starting and stopping workers, and their chores.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::outbox::{Message, Outbox, Retention};
use mainstay_core::queue::{Context, DispatcherOptions, Status};
use mainstay_core::runtime::{Mainstay, OutboxBuilder};
use mainstay_core::store::Wake;
use mainstay_core::{ErrorKind, OwnerToken};
use tracing::Level;

use crate::case::cases;
use crate::crew::{Farewell, Reports, reporting};
use crate::fixture::Fixture;
use crate::overheard::{Overheard, Waited};
use crate::probe::{Logs, Meter};
use crate::world::{LEASE, TOPIC, World, handles, set};

cases! { $ service_cases:
    mst_002_a_graceful_stop_leaves_nothing_in_progress ["MST-002", "R12"],
    mst_002_a_stop_lets_running_handlers_finish ["MST-002", "R12"],
    mst_002_a_stop_releases_what_does_not_finish_in_time ["MST-002", "R12"],
    mst_001_a_worker_dropped_at_any_moment_loses_nothing ["MST-001", "R2"],
    obx_053_leases_are_reaped_periodically ["OBX-053"],
    r29_retention_runs_periodically ["R29"],
    r26_gauges_are_published_periodically ["R26"],
    obx_092_a_worker_does_not_start_without_its_schema ["OBX-092", "R28"],
    obx_103_an_idle_worker_hears_of_new_work ["OBX-103"],
    obx_103_an_idle_worker_polls_less_and_less ["OBX-103"],
}

pub(super) async fn mst_002_a_graceful_stop_leaves_nothing_in_progress(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(60).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.concurrency(2).raw_handler(TOPIC, reporting(reporter))).await;
    // Stopped in the middle: some are done, some wait in the worker, some are still in the database.
    reports.next().await;
    running.stop().await.unwrap();
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!(stats.in_progress, 0, "{stats:?}");
    assert_eq!((stats.done + stats.ready, stats.failed, stats.scheduled), (60, 0, 0));
    assert!(stats.done >= 1);
    for row in world.rows(&all).await {
        let expected = if row.status == Status::Done { 1 } else { 0 };
        assert_eq!(row.attempts, expected, "what was not handled was not delivered");
    }
}

pub(super) async fn mst_002_a_stop_lets_running_handlers_finish(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (reporter, mut reports) = Reports::new();
    let polite = move |context: Context| {
        let reporter = reporter.clone();
        async move {
            reporter.send("started").unwrap();
            context.stopping().cancelled().await;
            reporter.send("finishing").unwrap();
        }
    };
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, polite)).await;
    assert_eq!(reports.next().await, "started");
    let late = world.enqueue(Message::new(TOPIC, "")).await;
    running.stop().await.unwrap();
    assert_eq!(reports.rest().last(), Some(&"finishing"));
    assert_eq!(world.row(id).await.status, Status::Done);
    // Whether the second came in before the stop or not, nobody holds it now.
    assert_ne!(world.row(late).await.status, Status::InProgress);
}

pub(super) async fn mst_002_a_stop_releases_what_does_not_finish_in_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (reporter, mut reports) = Reports::new();
    let stubborn = move |_: Context| {
        let farewell = Farewell(reporter.clone());
        async move {
            farewell.0.send("started").unwrap();
            let _farewell = farewell;
            std::future::pending::<()>().await;
        }
    };
    let grace = Duration::from_millis(50);
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, stubborn).options(|o| o.grace = grace)).await;
    assert_eq!(reports.next().await, "started");
    running.stop().await.unwrap();
    assert_eq!(reports.rest(), ["dropped"]);
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner, row.locked_until), (Status::Ready, None, None));
    // At once, not when the lease lapses.
    assert_eq!(world.claim_one(OwnerToken::new()).await.id(), id);
}

pub(super) async fn mst_001_a_worker_dropped_at_any_moment_loses_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(30).await;
    // Time is moved while workers run, so their leases lapse more often than they would; that must not count here.
    let patient = |options: &mut DispatcherOptions| options.delivery_limit = 100_000;
    for round in 0..6 {
        let (reporter, mut reports) = Reports::new();
        let set_up = |outbox: OutboxBuilder| outbox.concurrency(3).raw_handler(TOPIC, reporting(reporter));
        let running = world.work(|outbox| set_up(outbox).options(patient)).await;
        let mut reported = 0;
        world
            .until("some more are handled, or none is left", async |world| {
                reported += reports.rest().len();
                // A dropped worker's last call may still reach the database: what it takes has to lapse, what it acks is done.
                world.advance(LEASE * 2).await;
                reported >= round || world.outbox.stats().await.unwrap().open() == 0
            })
            .await;
        // As a crash would: nothing is settled, nothing is said.
        drop(running);
        world.advance(LEASE * 2).await;
    }
    let handler = async |_: Context| {};
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, handler).options(patient)).await;
    world
        .until("all are done", async |world| {
            // What a dropped worker was claiming may have been taken only after the last move.
            world.advance(LEASE * 2).await;
            world.outbox.stats().await.unwrap().done == 30
        })
        .await;
    running.stop().await.unwrap();
    assert!(world.rows(&all).await.iter().all(|row| row.status == Status::Done));
}

pub(super) async fn obx_053_leases_are_reaped_periodically(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let claimed = world.claim_one(OwnerToken::new()).await;
    let logs = Logs::capture();
    let often = Some(Duration::from_millis(5));
    // No handler, so nobody claims: only the reaper can free it.
    let running = world.work(|outbox| outbox.reap_every(often)).await;
    world.until("it has looked twice", async |_| logs.find(Level::INFO, "reaped").len() >= 2).await;
    assert_eq!(world.row(id).await.status, Status::InProgress, "the lease still holds");
    world.advance(LEASE * 2).await;
    world.until("it is freed", async |world| world.row(id).await.status == Status::Ready).await;
    running.stop().await.unwrap();
    assert_eq!(world.row(id).await.generation, claimed.handle.generation());
}

pub(super) async fn r29_retention_runs_periodically(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.enqueue_some(5).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 4).await);
    world.outbox.ack(owner, &claims).await.unwrap();
    let retention = Retention::default().interval(Duration::from_millis(5)).batch(2);
    let running = world.work(|outbox| outbox.retention(Some(retention))).await;
    world.advance(Duration::from_secs(31 * 24 * 3600)).await;
    world.until("the done ones are gone", async |world| world.outbox.stats().await.unwrap().done == 0).await;
    running.stop().await.unwrap();
    let kept = world.outbox.list(&Default::default(), Default::default()).await.unwrap();
    assert_eq!(set(&kept.iter().map(|row| row.id).collect::<Vec<_>>()), set(&all[4..]));
}

pub(super) async fn r26_gauges_are_published_periodically(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(2).await;
    let meter = Meter::new();
    let guard = meter.install();
    let running = world.work(|outbox| outbox.gauges_every(Some(Duration::from_millis(5)))).await;
    world.until("two are pending", async |_| meter.read().get("outbox_pending_messages") == Some(&2)).await;
    world.enqueue_some(1).await;
    world.until("three are pending", async |_| meter.read().get("outbox_pending_messages") == Some(&3)).await;
    running.stop().await.unwrap();
    drop(guard);
}

pub(super) async fn obx_092_a_worker_does_not_start_without_its_schema(fx: &dyn Fixture) {
    let provider = fx.undeployed().await;
    let build = |deploy: bool| {
        let builder = Mainstay::builder_over(provider.clone()).deploy_schema(deploy);
        builder.outbox(|outbox| outbox.raw_handler(TOPIC, async |_: Context| {})).build().unwrap()
    };
    let error = build(false).start().await.expect_err("the schema is not there");
    assert_eq!(error.kind(), ErrorKind::Schema);
    let running = build(true).start().await.expect("it is deployed on the way");
    Outbox::new(provider.outbox()).enqueue(Message::new(TOPIC, "")).await.unwrap();
    running.stop().await.unwrap();
    build(false).start().await.expect("now it is there").stop().await.unwrap();
}

pub(super) async fn obx_103_an_idle_worker_hears_of_new_work(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = world.second().await;
    let (reporter, mut reports) = Reports::new();
    let never = Duration::from_secs(3_600);
    let running = world
        .work(|outbox| {
            let outbox = outbox.raw_handler(TOPIC, reporting(reporter));
            // Where an enqueue is heard of, polling would come much too late.
            if fx.hears_of_enqueues() {
                outbox.options(|options| (options.poll_min, options.poll_max) = (never, never))
            } else {
                outbox
            }
        })
        .await;
    // Several rounds of idleness, each ended by somebody else's enqueue.
    for _ in 0..3 {
        let id = second.enqueue(Message::new(TOPIC, "")).await.unwrap().work_item;
        assert_eq!(reports.next().await.id(), id);
        world.until_idle().await;
    }
    running.stop().await.unwrap();
}

pub(super) async fn obx_103_an_idle_worker_polls_less_and_less(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let overheard = Arc::new(Overheard::new(world.provider.clone()));
    let (shortest, longest) = (Duration::from_millis(2), Duration::from_millis(100));
    let worker = Mainstay::builder_over(overheard.clone()).outbox(|outbox| {
        let quiet = outbox.retention(None).reap_every(None).gauges_every(None);
        let outbox = quiet.raw_handler(TOPIC, async |_: Context| {});
        outbox.options(|options| (options.poll_min, options.poll_max) = (shortest, longest))
    });
    let running = worker.build().unwrap().start().await.unwrap();
    let at_rest = |waits: &[Waited]| waits.iter().filter(|(asked, _)| *asked == longest).count();
    world.until("it waits as long as it may", async |_| at_rest(&overheard.waits()) >= 2).await;
    running.stop().await.unwrap();
    let waits = overheard.waits();
    assert_eq!(waits[0].0, shortest);
    for pair in waits.windows(2) {
        let [(asked, wake), (next, _)] = pair else { unreachable!("windows of two") };
        // A wake-up for nothing is allowed, and starts the waits anew.
        let expected = if *wake == Wake::Notified { shortest } else { (*asked * 2).min(longest) };
        assert_eq!(*next, expected, "after {wake:?} in {waits:?}");
    }
}
