//! 6.13: what is logged at which level, and what is counted.

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, OnFailure, OutboxStats, Retention};
use mainstay_core::queue::{ClaimRequest, Context, HandlerError, HandlerResult};
use mainstay_core::store::Names;
use mainstay_core::telemetry::{gauges, names};
use tracing::Level;

use crate::case::cases;
use crate::fixture::{End, Fixture};
use crate::probe::{Line, Logs, Meter, Nameless, is_own};
use crate::world::{LEASE, TOPIC, World, handles};

cases! { $ observability_cases:
    obx_085_an_enqueue_is_logged_at_info ["OBX-085"],
    obx_086_a_claim_is_logged_at_debug ["OBX-086"],
    obx_089_a_reap_is_logged_at_info ["OBX-089"],
    obx_090_every_line_names_its_store ["OBX-090"],
    r4_a_stale_settle_is_logged_and_counted ["R4", "R26"],
    r26_counters_count_rows_that_really_changed ["R26"],
    r26_the_gauges_are_those_of_the_database ["R26"],
    r26_stats_say_what_stands_where ["R26"],
    r26_the_backlog_counts_like_the_stats_without_the_history ["R26"],
}

pub(super) async fn obx_085_an_enqueue_is_logged_at_info(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let logs = Logs::capture();
    let id = world.enqueue(Message::new("order.paid", "").correlation("request-81")).await;
    let lines = logs.find(Level::INFO, "enqueued");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("topic"), "order.paid");
    assert!(lines[0].field("correlation_id").contains("request-81"));
    assert_eq!(lines[0].field("work_item"), id.to_string());
    let many = vec![Message::new("a", ""), Message::new("b", "")];
    world.outbox.enqueue_many(many).await.unwrap();
    // A database that is not shared is reached by no driver of the application's own.
    let mut expected = vec!["order.paid", "a", "b"];
    if world.provider.capabilities().shared {
        fx.transact(&world.outbox, "n", vec![Message::new("c", "")], End::Commit).await.unwrap();
        expected.push("c");
    }
    let topics: Vec<String> =
        logs.find(Level::INFO, "enqueued").iter().map(|line| line.field("topic").to_owned()).collect();
    assert_eq!(topics, expected);
}

pub(super) async fn obx_086_a_claim_is_logged_at_debug(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(3).await;
    let logs = Logs::capture();
    world.claim(OwnerToken::new(), 2).await;
    world.claim(OwnerToken::new(), 50).await;
    world.claim(OwnerToken::new(), 50).await;
    let counts: Vec<String> =
        logs.find(Level::DEBUG, "claimed").iter().map(|line| line.field("count").to_owned()).collect();
    assert_eq!(counts, ["2", "1", "0"]);
}

pub(super) async fn obx_089_a_reap_is_logged_at_info(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(2).await;
    world.claim(OwnerToken::new(), 50).await;
    world.advance(LEASE * 2).await;
    let logs = Logs::capture();
    world.outbox.reap_expired().await.unwrap();
    let lines = logs.find(Level::INFO, "reaped");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("count"), "2");
}

pub(super) async fn obx_090_every_line_names_its_store(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let identifier = world.outbox.store().identifier().to_owned();
    assert!(!identifier.is_empty());
    let nameless = Nameless::listen();
    assert!(nameless.hears(), "a provider's own threads would not be heard");
    let logs = Logs::capture();
    let owner = OwnerToken::new();
    world.provider.schema().deploy().await.unwrap();
    world.enqueue_some(3).await;
    let claims = handles(&world.claim(owner, 50).await);
    world.outbox.ack(OwnerToken::new(), &claims).await.unwrap();
    world.outbox.fail(owner, &claims[..1], Some("no".to_owned())).await.unwrap();
    world.outbox.requeue(&[claims[0].id()]).await.unwrap();
    world.outbox.cancel(&[claims[0].id()]).await.unwrap();
    world.outbox.release_key("nobody's").await.unwrap();
    world.outbox.ack(owner, &claims[1..]).await.unwrap();
    let past = world.now().await - Duration::from_secs(1);
    world.enqueue(Message::new(TOPIC, "").expires_at(past)).await;
    world.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    world.outbox.reap_expired().await.unwrap();
    world.advance(Duration::from_secs(40 * 24 * 3600)).await;
    world.outbox.purge(&Retention::default()).await.unwrap();
    let lines = work_of_all_kinds(&world, &logs).await;
    assert!(lines.len() >= 20, "each of the above says something: {lines:#?}");
    for line in lines {
        // What is about the connections names the database and the schema alone.
        let store = line.field("store");
        assert!(store == identifier || !store.is_empty() && identifier.starts_with(store), "{line:?}");
    }
    // A deployment from nothing has more to tell, and part of it all is told by the provider's own threads.
    let before = logs.all().len();
    let elsewhere = World::named(fx, Names::default().with_schema("elsewhere").unwrap()).await;
    elsewhere.enqueue_some(1).await;
    for line in logs.all().iter().skip(before).filter(|line| is_own(line)) {
        let store = line.field("store");
        // What is about the connections names the database and the schema; the first store may still have something to say.
        let known = identifier.starts_with(store) || elsewhere.outbox.store().identifier().starts_with(store);
        assert!(!store.is_empty() && known, "{line:?}");
    }
    assert_eq!(nameless.heard(), [], "these name no store");
    let second = fx.second().await.outbox();
    assert_eq!(second.identifier(), identifier, "the same store has the same name everywhere");
}

