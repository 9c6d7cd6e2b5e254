//! 6.7: from claim to handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::outbox::Message;
use mainstay_core::queue::{ClaimRequest, Context, HandlerError, HandlerResult, Status, TopicPolicy};
use mainstay_core::trace::TraceContext;
use mainstay_core::{ErrorKind, OwnerToken};
use tokio::sync::{Barrier, Semaphore};
use tracing::Level;

use crate::case::cases;
use crate::crew::{Farewell, Reports, reporting};
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{TOPIC, World};

cases! { $ handler_cases:
    obx_054_a_message_goes_to_the_handler_of_its_topic ["OBX-054", "OBX-010"],
    obx_055_a_message_without_a_handler_is_put_back_uncounted ["OBX-055", "R8"],
    obx_056_a_handlers_error_leads_to_a_retry ["OBX-056"],
    obx_056_a_handlers_panic_leads_to_a_retry ["OBX-056"],
    obx_057_a_handler_gets_the_whole_message ["OBX-057"],
    obx_058_a_message_keeps_its_id_over_all_deliveries ["OBX-058"],
    obx_059_a_long_handler_keeps_its_message ["OBX-059", "R11"],
    obx_060_different_messages_are_handled_at_the_same_time ["OBX-060"],
    obx_060_concurrency_is_bounded ["OBX-060"],
    obx_087_a_handlers_start_is_logged_at_info ["OBX-087"],
    obx_088_a_handlers_error_is_logged_at_error ["OBX-088"],
    obx_106_workers_never_log_a_payload ["OBX-106", "R27"],
    mst_006_a_lost_claim_cancels_its_handler ["MST-006", "R11"],
    mst_030_a_handler_commits_its_writes_with_its_ack ["MST-030", "MST-031"],
    mst_032_the_trace_goes_on_in_the_handler ["MST-032"],
    mst_040_workers_handle_a_key_in_order ["MST-040"],
    mst_042_a_handler_never_sees_an_expired_message ["MST-042"],
    r26_handlers_are_measured ["R26"],
}

async fn obx_054_a_message_goes_to_the_handler_of_its_topic(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for topic in ["order.paid", "Order.Paid", "order.paid", "order"] {
        world.enqueue(Message::new(topic, topic)).await;
    }
    let (reporter, mut reports) = Reports::new();
    let handler = |name: &'static str| {
        let reporter = reporter.clone();
        move |context: Context| {
            reporter.send((name, context.topic().to_owned(), context.payload().to_owned())).unwrap();
            std::future::ready(())
        }
    };
    let running = world
        .work(|outbox| {
            outbox
                .raw_handler("order.paid", handler("lower"))
                .raw_handler("Order.Paid", handler("upper"))
                .raw_handler("order", handler("short"))
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let mut handled = reports.rest();
    handled.sort();
    let row = |name, topic: &str| (name, topic.to_owned(), topic.to_owned());
    let lower = row("lower", "order.paid");
    assert_eq!(handled, [lower.clone(), lower, row("short", "order"), row("upper", "Order.Paid")]);
    assert_eq!(world.outbox.stats().await.unwrap().done, 4);
}

async fn obx_055_a_message_without_a_handler_is_put_back_uncounted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("nobody", "")).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let guard = meter.install();
    let running = world.work(|outbox| outbox.raw_handler("somebody", async |_: Context| {})).await;
    world
        .until("it is put back", async |world| {
            world.row(id).await.generation == 1 && world.row(id).await.status == Status::Ready
        })
        .await;
    running.stop().await.unwrap();
    drop(guard);
    let row = world.row(id).await;
    assert_eq!((row.attempts, row.reason), (0, None), "a rolling deploy must not use up its deliveries");
    let wait = row.next_attempt_at.duration_since(world.now().await).as_secs();
    assert!((30..=60).contains(&wait), "a minute by default, not {wait} s");
    let warnings = logs.find(Level::WARN, "no handler");
    assert_eq!(warnings.len(), 1);
    assert_eq!(warnings[0].field("topic"), "nobody");
    assert_eq!(meter.read().get("mainstay_outbox_no_handler_total topic=nobody"), Some(&1));
    // A worker that has the handler takes it when the wait is over.
    world.advance(Duration::from_secs(60)).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler("nobody", reporting(reporter))).await;
    assert_eq!(reports.next().await.attempt(), 1);
    running.stop().await.unwrap();
    assert_eq!(world.row(id).await.status, Status::Done);
}

async fn obx_056_a_handlers_error_leads_to_a_retry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let fine = world.enqueue(Message::new("fine", "")).await;
    let failing = async |_: Context| -> HandlerResult { Err(HandlerError::retry("connection refused")) };
    let running = world
        .work(|outbox| outbox.raw_handler(TOPIC, failing).raw_handler("fine", async |_: Context| {}))
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts), (Status::Ready, 1));
    assert_eq!(row.last_error.as_deref(), Some("connection refused"));
    assert!(row.next_attempt_at > row.created_at, "after a wait");
    assert_eq!(world.row(fine).await.status, Status::Done, "the worker goes on");
}

