//! What goes wrong around one delivery harms that delivery at most: the worker lives on, and nothing else is lost.

use std::collections::BTreeSet;
use std::panic::panic_any;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_core::backoff::Backoff;
use mainstay_core::outbox::{Message, MessageFilter};
use mainstay_core::queue::{
    ClaimRequest, Context, DispatcherOptions, FailureReason, HandlerError, HandlerResult, Status, TopicPolicy,
};
use mainstay_core::runtime::OutboxBuilder;
use mainstay_core::store::Names;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use tokio::sync::{Barrier, Semaphore, oneshot};
use tracing::Level;

use crate::case::cases;
use crate::crew::{Reporter, Reports, reporting};
use crate::fixture::Fixture;
use crate::overheard::Overheard;
use crate::probe::{Logs, Meter};
use crate::world::{LEASE, TOPIC, World};

cases! { $ mishaps_cases:
    obx_056_code_of_the_application_that_panics_fails_one_attempt ["OBX-056"],
    obx_056_a_panicking_backoff_does_not_lift_the_limit ["OBX-056", "OBX-064"],
    obx_055_limits_of_this_worker_are_not_for_the_topics_of_others ["OBX-055", "R8", "R3"],
    obx_060_a_bounded_topic_starves_no_other ["OBX-060", "OBX-103"],
    mst_042_what_expires_before_a_handler_is_free_is_not_handled ["MST-042"],
    mst_030_a_completion_that_is_given_up_happened_as_a_whole_or_not_at_all ["MST-030", "MST-031"],
    mst_006_a_claim_found_lost_by_its_handler_is_stale_once ["MST-006", "R26"],
    r10_a_refused_outcome_loses_no_other ["R10", "OBX-056"],
    r10_an_outcome_that_keeps_failing_holds_up_no_other ["R10", "OBX-056"],
}

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    #[allow(clippy::panic, reason = "it is what this is for")]
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("dropped a bomb");
        }
    }
}

fn with_backoff(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> TopicPolicy {
    TopicPolicy::default().backoff(Backoff::custom(delay))
}

async fn broken(_: Context) -> HandlerResult {
    Err(HandlerError::retry("it broke"))
}

pub(super) async fn obx_056_code_of_the_application_that_panics_fails_one_attempt(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let topics =
        ["policy", "policy with a bomb", "handler with a bomb", "dropped at its end", "dropped at its limit"];
    let mut ids = Vec::new();
    for topic in topics {
        ids.push(world.enqueue(Message::new(topic, "")).await);
    }
    let (reporter, mut reports) = Reports::new();
    let logs = Logs::capture();
    let running = world
        .work(|outbox| {
            let limit = TopicPolicy::default().timeout(Duration::from_millis(10));
            outbox
                .raw_handler_with(topics[0], with_backoff(|_| panic!("no delay for you")), broken)
                .raw_handler_with(topics[1], with_backoff(|_| panic_any(Bomb)), broken)
                .raw_handler(topics[2], async |_: Context| -> HandlerResult { panic_any(Bomb) })
                .raw_handler(topics[3], async |_: Context| {
                    let _bomb = Bomb;
                    tokio::task::yield_now().await;
                })
                .raw_handler_with(topics[4], limit, async |_: Context| {
                    let _bomb = Bomb;
                    std::future::pending::<()>().await;
                })
                .raw_handler("fine", reporting(reporter))
        })
        .await;
    let attempted = async |world: &World<'_>| {
        world.rows(&ids).await.iter().all(|row| row.generation > 0 && row.status != Status::InProgress)
    };
    world.until("each has had its attempt", attempted).await;
    // The same worker goes on.
    let fine = world.enqueue(Message::new("fine", "")).await;
    assert_eq!(reports.next().await.id(), fine);
    running.stop().await.unwrap();
    for (topic, row) in topics.iter().zip(world.rows(&ids).await) {
        assert_eq!(row.status, Status::Ready, "{topic}");
        assert!(row.attempts >= 1, "{topic}");
        assert!(row.last_error.is_some_and(|error| error.contains("panicked")), "{topic}");
        let told = logs.find(Level::ERROR, "the handler failed");
        assert!(told.iter().any(|line| line.field("topic") == *topic), "{topic} in {told:?}");
    }
}

pub(super) async fn obx_056_a_panicking_backoff_does_not_lift_the_limit(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new(TOPIC, "")).await;
    let policy = with_backoff(|_| panic!("no delay for you")).attempts(2);
    // So long that the time that is made to pass below ends no lease.
    let lease = |options: &mut DispatcherOptions| options.lease = DAY;
    let running = world.work(|outbox| outbox.options(lease).raw_handler_with(TOPIC, policy, broken)).await;
    world
        .until("it is given up", async |world| {
            world.advance(Duration::from_secs(60)).await;
            world.row(id).await.status == Status::Failed
        })
        .await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.attempts, row.reason), (2, Some(FailureReason::DeliveryLimit)));
}

