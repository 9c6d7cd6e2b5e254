//! What surrounds a delivery: its claim, its transaction, its trace, its order, its logs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_core::outbox::Message;
use mainstay_core::queue::{
    ClaimRequest, Context, DispatcherOptions, FailureReason, HandlerError, HandlerResult, Status,
};
use mainstay_core::runtime::OutboxBuilder;
use mainstay_core::trace::TraceContext;
use mainstay_core::{ErrorKind, OwnerToken};
use tokio::sync::oneshot;
use tracing::Level;

use crate::case::cases;
use crate::crew::{Farewell, Reporter, Reports, reporting};
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{TOPIC, World};

cases! { $ delivery_cases:
    obx_087_a_handlers_start_is_logged_at_info ["OBX-087"],
    obx_088_a_handlers_error_is_logged_at_error ["OBX-088"],
    obx_106_workers_never_log_a_payload ["OBX-106", "R27"],
    mst_006_a_lost_claim_cancels_its_handler ["MST-006", "R11"],
    mst_030_a_handler_commits_its_writes_with_its_ack ["MST-030", "MST-031"],
    mst_030_a_handler_that_lost_its_claim_commits_nothing ["MST-030", "MST-031", "R10"],
    mst_032_the_trace_goes_on_in_the_handler ["MST-032"],
    mst_040_workers_handle_a_key_in_order ["MST-040"],
    mst_042_a_handler_never_sees_an_expired_message ["MST-042"],
    r26_handlers_are_measured ["R26"],
}

pub(super) async fn obx_087_a_handlers_start_is_logged_at_info(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let enqueued = world.outbox.enqueue(Message::new("order.paid", "")).await.unwrap();
    let logs = Logs::capture();
    let running = world.work(|outbox| outbox.raw_handler("order.paid", async |_: Context| {})).await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let lines = logs.find(Level::INFO, "handling");
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].field("topic"), "order.paid");
    assert!(lines[0].fields.values().any(|value| value == &enqueued.message.to_string()));
    assert_eq!(lines[0].field("store"), world.outbox.store().identifier());
}

