//! The inbox's own background work: handlers by topic, chores on a timer.

use std::time::Duration;

use mainstay_core::inbox::{EntryState, InboxRetention, Incoming};
use mainstay_core::outbox::{Message, MessageFilter, Page};
use mainstay_core::queue::{Context, HandlerError};
use mainstay_core::runtime::Mainstay;
use mainstay_core::{ErrorKind, OwnerToken};

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::Fixture;
use crate::probe::Meter;
use crate::world::{LEASE, TOPIC, World};

cases! { $ inbox_service_cases:
    ibx_073_received_messages_go_to_the_inboxes_handlers ["IBX-073", "PRIM-API-001"],
    ibx_076_a_handler_learns_where_its_message_comes_from ["IBX-076"],
    ibx_075_a_handler_that_gives_up_leaves_the_message_dead ["IBX-075", "IBX-083"],
    r15_each_message_is_handled_once_however_often_it_comes ["R15", "IBX-014"],
    mst_031_a_handler_of_received_messages_enqueues_in_the_outbox ["MST-031", "MST-030"],
    ibx_072_an_inbox_has_chores_of_its_own ["IBX-072", "IBX-098", "R26", "R29"],
    prim_api_003_an_inbox_set_up_wrongly_is_refused ["PRIM-API-003"],
}

const SOURCE: &str = "shop";

async fn ibx_073_received_messages_go_to_the_inboxes_handlers(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world
        .work_inbox(|inbox| {
            inbox.handler(TOPIC, move |order: u32, context: Context| {
                let _ = reporter.send((order, context.topic().to_owned()));
                std::future::ready(())
            })
        })
        .await;
    world.inbox.enqueue(Incoming::new(SOURCE, "m", Message::json(TOPIC, &7_u32).unwrap())).await.unwrap();
    // The outbox's messages are not the inbox's.
    world.outbox.enqueue(Message::json(TOPIC, &8_u32).unwrap()).await.unwrap();
    assert_eq!(reports.next().await, (7, TOPIC.to_owned()));
    world
        .until("it is done", async |world: &World<'_>| {
            world.entry(SOURCE, "m").await.state == EntryState::Done
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(reports.rest(), []);
    assert_eq!(world.outbox.stats().await.unwrap().ready, 1);
}

async fn ibx_076_a_handler_learns_where_its_message_comes_from(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work_inbox(|inbox| inbox.raw_handler(TOPIC, crate::crew::reporting(reporter))).await;
    let message = Message::new(TOPIC, "payload").correlation("c").header("h", "v");
    world.inbox.enqueue(Incoming::new(SOURCE, "m-1", message)).await.unwrap();
    let context = reports.next().await;
    assert_eq!((context.source(), context.received_id()), (Some(SOURCE), Some("m-1")));
    assert_eq!((context.payload(), context.correlation_id(), context.attempt()), ("payload", Some("c"), 1));
    assert_eq!(context.headers()["h"], "v");
    running.stop().await.unwrap();
    // A message of the outbox has no source.
    let (reporter, mut reports) = Reports::new();
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, crate::crew::reporting(reporter))).await;
    world.outbox.enqueue(Message::new(TOPIC, "")).await.unwrap();
    let context = reports.next().await;
    assert_eq!((context.source(), context.received_id()), (None, None));
    running.stop().await.unwrap();
}

async fn ibx_075_a_handler_that_gives_up_leaves_the_message_dead(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let running = world
        .work_inbox(|inbox| {
            inbox
                .raw_handler("hopeless", async |_: Context| {
                    Err::<(), _>(HandlerError::fail("no such customer"))
                })
                .raw_handler_with("failing", limited(), async |_: Context| {
                    Err::<(), _>(HandlerError::retry("still down"))
                })
        })
        .await;
    for topic in ["hopeless", "failing"] {
        world.inbox.enqueue(Incoming::new(SOURCE, topic, Message::new(topic, ""))).await.unwrap();
    }
    for (id, error) in [("hopeless", "no such customer"), ("failing", "still down")] {
        world
            .until("it is dead", async |world: &World<'_>| {
                world.entry(SOURCE, id).await.state == EntryState::Dead
            })
            .await;
        let told = world.entry(SOURCE, id).await.last_error.unwrap();
        assert!(told.contains(error), "the last real error is kept: {told}");
    }
    running.stop().await.unwrap();
}

/// Two attempts in quick succession.
fn limited() -> mainstay_core::queue::TopicPolicy {
    let backoff = mainstay_core::backoff::Backoff::fixed(Duration::from_millis(5));
    mainstay_core::queue::TopicPolicy::default().attempts(2).backoff(backoff)
}