/// Runs a worker through success, failure, a missing handler and its chores; then everything this project has logged.
async fn work_of_all_kinds(world: &World<'_>, logs: &Logs) -> Vec<Line> {
    for topic in ["fine", "failing", "panicking", "nobody's"] {
        world.enqueue(Message::new(topic, "")).await;
    }
    let failing = async |_: Context| -> HandlerResult { Err(HandlerError::retry("not today")) };
    let panicking = async |_: Context| -> HandlerResult { panic!("on purpose") };
    let often = Some(Duration::from_millis(5));
    let running = world
        .work(|outbox| {
            let outbox = outbox.raw_handler("fine", async |_: Context| {}).raw_handler("failing", failing);
            outbox.raw_handler("panicking", panicking).reap_every(often).gauges_every(often)
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    logs.all().into_iter().filter(is_own).collect()
}

pub(super) async fn r4_a_stale_settle_is_logged_and_counted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let owner = OwnerToken::new();
    let lost = [world.claim_one(owner).await.handle];
    world.advance(LEASE * 2).await;
    world.claim_one(OwnerToken::new()).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let guard = meter.install();
    world.outbox.ack(owner, &lost).await.unwrap();
    drop(guard);
    let warnings = logs.find(Level::WARN, "no longer held");
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field("work_item"), id.to_string());
    let counted = meter.read();
    assert_eq!(counted.get(names::STALE), Some(&1));
    assert_eq!(counted.get("mainstay_outbox_settled_total outcome=ack"), None, "it was not acked");
}

pub(super) async fn r26_counters_count_rows_that_really_changed(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let meter = Meter::new();
    let guard = meter.install();
    let owner = OwnerToken::new();
    let keyed = || Message::new("keyed", "").idempotency_key("k");
    world.enqueue(keyed()).await;
    assert!(!world.outbox.enqueue(keyed()).await.unwrap().added);
    world.enqueue_some(4).await;
    let past = world.now().await - Duration::from_secs(1);
    world.enqueue(Message::new("late", "").expires_at(past)).await;
    let batch = world.claim_batch(&ClaimRequest::new(owner).lease(LEASE)).await;
    let claims = batch.handles();
    assert_eq!((claims.len(), batch.rejected.len()), (5, 1));
    let twice = [claims[0], claims[0]];
    world.outbox.ack(owner, &twice).await.unwrap();
    world.outbox.ack(owner, &twice).await.unwrap();
    world.outbox.abandon(owner, &claims[1..2], Some(LEASE * 99), None).await.unwrap();
    world.outbox.release(owner, &claims[2..3], Some(LEASE * 99)).await.unwrap();
    world.outbox.fail(owner, &claims[3..4], None).await.unwrap();
    world.advance(LEASE * 2).await;
    world.outbox.reap_expired().await.unwrap();
    world.outbox.purge(&Retention::default().done(Some(LEASE))).await.unwrap();
    drop(guard);
    let counted = meter.read();
    let expected = [
        ("mainstay_outbox_enqueued_total topic=keyed", 1),
        ("mainstay_outbox_enqueued_total topic=conformance", 4),
        ("mainstay_outbox_enqueued_total topic=late", 1),
        (names::CLAIMED, 5),
        ("mainstay_outbox_settled_total outcome=ack", 1),
        ("mainstay_outbox_settled_total outcome=abandon", 1),
        ("mainstay_outbox_settled_total outcome=release", 1),
        ("mainstay_outbox_settled_total outcome=fail", 1),
        (names::STALE, 1),
        ("mainstay_outbox_rejected_total reason=expired", 1),
        (names::REAPED, 1),
        (names::PURGED, 1),
    ];
    for (name, count) in expected {
        assert_eq!(counted.get(name), Some(&count), "{name} in {counted:?}");
    }
}

