//! 6.8: what becomes of a message whose handler did not succeed.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::WorkItemId;
use mainstay_core::backoff::Backoff;
use mainstay_core::outbox::{Message, OutboxMessage};
use mainstay_core::queue::{Context, FailureReason, HandlerError, HandlerResult, Status, TopicPolicy};
use mainstay_core::runtime::{Mainstay, OutboxBuilder};

use crate::case::cases;
use crate::crew::{Reports, reporting};
use crate::fixture::Fixture;
use crate::world::{TOPIC, World};

cases! { $ retry_cases:
    obx_061_workers_back_off_exponentially ["OBX-061", "OBX-062", "R7"],
    obx_063_the_backoff_is_replaceable_per_topic ["OBX-063", "R7"],
    obx_064_a_message_out_of_attempts_fails ["OBX-064", "R3"],
    obx_065_the_number_of_attempts_is_configurable ["OBX-065"],
    obx_056_each_answer_of_a_handler_has_its_effect ["OBX-056"],
    obx_056_a_handler_that_takes_too_long_is_retried ["OBX-056"],
    prim_api_003_a_worker_set_up_wrongly_is_refused ["PRIM-API-003", "OBX-028", "OBX-027"],
}

/// Runs a worker until the message has been handled once, and returns its row and the wait set for it in seconds, at
/// least and at most.
async fn deliver_once(
    world: &World<'_>,
    id: WorkItemId,
    set_up: impl FnOnce(OutboxBuilder) -> OutboxBuilder,
) -> (OutboxMessage, f64, f64) {
    let generation = world.row(id).await.generation;
    let before = world.now().await;
    let running = world.work(set_up).await;
    world
        .until("it is delivered", async |world| {
            let row = world.row(id).await;
            row.generation > generation && row.status != Status::InProgress
        })
        .await;
    running.stop().await.unwrap();
    let after = world.now().await;
    let row = world.row(id).await;
    let since = |moment: Timestamp| row.next_attempt_at.duration_since(moment).as_secs_f64();
    let (shortest, longest) = (since(after), since(before));
    (row, shortest, longest)
}

async fn broken(_: Context) -> HandlerResult {
    Err(HandlerError::retry("it broke"))
}

pub(super) async fn obx_061_workers_back_off_exponentially(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    // Waits below the time a loaded machine takes for one round would be over before they are looked at.
    for (attempts, wait) in
        [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 16.0), (6, 32.0), (7, 60.0), (8, 60.0)]
    {
        let (row, shortest, longest) =
            deliver_once(&world, id, |outbox| outbox.raw_handler(TOPIC, broken)).await;
        if row.attempts == attempts {
            assert!(
                shortest <= wait && wait <= longest,
                "after {attempts}: {shortest} to {longest}, not {wait}"
            );
        }
        assert_eq!(row.status, Status::Ready);
        world.advance(Duration::from_secs(60)).await;
    }
    assert!(world.row(id).await.attempts >= 8);
}

pub(super) async fn obx_063_the_backoff_is_replaceable_per_topic(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let custom = world.enqueue(Message::new("custom", "")).await;
    let policy = || {
        TopicPolicy::default()
            .backoff(Backoff::custom(|retries| Duration::from_secs(100 + u64::from(retries))))
    };
    for wait in [100.0, 101.0] {
        let set_up = |outbox: OutboxBuilder| outbox.raw_handler_with("custom", policy(), broken);
        let (_, shortest, longest) = deliver_once(&world, custom, set_up).await;
        assert!(shortest <= wait && wait <= longest, "{shortest} to {longest}, not {wait}");
        world.advance(Duration::from_secs(200)).await;
    }
    let jittered = world.enqueue(Message::new("jittered", "")).await;
    let policy = TopicPolicy::default().backoff(Backoff::fixed(Duration::from_secs(1000)).jitter(0.5));
    let set_up = |outbox: OutboxBuilder| outbox.raw_handler_with("jittered", policy, broken);
    let (_, shortest, longest) = deliver_once(&world, jittered, set_up).await;
    assert!(longest >= 500.0 && shortest <= 1500.0, "{shortest} to {longest}");
}

pub(super) async fn obx_064_a_message_out_of_attempts_fails(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "kept")).await;
    let at_once = || TopicPolicy::default().attempts(3).backoff(Backoff::fixed(Duration::from_millis(1)));
    let running = world.work(|outbox| outbox.raw_handler_with(TOPIC, at_once(), broken)).await;
    world.until("it has failed", async |world| world.row(id).await.status == Status::Failed).await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.attempts, row.reason), (3, Some(FailureReason::DeliveryLimit)));
    assert!(row.last_error.unwrap().contains("it broke"));
    assert_eq!(row.payload.as_deref(), Some("kept"), "for a replay");
    world.assert_nothing_due().await;
}