async fn r15_each_message_is_handled_once_however_often_it_comes(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work_inbox(|inbox| inbox.raw_handler(TOPIC, crate::crew::reporting(reporter))).await;
    for round in 0..5 {
        for number in 0..20 {
            let incoming = Incoming::new(SOURCE, number.to_string(), Message::new(TOPIC, number.to_string()));
            world.inbox.enqueue(incoming).await.unwrap();
        }
        if round == 2 {
            world
                .until("all are done", async |world: &World<'_>| {
                    world.inbox.stats().await.unwrap().ledger.done == 20
                })
                .await;
        }
    }
    world
        .until("nothing is left", async |world: &World<'_>| {
            world.inbox.stats().await.unwrap().queue.open() == 0
        })
        .await;
    running.stop().await.unwrap();
    let mut handled: Vec<_> = reports.rest().iter().map(|context| context.payload().to_owned()).collect();
    handled.sort();
    handled.dedup_by(|a, b| {
        assert_ne!(a, b, "handled twice");
        false
    });
    assert_eq!(handled.len(), 20);
}

async fn mst_031_a_handler_of_received_messages_enqueues_in_the_outbox(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let running = world.work_inbox(|inbox| inbox.raw_handler(TOPIC, stay(reporter))).await;
    world.inbox.enqueue(Incoming::new(SOURCE, "m", Message::new(TOPIC, ""))).await.unwrap();
    let (context, go): (Context, tokio::sync::oneshot::Sender<()>) = reports.next().await;
    fx.complete(&context, "an effect", Message::new("follow.up", "")).await.unwrap();
    let _ = go.send(());
    world
        .until("it is done", async |world: &World<'_>| {
            world.entry(SOURCE, "m").await.state == EntryState::Done
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(fx.notes().await, ["an effect"]);
    let sent = world.outbox.list(&MessageFilter::all(), Page::default()).await.unwrap();
    assert_eq!(sent.iter().map(|message| message.topic.as_str()).collect::<Vec<_>>(), ["follow.up"]);
}

type Held = (Context, tokio::sync::oneshot::Sender<()>);

/// A handler that hands its context out and ends when it is told.
fn stay(
    reporter: crate::crew::Reporter<Held>,
) -> impl Fn(Context) -> futures_util::future::BoxFuture<'static, ()> + Send + Sync + 'static {
    move |context| {
        let (go, told) = tokio::sync::oneshot::channel();
        let _ = reporter.send((context, go));
        Box::pin(async move { told.await.unwrap_or_default() })
    }
}

async fn ibx_072_an_inbox_has_chores_of_its_own(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let meter = Meter::new();
    let _counting = meter.install();
    world.inbox.mark_processed(SOURCE, "old").await.unwrap();
    world.inbox.enqueue(Incoming::new(SOURCE, "lapsed", Message::new(TOPIC, ""))).await.unwrap();
    let request = mainstay_core::queue::ClaimRequest::new(OwnerToken::new()).lease(LEASE);
    world.inbox.claim(&request).await.unwrap();
    world.advance(Duration::from_secs(40 * 24 * 3_600)).await;
    let often = Duration::from_millis(20);
    let mainstay = Mainstay::builder_over(world.provider.clone())
        .outbox(|outbox| outbox.retention(None).reap_every(None).gauges_every(None))
        .inbox(|inbox| {
            let retention = InboxRetention::default().interval(often);
            inbox.retention(Some(retention)).reap_every(Some(often)).gauges_every(Some(often))
        })
        .build()
        .unwrap();
    let running = mainstay.start().await.unwrap();
    world
        .until("the chores are done", async |world: &World<'_>| {
            let stats = world.inbox.stats().await.unwrap();
            stats.queue.ready == 1 && stats.ledger.done == 0
        })
        .await;
    let mut counted = meter.read();
    world
        .until("the gauges are published", async |_: &World<'_>| {
            counted.extend(meter.read());
            counted.get("inbox_pending_messages") == Some(&1)
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(counted["inbox_processing_messages"], 0);
    assert!(!counted.contains_key("outbox_pending_messages"), "the outbox's gauges are the outbox's");
}

async fn prim_api_003_an_inbox_set_up_wrongly_is_refused(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let build = |set_up: fn(mainstay_core::runtime::InboxBuilder) -> mainstay_core::runtime::InboxBuilder| {
        let error = Mainstay::builder_over(world.provider.clone()).inbox(set_up).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        error.field().unwrap()
    };
    assert_eq!(
        build(|inbox| inbox.retention(Some(InboxRetention::default().done(Some(Duration::from_secs(60)))))),
        "done"
    );
    assert_eq!(build(|inbox| inbox.reap_every(Some(Duration::ZERO))), "reap interval");
    assert_eq!(build(|inbox| inbox.concurrency(0)), "concurrency");
    let twice = build(|inbox| {
        let handler = async |_: Context| Ok::<_, HandlerError>(());
        inbox.raw_handler(TOPIC, handler).raw_handler(TOPIC, handler)
    });
    assert_eq!(twice, "topic");
}