pub(super) async fn r26_the_gauges_are_those_of_the_database(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(3).await;
    world.enqueue(Message::new(TOPIC, "").due_in(LEASE * 99)).await;
    let owner = OwnerToken::new();
    let claims = handles(&world.claim(owner, 2).await);
    world.outbox.fail(owner, &claims[..1], None).await.unwrap();
    world.advance(Duration::from_secs(15)).await;
    let stats = world.outbox.stats().await.unwrap();
    let meter = Meter::new();
    let guard = meter.install();
    gauges(world.outbox.store().identifier(), &stats);
    drop(guard);
    let shown = meter.read();
    assert_eq!(shown.get("outbox_pending_messages"), Some(&2));
    assert_eq!(shown.get("outbox_processing_messages"), Some(&1));
    assert_eq!(shown.get("outbox_failed_messages"), Some(&1));
    let oldest = shown.get(names::OLDEST_SECONDS).copied().unwrap();
    assert!((15..300).contains(&oldest), "{oldest} s since it was due");
}

pub(super) async fn r26_stats_say_what_stands_where(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let empty = world.outbox.stats().await.unwrap();
    assert_eq!((empty.open(), empty.done, empty.failed, empty.held_keys), (0, 0, 0, 0));
    assert_eq!((empty.oldest_ready, empty.topics.len()), (None, 0));

    let owner = OwnerToken::new();
    for (topic, count) in [("b", 3), ("a", 2)] {
        for _ in 0..count {
            world.enqueue(Message::new(topic, "")).await;
        }
    }
    let request = ClaimRequest::new(owner).only_topics(vec!["b".to_owned()]).batch(3);
    let claims = world.claim_batch(&request.lease(LEASE)).await.handles();
    world.outbox.ack(owner, &claims[..1]).await.unwrap();
    world.outbox.fail(owner, &claims[1..2], None).await.unwrap();
    world.enqueue(Message::new("a", "").due_in(LEASE * 99)).await;
    world.advance(LEASE * 2).await;
    let stats = world.outbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.scheduled, stats.in_progress, stats.lapsed), (2, 1, 1, 1));
    assert_eq!((stats.done, stats.failed, stats.open()), (1, 1, 4));
    assert!(stats.oldest_ready.unwrap() >= LEASE * 2);
    let topics: Vec<_> = stats
        .topics
        .iter()
        .map(|one| (one.topic.as_str(), one.ready, one.scheduled, one.in_progress, one.failed))
        .collect();
    assert_eq!(topics, [("a", 2, 1, 0, 0), ("b", 0, 0, 1, 1)]);
}

pub(super) async fn r26_the_backlog_counts_like_the_stats_without_the_history(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    assert_eq!(world.outbox.backlog().await.unwrap(), world.outbox.stats().await.unwrap(), "empty");
    let owner = OwnerToken::new();
    let held =
        |n: usize| Message::new(TOPIC, "").ordering_key(format!("key {n}")).on_failure(OnFailure::Hold);
    for number in 0..6 {
        world.enqueue(held(number)).await;
    }
    let claims = handles(&world.claim(owner, 4).await);
    world.outbox.ack(owner, &claims[..1]).await.unwrap();
    world.outbox.fail(owner, &claims[1..3], None).await.unwrap();
    world.enqueue(Message::new("later", "").due_in(LEASE * 99)).await;
    world.advance(LEASE * 2).await;
    let (stats, backlog) = (world.outbox.stats().await.unwrap(), world.outbox.backlog().await.unwrap());
    assert_eq!((stats.done, stats.topics.len()), (1, 2));
    assert_eq!((backlog.done, backlog.topics.len()), (0, 0), "nothing that takes a look at the whole table");
    assert_eq!((backlog.ready, backlog.scheduled, backlog.in_progress, backlog.lapsed), (2, 1, 1, 1));
    assert_eq!((backlog.failed, backlog.held_keys, backlog.open()), (2, 2, 4));
    let counts = |of: &OutboxStats| {
        [of.ready, of.scheduled, of.in_progress, of.lapsed, of.failed, of.held_keys, of.open()]
    };
    assert_eq!(counts(&backlog), counts(&stats));
    // Later by the moment between the two looks.
    assert!(backlog.oldest_ready >= stats.oldest_ready && stats.oldest_ready >= Some(LEASE * 2));
}