async fn obx_056_a_handlers_panic_leads_to_a_retry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let panicking = async |context: Context| -> HandlerResult { panic!("on delivery {}", context.attempt()) };
    let policy = TopicPolicy::default().attempts(1);
    let running = world.work(|outbox| outbox.raw_handler_with(TOPIC, policy, panicking)).await;
    world.until_idle().await;
    let (reporter, mut reports) = Reports::new();
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts), (Status::Failed, 1));
    assert!(row.last_error.unwrap().contains("panicked: on delivery 1"));
    // The next message is handled all the same.
    let running = world.work(|outbox| outbox.raw_handler("next", reporting(reporter))).await;
    world.enqueue(Message::new("next", "")).await;
    reports.next().await;
    running.stop().await.unwrap();
}

async fn obx_057_a_handler_gets_the_whole_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let message = Message::new(TOPIC, "payload")
        .correlation("request-1")
        .header("tenant", "a")
        .ordering_key("k")
        .priority(3);
    let enqueued = world.outbox.enqueue(message).await.unwrap();
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, reporting(reporter))).await;
    let context: Context = reports.next().await;
    assert_eq!((context.id(), context.message_id()), (enqueued.work_item, enqueued.message));
    assert_eq!((context.topic(), context.payload()), (TOPIC, "payload"));
    assert_eq!((context.correlation_id(), context.attempt()), (Some("request-1"), 1));
    assert_eq!(context.headers().get("tenant").map(String::as_str), Some("a"));
    assert_eq!((context.message().priority, context.message().ordering_key.as_deref()), (3, Some("k")));
    assert!(!context.stopping().is_cancelled());
    running.stop().await.unwrap();
    assert!(context.stopping().is_cancelled(), "the signal it was given tells of the stop");
}

async fn obx_058_a_message_keeps_its_id_over_all_deliveries(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let enqueued = world.outbox.enqueue(Message::new(TOPIC, "")).await.unwrap();
    let (reporter, mut reports) = Reports::new();
    let flaky = move |context: Context| {
        reporter.send((context.message_id(), context.attempt())).unwrap();
        let soon = HandlerError::retry_after(Duration::from_millis(1), "not yet");
        std::future::ready(if context.attempt() < 3 { Err(soon) } else { Ok(()) })
    };
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, flaky)).await;
    for attempt in 1..=3 {
        assert_eq!(reports.next().await, (enqueued.message, attempt));
    }
    world.until_idle().await;
    running.stop().await.unwrap();
    let row = world.row(enqueued.work_item).await;
    assert_eq!((row.status, row.attempts, row.retry_count()), (Status::Done, 3, 2));
}

async fn obx_059_a_long_handler_keeps_its_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (reporter, mut reports) = Reports::new();
    let gate = Arc::new(Semaphore::new(0));
    let mut crew = Vec::new();
    for _ in 0..2 {
        let (reporter, gate) = (reporter.clone(), Arc::clone(&gate));
        let slow = move |context: Context| {
            let (reporter, gate) = (reporter.clone(), Arc::clone(&gate));
            async move {
                reporter.send(context.attempt()).unwrap();
                gate.acquire().await.unwrap().forget();
            }
        };
        let short_lease = |options: &mut mainstay_core::queue::DispatcherOptions| {
            options.lease = Duration::from_millis(600)
        };
        crew.push(world.work(|outbox| outbox.raw_handler(TOPIC, slow).options(short_lease)).await);
    }
    assert_eq!(reports.next().await, 1);
    // Several times the lease pass, with another worker polling; renewals keep the message where it is.
    let first = world.row(id).await.locked_until.unwrap();
    world
        .until("the claim has been renewed over and over", async |world| {
            world.row(id).await.locked_until.unwrap() > first + Duration::from_millis(2_000)
        })
        .await;
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts, row.generation), (Status::InProgress, 1, 1));
    gate.add_permits(1);
    world.until_idle().await;
    for running in crew {
        running.stop().await.unwrap();
    }
    assert!(reports.rest().is_empty(), "no second delivery");
    assert_eq!(world.row(id).await.status, Status::Done);
}

async fn obx_060_different_messages_are_handled_at_the_same_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(4).await;
    // Each waits for the other three: only all at once can they get on.
    let barrier = Arc::new(Barrier::new(4));
    let together = move |_: Context| {
        let barrier = Arc::clone(&barrier);
        async move { drop(barrier.wait().await) }
    };
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, together)).await;
    world.until_idle().await;
    running.stop().await.unwrap();
    assert_eq!(world.outbox.stats().await.unwrap().done, 4);
}