pub(super) async fn obx_088_a_handlers_error_is_logged_at_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let enqueued = world.outbox.enqueue(Message::new("retried", "")).await.unwrap();
    let given_up = world.outbox.enqueue(Message::new("given up", "")).await.unwrap();
    let logs = Logs::capture();
    let running = world
        .work(|outbox| {
            outbox
                // Once, however slow the server is.
                .raw_handler("retried", async |_: Context| {
                    Err(HandlerError::retry_after(Duration::from_secs(3_600), "connection refused"))
                })
                .raw_handler("given up", async |_: Context| Err(HandlerError::fail("no such customer")))
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let errors = logs.find(Level::ERROR, "the handler failed");
    assert_eq!(errors.len(), 2, "{errors:?}");
    for (message, text) in [(enqueued.message, "connection refused"), (given_up.message, "no such customer")]
    {
        let line = errors.iter().find(|line| line.fields.values().any(|value| value == &message.to_string()));
        let line = line.expect("the message's id is in the line");
        assert!(line.field("error").contains(text), "{line:?}");
    }
}

pub(super) async fn obx_106_workers_never_log_a_payload(fx: &dyn Fixture) {
    const SECRET: &str = "s3cr3t-p4yl0ad";
    let world = World::open(fx).await;
    let logs = Logs::capture();
    for topic in ["fine", "broken", "typed", "panics", "nobody"] {
        world.enqueue(Message::new(topic, format!("\"{SECRET}\"")).header("authorization", SECRET)).await;
    }
    let running = world
        .work(|outbox| {
            outbox
                .raw_handler("fine", async |_: Context| {})
                .raw_handler("broken", async |_: Context| Err(HandlerError::retry("it broke")))
                .raw_handler("panics", async |context: Context| -> HandlerResult { panic!("at {context:?}") })
                // A payload that is not what the handler takes: the text of the error must not quote it.
                .handler("typed", async |_: u32, _: Context| {})
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    assert!(logs.all().len() > 10, "the capture works");
    assert!(!logs.text().contains(SECRET), "at any level, by any path");
    let rows = world.outbox.list(&Default::default(), Default::default()).await.unwrap();
    assert!(rows.iter().all(|row| !row.last_error.as_deref().unwrap_or_default().contains(SECRET)));
}

pub(super) async fn mst_006_a_lost_claim_cancels_its_handler(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (reporter, mut reports) = Reports::new();
    let endless = move |_: Context| {
        let farewell = Farewell(reporter.clone());
        async move {
            farewell.0.send("started").unwrap();
            let _farewell = farewell;
            std::future::pending::<()>().await;
        }
    };
    let (logs, meter) = (Logs::capture(), Meter::new());
    let guard = meter.install();
    let running = world
        .work(|outbox| outbox.raw_handler(TOPIC, endless).options(|o| o.lease = Duration::from_secs(2)))
        .await;
    assert_eq!(reports.next().await, "started");
    // Another worker takes the message over; a renewal may come in between, so ask until it is taken.
    let thief = OwnerToken::new();
    world
        .until("another worker has the message", async |world| {
            world.advance(Duration::from_secs(60)).await;
            let request = ClaimRequest::new(thief).lease(Duration::from_secs(3600)).delivery_limit(1_000);
            !world.claim_batch(&request).await.items.is_empty()
        })
        .await;
    // Before that the worker itself may have taken the lapsed message anew; each of its handlers is cancelled.
    let mut started = 1;
    while reports.next().await == "started" {
        started += 1;
    }
    running.stop().await.unwrap();
    drop(guard);
    // One that lost its claim before the other worker had it may have been followed by another.
    let rest = reports.rest();
    let count = |what: &str| rest.iter().filter(|report| **report == what).count();
    started += count("started");
    assert_eq!(1 + count("dropped"), started, "every handler is cancelled");
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner), (Status::InProgress, Some(thief)), "and what it did changed nothing");
    let warnings = logs.find(Level::WARN, "the claim was lost").len();
    assert!(warnings >= 1);
    let counted = meter.read().get(&format!("mainstay_outbox_claims_lost_total topic={TOPIC}")).copied();
    assert_eq!(counted, Some(warnings as u64));
}

/// Hands each delivery to the case, and succeeds once the case says so. The case ends the transaction through the
/// fixture, which knows the provider's type.
fn handing_over(reporter: Reporter<Delivery>) -> impl Fn(Context) -> BoxFuture<'static, HandlerResult> {
    move |context| {
        let (answer, done) = oneshot::channel();
        reporter.send((context, answer)).unwrap();
        Box::pin(async { done.await.map_err(HandlerError::retry) })
    }
}

type Delivery = (Context, oneshot::Sender<()>);

pub(super) async fn mst_030_a_handler_commits_its_writes_with_its_ack(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, handing_over(reporter))).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (context, answer) = reports.next().await;
    fx.complete(&context, "shipped", Message::new("follow-up", "x")).await.unwrap();
    answer.send(()).unwrap();
    world.until("it is done", async |world| world.row(id).await.status == Status::Done).await;
    running.stop().await.unwrap();
    assert_eq!(fx.notes().await, ["shipped"]);
    assert_eq!(world.row(id).await.attempts, 1);
    let stats = world.outbox.stats().await.unwrap();
    assert!(stats.topics.iter().any(|topic| topic.topic == "follow-up"), "{:?}", stats.topics);
}

pub(super) async fn mst_030_a_handler_that_lost_its_claim_commits_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let patience = |options: &mut DispatcherOptions| options.grace = Duration::from_millis(10);
    let set_up = |outbox: OutboxBuilder| outbox.raw_handler(TOPIC, handing_over(reporter)).options(patience);
    let running = world.work(set_up).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (context, _answer) = reports.next().await;
    // The worker itself may take the lapsed message anew, so ask until it is another's.
    let thief = OwnerToken::new();
    world
        .until("another worker has the message", async |world| {
            world.advance(Duration::from_secs(3600)).await;
            let request =
                ClaimRequest::new(thief).lease(Duration::from_secs(24 * 3600)).delivery_limit(1_000);
            !world.claim_batch(&request).await.items.is_empty()
        })
        .await;
    let error = fx.complete(&context, "too late", Message::new("follow-up", "y")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClaimLost);
    running.stop().await.unwrap();
    assert!(fx.notes().await.is_empty());
    assert_eq!(world.total().await, 1, "nor is its message there");
    assert_eq!(world.row(id).await.owner, Some(thief));
}