pub(super) async fn obx_055_limits_of_this_worker_are_not_for_the_topics_of_others(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.enqueue(Message::new("theirs", "")).await;
    for _ in 0..3 {
        let owner = OwnerToken::new();
        let claim = world.claim_one(owner).await.handle;
        world.outbox.abandon(owner, &[claim], None, Some("not yet".to_owned())).await.unwrap();
        world.advance(Duration::from_secs(3600)).await;
    }
    let before = world.row(id).await;
    assert_eq!((before.attempts, before.claims()), (3, 3));
    // By the limit of the worker, and by that of another topic, it would have had enough.
    let limit = |options: &mut DispatcherOptions| options.delivery_limit = 2;
    let one = TopicPolicy::default().attempts(1);
    let running =
        world.work(|outbox| outbox.options(limit).raw_handler_with("ours", one, async |_: Context| {})).await;
    world
        .until("the worker has met it", async |world| {
            let row = world.row(id).await;
            row.status == Status::Failed || (row.claims() > 3 && row.status == Status::Ready)
        })
        .await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason, row.attempts), (Status::Ready, None, 3));
    assert_eq!(row.last_error.as_deref(), Some("not yet"));
}

pub(super) async fn obx_060_a_bounded_topic_starves_no_other(fx: &dyn Fixture) {
    const SLOW: usize = 60;
    let overheard = Arc::new(Overheard::new(fx.provider().await));
    let world = World::over(fx, overheard.clone(), Names::default());
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(world.enqueue(Message::new("slow", "")).await);
    }
    world.enqueue(Message::new("fast", "")).await;
    let gate = Arc::new(Semaphore::new(0));
    let blocked = {
        let gate = Arc::clone(&gate);
        move |_: Context| {
            let gate = Arc::clone(&gate);
            async move { gate.acquire().await.unwrap().forget() }
        }
    };
    let (reporter, mut reports) = Reports::new();
    let one = TopicPolicy::default().concurrency(1);
    let running = world
        .work(|outbox| {
            let outbox = outbox.concurrency(2).raw_handler_with("slow", one, blocked);
            outbox.raw_handler("fast", reporting(reporter))
        })
        .await;
    // Nothing of the slow topic gets on meanwhile.
    reports.next().await;
    world
        .until("the surplus is given back", async |world| {
            let held = world.rows(&slow).await.iter().filter(|row| row.status == Status::InProgress).count();
            (1..=2).contains(&held)
        })
        .await;
    for row in world.rows(&slow).await {
        let counted = u32::from(row.status == Status::InProgress);
        assert_eq!(row.attempts, counted, "what no handler had is not counted");
    }
    world
        .until("the worker waits for the others alone", async |_: &World<'_>| {
            overheard.left_out().iter().any(|topics| topics == &["slow"])
        })
        .await;
    for _ in 0..5 {
        let id = world.enqueue(Message::new("fast", "")).await;
        assert_eq!(reports.next().await.id(), id);
    }
    gate.add_permits(SLOW);
    world.until_idle().await;
    running.stop().await.unwrap();
    for row in world.rows(&slow).await {
        assert_eq!((row.status, row.attempts), (Status::Done, 1));
    }
}

pub(super) async fn mst_042_what_expires_before_a_handler_is_free_is_not_handled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let gate = Arc::new(Semaphore::new(0));
    let (reporter, mut reports) = Reports::new();
    let handler = {
        let gate = Arc::clone(&gate);
        move |context: Context| {
            let (gate, reporter) = (Arc::clone(&gate), reporter.clone());
            async move {
                reporter.send(context.id()).unwrap();
                gate.acquire().await.unwrap().forget();
            }
        }
    };
    let running = world.work(|outbox| outbox.concurrency(1).raw_handler(TOPIC, handler)).await;
    let first = world.enqueue(Message::new(TOPIC, "")).await;
    assert_eq!(reports.next().await, first);
    let mut life = Duration::from_millis(200);
    let expired = loop {
        let id = world.enqueue(Message::new(TOPIC, "").expires_in(life)).await;
        let met = async |world: &World<'_>| world.row(id).await.status != Status::Ready;
        world.until("the worker has it, or it was too late", met).await;
        if world.row(id).await.status == Status::InProgress {
            break id;
        }
        life *= 2;
    };
    let expiry = world.row(expired).await.expires_at.unwrap();
    // The worker reckons from the database's clock, so a little later is later for it too.
    world.until("it has expired", async |world| world.now().await > expiry + Duration::from_millis(50)).await;
    assert_eq!(world.row(expired).await.status, Status::InProgress, "held, and not begun with");
    gate.add_permits(1);
    world.until_idle().await;
    running.stop().await.unwrap();
    assert_eq!(reports.rest(), []);
    assert_eq!(world.row(first).await.status, Status::Done);
    let row = world.row(expired).await;
    assert_eq!((row.status, row.reason), (Status::Failed, Some(FailureReason::Expired)));
}

