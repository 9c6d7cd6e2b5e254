//! 6.7: from claim to handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::backoff::Backoff;
use mainstay_core::outbox::Message;
use mainstay_core::queue::{Context, DispatcherOptions, HandlerError, HandlerResult, Status, TopicPolicy};
use mainstay_core::runtime::Mainstay;
use mainstay_core::store::Queue;
use tokio::sync::{Barrier, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::Level;

use crate::case::cases;
use crate::crew::{Reports, reporting};
use crate::fixture::Fixture;
use crate::probe::{Logs, Meter};
use crate::world::{TOPIC, World};

cases! { $ handlers_cases:
    obx_054_a_message_goes_to_the_handler_of_its_topic ["OBX-054", "OBX-010"],
    obx_055_a_message_without_a_handler_is_put_back_uncounted ["OBX-055", "R8"],
    obx_055_topics_of_others_can_be_left_to_them ["OBX-055", "R8"],
    obx_055_a_batch_looks_behind_what_is_left_to_others ["OBX-055", "R8"],
    obx_056_a_handlers_error_leads_to_a_retry ["OBX-056"],
    obx_056_a_handlers_panic_leads_to_a_retry ["OBX-056"],
    obx_056_an_endless_delay_is_bounded_and_harms_no_other ["OBX-056", "R6"],
    obx_057_a_handler_gets_the_whole_message ["OBX-057"],
    obx_058_a_message_keeps_its_id_over_all_deliveries ["OBX-058"],
    obx_059_a_long_handler_keeps_its_message ["OBX-059", "R11"],
    obx_060_different_messages_are_handled_at_the_same_time ["OBX-060"],
    obx_060_concurrency_is_bounded ["OBX-060"],
}

pub(super) async fn obx_054_a_message_goes_to_the_handler_of_its_topic(fx: &dyn Fixture) {
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

pub(super) async fn obx_055_a_message_without_a_handler_is_put_back_uncounted(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("nobody", "")).await;
    let (logs, meter) = (Logs::capture(), Meter::new());
    let guard = meter.install();
    let running = world.work(|outbox| outbox.raw_handler("somebody", async |_: Context| {})).await;
    world
        .until("it is put back", async |world| {
            world.row(id).await.claims() == 1 && world.row(id).await.status == Status::Ready
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

pub(super) async fn obx_055_topics_of_others_can_be_left_to_them(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(world.enqueue(Message::new("other", "")).await);
    }
    for prefix in [None, Some("ord")] {
        world.enqueue(Message::new("order", "")).await;
        let (reporter, mut reports) = Reports::new();
        let running = world
            .work(|outbox| {
                let outbox = outbox.options(|options| options.own_topics_only = true);
                match prefix {
                    None => outbox.raw_handler("order", reporting(reporter)),
                    Some(prefix) => {
                        outbox.raw_prefix_handler_with(prefix, TopicPolicy::default(), reporting(reporter))
                    }
                }
            })
            .await;
        assert_eq!(reports.next().await.topic(), "order");
        running.stop().await.unwrap();
        for id in &others {
            let row = world.row(*id).await;
            assert_eq!((row.status, row.attempts), (Status::Ready, 0), "{prefix:?}");
            assert!(row.next_attempt_at <= world.now().await, "they are not put off");
            assert!(prefix.is_some() || row.generation == 0, "whoever names topics does not even claim them");
        }
    }
}

pub(super) async fn obx_055_a_batch_looks_behind_what_is_left_to_others(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    for topic in ["others.a", "others.b"] {
        let many = (0..20).map(|_| Message::new(topic, "")).collect();
        world.outbox.enqueue_many(many).await.unwrap();
    }
    let own = world.enqueue(Message::new("order.paid", "")).await;
    let mainstay = Mainstay::builder_over(Arc::clone(&world.provider))
        .outbox(|outbox| {
            let outbox = outbox.options(|options| {
                (options.own_topics_only, options.batch) = (true, 10);
            });
            outbox.raw_prefix_handler_with("order.", TopicPolicy::default(), async |_: Context| {})
        })
        .build()
        .unwrap();
    let stop = CancellationToken::new();
    assert_eq!(mainstay.run_batch(Queue::Outbox, &stop).await.unwrap(), 1);
    assert_eq!(world.row(own).await.status, Status::Done);
    assert_eq!(mainstay.run_batch(Queue::Outbox, &stop).await.unwrap(), 0);
    assert_eq!(world.outbox.stats().await.unwrap().ready, 40, "the rest waits for others");
}

pub(super) async fn obx_056_a_handlers_error_leads_to_a_retry(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let fine = world.enqueue(Message::new("fine", "")).await;
    // However long a slow database takes to stop: not before that.
    let patient = TopicPolicy::default().backoff(Backoff::fixed(Duration::from_secs(600)));
    let failing = async |_: Context| -> HandlerResult { Err(HandlerError::retry("connection refused")) };
    let running = world
        .work(|outbox| {
            outbox.raw_handler_with(TOPIC, patient, failing).raw_handler("fine", async |_: Context| {})
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts), (Status::Ready, 1));
    assert_eq!(row.last_error.as_deref(), Some("connection refused"));
    assert!(row.next_attempt_at > row.created_at, "after a wait");
    assert_eq!(world.row(fine).await.status, Status::Done, "the worker goes on");
}

pub(super) async fn obx_056_a_handlers_panic_leads_to_a_retry(fx: &dyn Fixture) {
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

pub(super) async fn obx_056_an_endless_delay_is_bounded_and_harms_no_other(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let retried = world.enqueue(Message::new("retry", "")).await;
    let snoozed = world.enqueue(Message::new("snooze", "")).await;
    let fine = world.enqueue_some(5).await;
    // All wait for the last, so that they are settled together.
    let barrier = Arc::new(Barrier::new(7));
    let answering = |answer: fn() -> HandlerResult| {
        let barrier = Arc::clone(&barrier);
        move |_: Context| {
            let barrier = Arc::clone(&barrier);
            async move {
                barrier.wait().await;
                answer()
            }
        }
    };
    let running = world
        .work(|outbox| {
            let retry = || Err(HandlerError::retry_after(Duration::MAX, "one day"));
            let outbox =
                outbox.raw_handler("retry", answering(retry)).raw_handler(TOPIC, answering(|| Ok(())));
            outbox.raw_handler("snooze", answering(|| Err(HandlerError::snooze(Duration::MAX))))
        })
        .await;
    world.until_idle().await;
    running.stop().await.unwrap();
    assert!(world.rows(&fine).await.iter().all(|row| row.status == Status::Done));
    let far = world.now().await + Duration::from_secs(24 * 3600);
    for (id, attempts) in [(retried, 1), (snoozed, 0)] {
        let row = world.row(id).await;
        assert_eq!((row.status, row.attempts), (Status::Ready, attempts));
        assert!(row.next_attempt_at > far, "far away, at {}", row.next_attempt_at);
    }
}

pub(super) async fn obx_057_a_handler_gets_the_whole_message(fx: &dyn Fixture) {
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

pub(super) async fn obx_058_a_message_keeps_its_id_over_all_deliveries(fx: &dyn Fixture) {
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

pub(super) async fn obx_059_a_long_handler_keeps_its_message(fx: &dyn Fixture) {
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
        // Renewed often, and long enough for a busy machine to be late by seconds.
        let lease = |options: &mut DispatcherOptions| {
            (options.lease, options.renew_at) = (Duration::from_secs(10), 0.03);
        };
        crew.push(world.work(|outbox| outbox.raw_handler(TOPIC, slow).options(lease)).await);
    }
    assert_eq!(reports.next().await, 1);
    // More than the lease passes, with another worker polling; renewals keep the message where it is.
    let passing = Duration::from_secs(3);
    for _ in 0..5 {
        world.advance(passing).await;
        let nearer = world.row(id).await.locked_until.unwrap();
        world
            .until("the claim has been renewed", async |world| {
                world.row(id).await.locked_until.unwrap() >= nearer + passing / 2
            })
            .await;
    }
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts, row.claims()), (Status::InProgress, 1, 1));
    gate.add_permits(1);
    world.until_idle().await;
    for running in crew {
        running.stop().await.unwrap();
    }
    assert!(reports.rest().is_empty(), "no second delivery");
    assert_eq!(world.row(id).await.status, Status::Done);
}

pub(super) async fn obx_060_different_messages_are_handled_at_the_same_time(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    world.enqueue_some(4).await;
    // Each waits for the other three: only all at once can they get on.
    let barrier = Arc::new(Barrier::new(4));
    let together = move |_: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
        }
    };
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, together)).await;
    world.until_idle().await;
    running.stop().await.unwrap();
    assert_eq!(world.outbox.stats().await.unwrap().done, 4);
}

pub(super) async fn obx_060_concurrency_is_bounded(fx: &dyn Fixture) {
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