pub(super) async fn mst_032_the_trace_goes_on_in_the_handler(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let logs = Logs::capture();
    let root = TraceContext::root();
    let (reporter, mut reports) = Reports::new();
    let first = {
        let reporter = reporter.clone();
        move |context: Context| {
            let reporter = reporter.clone();
            async move {
                let trace = TraceContext::current().expect("a handler has a trace");
                assert_eq!(trace, context.trace());
                reporter.send((context.trace(), context.parent_trace())).unwrap();
                // What it enqueues continues the trace without being told to.
                context.outbox().enqueue(Message::new("second", "")).await?;
                Ok::<(), HandlerError>(())
            }
        }
    };
    let second = move |context: Context| {
        reporter.send((context.trace(), context.parent_trace())).unwrap();
        std::future::ready(())
    };
    let running = world.work(|outbox| outbox.raw_handler("first", first).raw_handler("second", second)).await;
    world.enqueue(Message::new("first", "").trace(root)).await;
    let (first, parent) = reports.next().await;
    assert_eq!(parent, Some(root));
    assert_eq!(first.trace_id(), root.trace_id());
    assert_ne!(first.span_id(), root.span_id());
    let (second, parent) = reports.next().await;
    assert_eq!(parent, Some(first));
    assert_eq!((second.trace_id(), second.span_id() == first.span_id()), (root.trace_id(), false));
    running.stop().await.unwrap();
    let spans: Vec<_> =
        logs.all().into_iter().filter(|line| line.is_span && line.message == "handle").collect();
    // The last there is of it: it is told its ids a moment after it has begun.
    let span = spans.iter().rfind(|span| span.field("topic") == "first").expect("a span for the handler");
    assert_eq!(span.field("trace_id"), root.trace_id());
    assert!(span.field("parent_span_id").contains(&root.span_id()));
}

pub(super) async fn mst_040_workers_handle_a_key_in_order(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let mut crew = Vec::new();
    let busy = Arc::new(AtomicUsize::new(0));
    for _ in 0..3 {
        let (reporter, busy) = (reporter.clone(), Arc::clone(&busy));
        let handler = move |context: Context| {
            let (reporter, busy) = (reporter.clone(), Arc::clone(&busy));
            async move {
                assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two of one key at once");
                tokio::task::yield_now().await;
                reporter.send(context.payload().to_owned()).unwrap();
                busy.fetch_sub(1, Ordering::SeqCst);
            }
        };
        crew.push(world.work(|outbox| outbox.raw_handler(TOPIC, handler)).await);
    }
    for number in 0..15 {
        world.enqueue(Message::new(TOPIC, number.to_string()).ordering_key("k")).await;
    }
    for number in 0..15 {
        assert_eq!(reports.next().await, number.to_string());
    }
    world.until_idle().await;
    for running in crew {
        running.stop().await.unwrap();
    }
    assert_eq!(world.outbox.stats().await.unwrap().done, 15);
}

pub(super) async fn mst_042_a_handler_never_sees_an_expired_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let past = world.now().await - Duration::from_secs(1);
    let expired = world.enqueue(Message::new(TOPIC, "expired").expires_at(past)).await;
    let fine = world.enqueue(Message::new(TOPIC, "fine").expires_in(Duration::from_secs(3600))).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, reporting(reporter))).await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let seen: Vec<_> = reports.rest().iter().map(|context: &Context| context.id()).collect();
    assert_eq!(seen, [fine]);
    assert_eq!(world.row(expired).await.reason, Some(FailureReason::Expired));
}

pub(super) async fn r26_handlers_are_measured(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let meter = Meter::new();
    let guard = meter.install();
    world.enqueue_some(3).await;
    world.enqueue(Message::new("broken", "")).await;
    let running = world
        .work(|outbox| {
            let outbox = outbox.raw_handler(TOPIC, async |_: Context| {});
            outbox.raw_handler("broken", async |_: Context| Err(HandlerError::fail("no")))
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    drop(guard);
    let counted = meter.read();
    let expected = [
        ("mainstay_outbox_handler_seconds topic=conformance outcome=ack", 3),
        ("mainstay_outbox_handler_seconds topic=broken outcome=fail", 1),
        ("mainstay_outbox_lag_seconds topic=conformance", 3),
        ("mainstay_outbox_claimed_total", 4),
        ("mainstay_outbox_settled_total outcome=ack", 3),
        ("mainstay_outbox_settled_total outcome=fail", 1),
    ];
    for (name, count) in expected {
        assert_eq!(counted.get(name), Some(&count), "{name} in {counted:?}");
    }
}