type Delivery = (Context, oneshot::Sender<()>);

/// Hands each delivery to the case, and succeeds once the case says so. It fails when the case drops the answer.
fn handing_over(reporter: Reporter<Delivery>) -> impl Fn(Context) -> BoxFuture<'static, HandlerResult> {
    move |context| {
        let (answer, done) = oneshot::channel();
        reporter.send((context, answer)).unwrap();
        Box::pin(async { done.await.map_err(HandlerError::retry) })
    }
}

/// Has the next message completed by its handler, which gives up after so many polls. Returns the number of polls that
/// were had, and whether the completion came to its end.
async fn complete_within(
    world: &World<'_>,
    reports: &mut Reports<Delivery>,
    name: &str,
    polls: usize,
) -> (WorkItemId, usize, bool) {
    let id = world.enqueue(Message::new(TOPIC, name)).await;
    let (context, answer) = reports.next().await;
    assert_eq!(context.id(), id);
    let mut had = 0;
    let mut completion = world.fixture.complete(&context, name, Message::new("follow-up", name));
    // Polled only when it asks to be, so that each poll is a step of its own: no step is too short to be met.
    let ended = std::future::poll_fn(|task| {
        had += 1;
        match completion.as_mut().poll(task) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if had == polls => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
    drop(completion);
    let completed = ended.is_some_and(|result| result.is_ok());
    drop(answer);
    // Whoever gave up is delivered again, and then simply succeeds.
    let retried = std::cell::RefCell::new(reports);
    world
        .until("it is done", async |world| {
            for (_, answer) in retried.borrow_mut().rest() {
                answer.send(()).unwrap();
            }
            world.row(id).await.status == Status::Done
        })
        .await;
    (id, had, completed)
}

pub(super) async fn mst_030_a_completion_that_is_given_up_happened_as_a_whole_or_not_at_all(
    fx: &dyn Fixture,
) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let soon = TopicPolicy::default().backoff(Backoff::fixed(Duration::from_millis(1)));
    // The worker must give the message back by itself; no lease lapses in time to do it.
    let lease = |options: &mut DispatcherOptions| options.lease = DAY;
    let running = world
        .work(|outbox| outbox.options(lease).raw_handler_with(TOPIC, soon, handing_over(reporter)))
        .await;
    let (whole, polls, completed) = complete_within(&world, &mut reports, "whole", usize::MAX).await;
    assert!(completed);
    let mut all = vec![("whole".to_owned(), whole, true)];
    // After each poll, and a few more: a provider may need another number in another run.
    for at in 1..=polls + 2 {
        let name = format!("poll {at}");
        let (id, _, completed) = complete_within(&world, &mut reports, &name, at).await;
        all.push((name, id, completed));
    }
    running.stop().await.unwrap();
    let notes: BTreeSet<String> = fx.notes().await.into_iter().collect();
    let follow_ups = MessageFilter::all().topic("follow-up");
    let follow_ups = world.outbox.list(&follow_ups, Default::default()).await.unwrap();
    let follow_ups: BTreeSet<String> = follow_ups.into_iter().filter_map(|row| row.payload).collect();
    assert_eq!(notes, follow_ups, "its write and its message are there together");
    let mut given_up = 0;
    for (name, id, completed) in all {
        let row = world.row(id).await;
        let committed = notes.contains(&name);
        assert!(committed || !completed, "{name} was told that it had committed");
        let deliveries = if committed { 1 } else { 2 };
        assert_eq!((row.status, row.attempts), (Status::Done, deliveries), "{name}, committed: {committed}");
        given_up += u32::from(!committed);
    }
    assert!(given_up > 0, "none was given up in time");
}

pub(super) async fn mst_006_a_claim_found_lost_by_its_handler_is_stale_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let meter = Meter::new();
    let guard = meter.install();
    // It holds one message at a time and has no reason to renew, so it can't take the message anew or learn of the loss.
    let alone = |options: &mut DispatcherOptions| {
        (options.concurrency, options.prefetch, options.batch, options.lease) = (1, 0, 1, DAY);
    };
    for swallowed in [false, true] {
        let (reporter, mut reports) = Reports::new();
        let running =
            world.work(|outbox| outbox.options(alone).raw_handler(TOPIC, handing_over(reporter))).await;
        let id = world.enqueue(Message::new(TOPIC, "")).await;
        let (context, answer) = reports.next().await;
        world.advance(DAY * 2).await;
        let thief = OwnerToken::new();
        let request = ClaimRequest::new(thief).lease(DAY);
        let theirs = world.claim_batch(&request).await.handles();
        assert_eq!(theirs.len(), 1);
        let error = fx.complete(&context, "too late", Message::new("follow-up", "")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClaimLost);
        // Whether the handler passes the error on or not.
        if swallowed {
            answer.send(()).unwrap()
        } else {
            drop(answer)
        }
        running.stop().await.unwrap();
        assert_eq!(meter.read().get("mainstay_outbox_stale_settles_total"), Some(&1), "{swallowed}");
        assert_eq!(world.row(id).await.owner, Some(thief));
        assert_eq!(world.outbox.ack(thief, &theirs).await.unwrap().changed, [id]);
    }
    drop(guard);
}