pub(super) async fn obx_065_the_number_of_attempts_is_configurable(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fast = || TopicPolicy::default().backoff(Backoff::fixed(Duration::from_millis(1)));
    let ten = world.enqueue(Message::new("default", "")).await;
    let two = world.enqueue(Message::new("two", "")).await;
    let running = world
        .work(|outbox| {
            let outbox = outbox.raw_handler_with("default", fast(), broken);
            outbox.raw_handler_with("two", fast().attempts(2), broken)
        })
        .await;
    world.until("both have failed", async |world| world.outbox.stats().await.unwrap().failed == 2).await;
    running.stop().await.unwrap();
    assert_eq!(world.row(ten).await.attempts, 10, "ten by default");
    assert_eq!(world.row(two).await.attempts, 2, "a topic's own limit");

    let four = world.enqueue(Message::new("four", "")).await;
    let running = world
        .work(|outbox| {
            outbox.options(|options| options.delivery_limit = 4).raw_handler_with("four", fast(), broken)
        })
        .await;
    world.until("it has failed", async |world| world.row(four).await.status == Status::Failed).await;
    running.stop().await.unwrap();
    assert_eq!(world.row(four).await.attempts, 4, "the worker's limit");
}

pub(super) async fn obx_056_each_answer_of_a_handler_has_its_effect(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    const HOUR: Duration = Duration::from_secs(3600);
    let topics = ["ok", "retry", "retry after", "snooze", "fail", "any error"];
    let mut ids = Vec::new();
    for topic in topics {
        ids.push(world.enqueue(Message::new(topic, "not JSON of a number")).await);
    }
    let running = world
        .work(|outbox| {
            outbox
                .raw_handler("ok", async |_: Context| Ok::<(), HandlerError>(()))
                .raw_handler("retry", async |_: Context| Err(HandlerError::retry("again")))
                .raw_handler("retry after", async |_: Context| Err(HandlerError::retry_after(HOUR, "later")))
                .raw_handler("snooze", async |_: Context| Err(HandlerError::snooze(HOUR)))
                .raw_handler("fail", async |_: Context| Err(HandlerError::fail("never")))
                .raw_handler("any error", async |_: Context| "x".parse::<u32>().map(drop))
        })
        .await;
    world
        .until("all are answered", async |world| {
            world.rows(&ids).await.iter().all(|row| row.generation > 0 && row.status != Status::InProgress)
        })
        .await;
    running.stop().await.unwrap();
    let rows = world.rows(&ids).await;
    let stands =
        |index: usize| (rows[index].status, rows[index].attempts >= 1, rows[index].last_error.as_deref());
    assert_eq!(stands(0), (Status::Done, true, None));
    assert_eq!(stands(1), (Status::Ready, true, Some("again")));
    assert_eq!(stands(2), (Status::Ready, true, Some("later")));
    assert_eq!(stands(3), (Status::Ready, false, None), "a snooze does not count");
    assert_eq!(stands(4), (Status::Failed, true, Some("never")));
    assert_eq!(rows[4].reason, Some(FailureReason::Handler));
    assert_eq!(stands(5), (Status::Ready, true, Some("invalid digit found in string")));
    for index in [2, 3] {
        let wait = rows[index].next_attempt_at.duration_since(world.now().await).as_secs();
        assert!((3_000..=3_600).contains(&wait), "{wait}");
    }
}

pub(super) async fn obx_056_a_handler_that_takes_too_long_is_retried(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let policy = TopicPolicy::default().timeout(Duration::from_millis(50)).attempts(1);
    let endless = async |_: Context| std::future::pending::<()>().await;
    let running = world.work(|outbox| outbox.raw_handler_with(TOPIC, policy, endless)).await;
    world.until("it is given up", async |world| world.row(id).await.status == Status::Failed).await;
    running.stop().await.unwrap();
    assert!(world.row(id).await.last_error.unwrap().contains("did not end within 50ms"));
}

pub(super) async fn prim_api_003_a_worker_set_up_wrongly_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let refused = |field: &str, set_up: &dyn Fn(OutboxBuilder) -> OutboxBuilder| {
        let built = Mainstay::builder_over(world.provider.clone()).outbox(set_up).build();
        let error = built.expect_err(field);
        assert_eq!(error.field(), Some(field), "{error}");
    };
    let handled = |outbox: OutboxBuilder| outbox.raw_handler(TOPIC, async |_: Context| {});
    refused("batch", &|outbox| handled(outbox).options(|options| options.batch = 0));
    refused("lease", &|outbox| handled(outbox).options(|options| options.lease = Duration::ZERO));
    refused("concurrency", &|outbox| handled(outbox).concurrency(0));
    refused("delivery_limit", &|outbox| handled(outbox).options(|options| options.delivery_limit = 0));
    refused("renew_at", &|outbox| handled(outbox).options(|options| options.renew_at = 1.0));
    refused("poll_min", &|outbox| handled(outbox).options(|options| options.poll_min = Duration::ZERO));
    refused("reap interval", &|outbox| outbox.reap_every(Some(Duration::ZERO)));
    refused("topic", &|outbox| handled(handled(outbox)));
    refused("topic", &|outbox| outbox.raw_handler("", async |_: Context| {}));
    refused("batch", &|outbox| outbox.retention(Some(mainstay_core::outbox::Retention::default().batch(0))));
    // And one set up rightly is not.
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, reporting(reporter))).await;
    world.enqueue(Message::new(TOPIC, "")).await;
    reports.next().await;
    running.stop().await.unwrap();
}