async fn obx_060_concurrency_is_bounded(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(12).await;
    for _ in 0..12 {
        world.enqueue(Message::new("narrow", "")).await;
    }
    let counting = |most: &Arc<AtomicUsize>| {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::clone(most));
        move |_: Context| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
            }
        }
    };
    let (most, most_narrow) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let running = world
        .work(|outbox| {
            let one = TopicPolicy::default().concurrency(1);
            let outbox = outbox.concurrency(3).raw_handler(TOPIC, counting(&most));
            outbox.raw_handler_with("narrow", one, counting(&most_narrow))
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    assert_eq!(world.outbox.stats().await.unwrap().done, 24);
    assert!((2..=3).contains(&most.load(Ordering::SeqCst)), "{most:?} at once");
    assert_eq!(most_narrow.load(Ordering::SeqCst), 1);
}

async fn obx_087_a_handlers_start_is_logged_at_info(fx: &dyn Fixture) {
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

async fn obx_088_a_handlers_error_is_logged_at_error(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let enqueued = world.outbox.enqueue(Message::new("retried", "")).await.unwrap();
    let given_up = world.outbox.enqueue(Message::new("given up", "")).await.unwrap();
    let logs = Logs::capture();
    let running = world
        .work(|outbox| {
            outbox
                .raw_handler("retried", async |_: Context| Err(HandlerError::retry("connection refused")))
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

async fn obx_106_workers_never_log_a_payload(fx: &dyn Fixture) {
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

async fn mst_006_a_lost_claim_cancels_its_handler(fx: &dyn Fixture) {
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
    assert_eq!(reports.next().await, "dropped", "the handler is cancelled");
    running.stop().await.unwrap();
    drop(guard);
    let row = world.row(id).await;
    assert_eq!((row.status, row.owner), (Status::InProgress, Some(thief)), "and what it did changed nothing");
    assert_eq!(logs.find(Level::WARN, "the claim was lost").len(), 1);
    assert_eq!(meter.read().get(&format!("mainstay_outbox_claims_lost_total topic={TOPIC}")), Some(&1));
}

async fn mst_030_a_handler_commits_its_writes_with_its_ack(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world
        .work(|outbox| {
            outbox.raw_handler(TOPIC, {
                let reporter = reporter.clone();
                move |context: Context| {
                    let (reporter, (answer, done)) =
                        (reporter.clone(), tokio::sync::oneshot::channel::<()>());
                    async move {
                        // The fixture knows the provider's transaction; the handler waits until it has committed.
                        reporter.send((context, answer)).unwrap();
                        done.await.map_err(HandlerError::retry)
                    }
                }
            })
        })
        .await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let (context, answer) = reports.next().await;
    fx.complete(&context, "shipped", Message::new("follow-up", "x")).await.unwrap();
    answer.send(()).unwrap();
    world.until("it is done", async |world| world.row(id).await.status == Status::Done).await;
    assert_eq!(fx.notes().await, ["shipped"]);
    assert_eq!(world.row(id).await.attempts, 1);
    let stats = world.outbox.stats().await.unwrap();
    assert!(stats.topics.iter().any(|topic| topic.topic == "follow-up"), "{:?}", stats.topics);
    running.stop().await.unwrap();

    // When the claim is lost, nothing of it happens.
    let owner = OwnerToken::new();
    let request = || ClaimRequest::new(owner).only_topics(vec![TOPIC.to_owned()]);
    let running = world
        .work(|outbox| {
            outbox.raw_handler(TOPIC, move |context: Context| {
                let (reporter, (answer, done)) = (reporter.clone(), tokio::sync::oneshot::channel::<()>());
                async move {
                    reporter.send((context, answer)).unwrap();
                    done.await.map_err(HandlerError::retry)
                }
            })
        })
        .await;
    let lost = world.enqueue(Message::new(TOPIC, "")).await;
    let (context, answer) = reports.next().await;
    world.advance(Duration::from_secs(3600)).await;
    assert_eq!(world.claim_batch(&request().delivery_limit(100)).await.items.len(), 1);
    let error = fx.complete(&context, "too late", Message::new("follow-up", "y")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ClaimLost);
    answer.send(()).unwrap();
    running.stop().await.unwrap();
    assert_eq!(fx.notes().await, ["shipped"]);
    assert_eq!(world.row(lost).await.owner, Some(owner));
}

async fn mst_032_the_trace_goes_on_in_the_handler(fx: &dyn Fixture) {
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
                // What it enqueues continues the trace without being told to.
                context.outbox().enqueue(Message::new("second", "")).await?;
                reporter.send((context.trace(), context.parent_trace())).unwrap();
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
    let span = spans.iter().find(|span| span.field("topic") == "first").expect("a span for the handler");
    assert_eq!(span.field("trace_id"), root.trace_id());
    assert!(span.field("parent_span_id").contains(&root.span_id()));
}

async fn mst_040_workers_handle_a_key_in_order(fx: &dyn Fixture) {
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

async fn mst_042_a_handler_never_sees_an_expired_message(fx: &dyn Fixture) {
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
    assert_eq!(world.row(expired).await.reason, Some(mainstay_core::queue::FailureReason::Expired));
}

async fn r26_handlers_are_measured(fx: &dyn Fixture) {
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