pub(super) async fn r10_a_refused_outcome_loses_no_other(fx: &dyn Fixture) {
    const MANY: usize = 6;
    let overheard = Arc::new(Overheard::new(fx.provider().await));
    let world = World::over(fx, overheard.clone(), Names::default());
    let ids = world.enqueue_some(MANY).await;
    let bad = ids[2];
    overheard.refuse(Some((bad, ErrorKind::Internal)));
    // All wait for the last, so that they are settled together.
    let barrier = Arc::new(Barrier::new(MANY));
    let together = move |context: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            if context.attempt() == 1 {
                barrier.wait().await;
            }
        }
    };
    let running = world.work(|outbox| outbox.raw_handler(TOPIC, together)).await;
    world
        .until("all but one are done", async |world| {
            world.outbox.stats().await.unwrap().done == MANY as u64 - 1
        })
        .await;
    assert_eq!(world.row(bad).await.status, Status::InProgress);
    let settles = overheard.settles();
    assert!(settles.iter().any(|ids| ids.len() > 1 && ids.contains(&bad)), "refused as a batch: {settles:?}");
    assert!(settles.contains(&vec![bad]), "and by itself: {settles:?}");
    // Its lease lapses, and it is delivered again.
    overheard.refuse(None);
    // Once: a second time could end the lease of the delivery that is awaited.
    world.advance(LEASE * 2).await;
    world.until("the last is done", async |world| world.row(bad).await.status == Status::Done).await;
    running.stop().await.unwrap();
    for row in world.rows(&ids).await {
        assert_eq!(row.attempts, if row.id == bad { 2 } else { 1 }, "{:?}", row.id);
    }
}

pub(super) async fn r10_an_outcome_that_keeps_failing_holds_up_no_other(fx: &dyn Fixture) {
    const MANY: usize = 8;
    let overheard = Arc::new(Overheard::new(fx.provider().await));
    let world = World::over(fx, overheard.clone(), Names::default());
    let ids = world.enqueue_some(MANY).await;
    let bad = ids[5];
    overheard.refuse(Some((bad, ErrorKind::Unavailable)));
    // All wait for the last, so that they are settled together.
    let barrier = Arc::new(Barrier::new(MANY));
    let together = move |_: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
        }
    };
    let handlers = |outbox: OutboxBuilder| {
        outbox.raw_handler(TOPIC, together).raw_handler("later", async |_: Context| {})
    };
    let running = world.work(handlers).await;
    world
        .until("all but one are done", async |world| {
            world.outbox.stats().await.unwrap().done == MANY as u64 - 1
        })
        .await;
    // What ends later does not wait for it either.
    let later = world.enqueue(Message::new("later", "")).await;
    world.until("a later one is done", async |world| world.row(later).await.status == Status::Done).await;
    assert_eq!(world.row(bad).await.status, Status::InProgress);
    let settles = overheard.settles();
    let whole = settles.iter().filter(|settle| settle.len() > 1 && settle.contains(&bad)).map(Vec::len);
    let whole: Vec<_> = whole.collect();
    assert!(whole.len() > 1 && whole[0] == whole[1], "once more as a whole: {settles:?}");
    assert!(
        whole[1..].windows(2).all(|two| two[1] < two[0]),
        "and then in smaller and smaller parts: {settles:?}"
    );
    assert!(settles.contains(&vec![bad]), "down to one: {settles:?}");
    // It is settled when that works again, and was delivered once.
    overheard.refuse(None);
    world.until("the last is done", async |world| world.row(bad).await.status == Status::Done).await;
    running.stop().await.unwrap();
    for row in world.rows(&ids).await {
        assert_eq!(row.attempts, 1, "{:?}", row.id);
    }
}
