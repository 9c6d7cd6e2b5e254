//! Timers that become messages: what a forward does, and the service that calls it.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::outbox::{Message, OnFailure, Retention};
use mainstay_core::queue::{ClaimRequest, Context, FailureReason, Status};
use mainstay_core::runtime::{Mainstay, RunningMainstay, TimersBuilder};
use mainstay_core::timer::{NewTimer, Timers};
use mainstay_core::{ErrorKind, MessageId, OwnerToken, WorkItemId};

use crate::case::cases;
use crate::crew::{Reporter, Reports, reporting};
use crate::fixture::Fixture;
use crate::probe::Meter;
use crate::world::{LEASE, TOPIC, World, handles, ids, interrupted, set};

cases! { $ timer_firing_cases:
    r17_a_due_timer_becomes_a_message_under_the_same_ids ["R17"],
    r17_a_forward_keeps_to_the_batch_and_to_what_is_due ["R17", "PRIM-SCHED-001", "PRIM-SCHED-002"],
    r17_many_forward_at_once_and_each_timer_fires_once ["R17"],
    mst_004_a_forward_dropped_midway_loses_and_doubles_nothing ["MST-004", "R17"],
    r17_a_message_that_is_there_already_is_not_doubled ["R17"],
    r17_a_timer_whose_id_another_message_has_fails_and_says_so ["R17"],
    r17_a_batch_of_large_timers_fires ["R17"],
    r17_ordering_keys_hold_for_messages_and_not_for_timers ["R17", "MST-040"],
    mst_042_an_expired_timer_does_not_fire ["MST-042", "R17"],
    r17_timers_fire_when_they_are_due ["R17"],
    r17_a_nearer_timer_wakes_the_service ["R17"],
    r17_several_services_fire_each_timer_once ["R17"],
    mst_002_a_service_that_stops_leaves_no_timer_in_progress ["MST-002", "R12"],
    mst_001_a_service_dropped_at_any_moment_loses_no_timer ["MST-001", "R17"],
    r29_timers_are_kept_for_thirty_days ["R29"],
    r26_the_gauges_of_timers_are_published ["R26"],
    prim_api_003_timers_set_up_wrongly_are_refused ["PRIM-API-003"],
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Starts the firing of timers, with a handler of their topic and without chores.
async fn fire(world: &World<'_>, reporter: Reporter<Context>) -> RunningMainstay {
    fire_with(world, reporter, |timers| timers).await
}

async fn fire_with(
    world: &World<'_>,
    reporter: Reporter<Context>,
    set_up: impl FnOnce(TimersBuilder) -> TimersBuilder,
) -> RunningMainstay {
    let builder = Mainstay::builder_over(world.provider.clone())
        .outbox(|outbox| {
            let quiet = outbox.retention(None).reap_every(None).gauges_every(None);
            // Often, so that a provider that is woken late does not make the suite slow.
            quiet.raw_handler(TOPIC, reporting(reporter)).options(|options| {
                options.poll_min = Duration::from_millis(10);
                options.poll_max = Duration::from_millis(200);
            })
        })
        .timers(|timers| set_up(timers.retention(None).reap_every(None).gauges_every(None)));
    builder.build().expect("build").start().await.expect("start")
}

async fn r17_a_due_timer_becomes_a_message_under_the_same_ids(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let expiry = world.now().await + 5 * HOUR;
    let timer = NewTimer::new("reminder", "payload 📦", HOUR)
        .correlation("request-1")
        .idempotency_key("key-1")
        .priority(3)
        .header("source", "test")
        .expires_at(expiry);
    let scheduled = world.timers.schedule(timer).await.unwrap();
    world.advance(2 * HOUR).await;
    let before = world.timer(scheduled.work_item).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [scheduled.work_item]);

    let message = world.row(scheduled.work_item).await;
    assert_eq!((message.id, message.message_id), (scheduled.work_item, scheduled.message));
    assert_eq!((message.topic.as_str(), message.payload.as_deref()), ("reminder", Some("payload 📦")));
    assert_eq!(message.correlation_id.as_deref(), Some("request-1"));
    assert_eq!((message.status, message.attempts, message.priority), (Status::Ready, 0, 3));
    assert_eq!(message.headers.get("source").map(String::as_str), Some("test"));
    assert_eq!(message.expires_at, before.record().expires_at);
    assert_eq!(message.due_at, Some(before.due_at()), "it says when it was due");
    assert!(message.next_attempt_at >= before.due_at());

    let timer = world.timer(scheduled.work_item).await;
    assert!(timer.has_fired() && timer.ended_at().is_some());
    assert_eq!(timer.due_at(), before.due_at());
    let claimed = world.claim_one(OwnerToken::new()).await;
    assert_eq!((claimed.id(), claimed.message_id), (scheduled.work_item, scheduled.message));
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [], "once");
}

async fn r17_a_forward_keeps_to_the_batch_and_to_what_is_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let later = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let all = world.schedule_some(10).await;
    let owner = OwnerToken::new();
    assert_eq!(world.forward(owner, 4).await, all[..4]);
    assert_eq!(world.forward(owner, 4).await, all[4..8]);
    assert_eq!(world.forward(owner, 4).await, all[8..]);
    assert_eq!(world.forward(owner, 4).await, []);
    assert!(world.timer(later).await.is_pending());
    let claimed = world.claim(OwnerToken::new(), 50).await;
    assert_eq!(claimed.iter().map(|item| item.id()).collect::<BTreeSet<_>>(), set(&all));
}

/// Forwards until nothing is left; returns what it had.
async fn forward_all(timers: Timers, batch: u32) -> Vec<WorkItemId> {
    let owner = OwnerToken::new();
    let mut had = Vec::new();
    loop {
        let some = timers.queue().store().forward(owner, batch).await.unwrap();
        if some.is_empty() {
            return had;
        }
        had.extend(some);
    }
}

async fn r17_many_forward_at_once_and_each_timer_fires_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = fx.second().await;
    // Some with an ordering key: their lanes meet in the outbox.
    let timer = |n: u32| {
        let timer = NewTimer::new(TOPIC, n.to_string(), Duration::ZERO);
        if n.is_multiple_of(3) { timer.ordering_key(format!("lane {}", n % 5)) } else { timer }
    };
    let scheduled = world.timers.schedule_many((0..600).map(timer).collect()).await.unwrap();
    let all: Vec<_> = scheduled.iter().map(|one| one.work_item).collect();
    let crew = (0..8_u32).map(|n| {
        let timers = if n.is_multiple_of(2) { world.timers.clone() } else { Timers::new(second.as_ref()) };
        tokio::spawn(forward_all(timers, 1 + n * 5))
    });
    let had: Vec<_> = join_all(crew).await.into_iter().flat_map(Result::unwrap).collect();
    // What one of them had locked when the last looked.
    let left = forward_all(world.timers.clone(), 100).await;
    assert_eq!(set(&[had, left].concat()), set(&all));
    assert_eq!(world.total().await, 600);
    let stats = world.timers.stats().await.unwrap();
    assert_eq!((stats.fired, stats.pending, stats.claimed), (600, 0, 0));
}

async fn mst_004_a_forward_dropped_midway_loses_and_doubles_nothing(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.schedule_some(60).await;
    for polls in 0..40 {
        interrupted(polls, world.timers.queue().store().forward(OwnerToken::new(), 2)).await;
        // What was dropped may still be on its way; but never is a timer claimed and not forwarded.
        assert_eq!(world.timers.stats().await.unwrap().claimed, 0, "after {polls} polls");
    }
    forward_all(world.timers.clone(), 7).await;
    world.until("all have fired", async |world| world.timers.stats().await.unwrap().fired == 60).await;
    assert_eq!(world.total().await, 60);
    assert_eq!(ids(&world.claim(OwnerToken::new(), 100).await), set(&all));
}

/// Takes two ids: one is in the outbox, one in its history.
async fn take_ids(world: &World<'_>, message: impl Fn(WorkItemId) -> Message) -> [WorkItemId; 2] {
    let (owner, [open, done]) = (OwnerToken::new(), [WorkItemId::new(), WorkItemId::new()]);
    world.enqueue(message(done)).await;
    let claimed = world.claim_one(owner).await;
    world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    world.enqueue(message(open)).await;
    [open, done]
}

async fn r17_a_message_that_is_there_already_is_not_doubled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    // Under both ids: it is the timer's own message.
    let same = |id: WorkItemId| MessageId::from_uuid(id.as_uuid());
    let [open, done] =
        take_ids(&world, |id| Message::new("other", "first").work_item_id(id).message_id(same(id))).await;
    let fresh = WorkItemId::new();
    for id in [open, done, fresh] {
        world.schedule(NewTimer::new(TOPIC, "second", Duration::ZERO).id(id).message_id(same(id))).await;
    }
    let forwarded = world.forward(OwnerToken::new(), 10).await;
    assert_eq!(set(&forwarded), set(&[open, done, fresh]), "their messages are there");
    assert_eq!(world.total().await, 3);
    assert_eq!(world.row(open).await.payload.as_deref(), Some("first"));
    assert_eq!(world.row(done).await.status, Status::Done);
    assert_eq!(world.row(fresh).await.payload.as_deref(), Some("second"));
    for id in [open, done, fresh] {
        assert!(world.timer(id).await.has_fired());
    }
}

async fn r17_a_timer_whose_id_another_message_has_fails_and_says_so(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let [open, done] = take_ids(&world, |id| Message::new("other", "first").work_item_id(id)).await;
    let fresh = WorkItemId::new();
    for id in [open, done, fresh] {
        world.schedule(NewTimer::new(TOPIC, "second", Duration::ZERO).id(id)).await;
    }
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [fresh], "the others are not held up");
    assert_eq!(world.total().await, 3);
    assert_eq!(world.row(open).await.payload.as_deref(), Some("first"));
    assert_eq!(world.row(done).await.payload.as_deref(), Some("first"));
    assert!(world.timer(fresh).await.has_fired());
    for id in [open, done] {
        let timer = world.timer(id).await;
        assert!(!timer.has_fired());
        assert_eq!(timer.reason(), Some(FailureReason::Handler));
        let error = timer.record().last_error.as_deref();
        assert_eq!(error, Some("the outbox already has another message under this id"));
        assert_eq!(timer.record().payload.as_deref(), Some("second"), "nothing is lost");
    }
    let stats = world.timers.stats().await.unwrap();
    assert_eq!((stats.fired, stats.pending, stats.claimed), (1, 0, 0));
    // Nor is an id given twice to timers.
    let waits = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let again = world.timers.schedule(NewTimer::new(TOPIC, "", HOUR).id(waits)).await.unwrap_err();
    assert_eq!((again.kind(), again.field()), (ErrorKind::AlreadyExists, Some("work_item_id")));
}

async fn r17_a_batch_of_large_timers_fires(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let large = "large ".repeat(200_000);
    let mut all = Vec::new();
    for _ in 0..10 {
        all.push(world.schedule(NewTimer::new(TOPIC, large.as_str(), Duration::ZERO)).await);
        all.push(world.schedule(NewTimer::new(TOPIC, "small", Duration::ZERO)).await);
    }
    assert_eq!(world.forward(OwnerToken::new(), 100).await, all);
    for (place, id) in all.iter().enumerate() {
        let payload = world.row(*id).await.payload.unwrap();
        assert!(payload == if place % 2 == 0 { large.as_str() } else { "small" }, "number {place}");
    }
}

async fn r17_ordering_keys_hold_for_messages_and_not_for_timers(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let timer = |payload: &str, due: Duration| {
        NewTimer::new(TOPIC, payload, due).ordering_key("order-7").on_failure(OnFailure::Hold)
    };
    // Scheduled first, due last: the other must not wait for it.
    let last = world.schedule(timer("last", 10 * HOUR)).await;
    let second = world.schedule(timer("second", 2 * HOUR)).await;
    let first = world.schedule(timer("first", HOUR)).await;
    world.advance(3 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [first, second], "in the order they were due");
    assert!(world.timer(last).await.is_pending());
    // As messages they go one at a time, and the failure of one holds the rest.
    let owner = OwnerToken::new();
    let claimed = world.claim_one(owner).await;
    assert_eq!((claimed.id(), claimed.ordering_key.as_deref()), (first, Some("order-7")));
    assert!(claimed.headers.is_empty(), "{:?}", claimed.headers.keys());
    world.advance(10 * HOUR).await;
    assert_eq!(
        world.forward(OwnerToken::new(), 10).await,
        [last],
        "a timer fires beside a message that runs"
    );
    let claimed = world.claim_one(owner).await;
    assert_eq!(claimed.id(), first, "its lease had lapsed, and the others wait for it");
    world.outbox.fail(owner, &[claimed.handle], None).await.unwrap();
    world.assert_nothing_due().await;
    assert!(world.outbox.release_key("order-7").await.unwrap());
    for id in [second, last] {
        let claimed = world.claim_one(owner).await;
        assert_eq!(claimed.id(), id);
        world.outbox.ack(owner, &[claimed.handle]).await.unwrap();
    }
}

async fn mst_042_an_expired_timer_does_not_fire(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let expiry = world.now().await + 2 * HOUR;
    let in_vain = world.schedule(NewTimer::new(TOPIC, "", 3 * HOUR).expires_at(expiry)).await;
    let in_time = world.schedule(NewTimer::new(TOPIC, "", HOUR).expires_at(expiry)).await;
    world.advance(HOUR + HOUR / 2).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [in_time]);
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, []);
    assert_eq!(world.timer(in_vain).await.reason(), Some(FailureReason::Expired));
    // Nor is the message handled that nobody has begun with in time.
    let batch = world.claim_batch(&ClaimRequest::new(OwnerToken::new())).await;
    assert!(batch.items.is_empty());
    assert_eq!(world.row(in_time).await.reason, Some(FailureReason::Expired));
}

async fn r17_timers_fire_when_they_are_due(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let overdue = world.schedule_some(3).await;
    let running = fire(&world, reporter).await;
    let had =
        BTreeSet::from([reports.next().await.id(), reports.next().await.id(), reports.next().await.id()]);
    assert_eq!(had, set(&overdue));
    let soon = [300, 100, 200].map(|n| NewTimer::new(TOPIC, "", Duration::from_millis(n)));
    let scheduled = world.timers.schedule_many(soon.into()).await.unwrap();
    let mut waiting = set(&scheduled.iter().map(|one| one.work_item).collect::<Vec<_>>());
    while !waiting.is_empty() {
        let message = reports.next().await;
        assert!(waiting.remove(&message.id()), "it fired twice");
        let timer = world.timer(message.id()).await;
        assert_eq!(message.message_id(), timer.message_id());
        assert!(world.row(message.id()).await.created_at >= timer.due_at(), "{timer:?} fired too early");
    }
    running.stop().await.unwrap();
    assert_eq!(reports.rest().len(), 0);
}

async fn r17_a_nearer_timer_wakes_the_service(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let second = Timers::new(fx.second().await.as_ref());
    let (reporter, mut reports) = Reports::new();
    let never = Duration::from_secs(24 * 3_600);
    let running = fire_with(&world, reporter, |timers| {
        // Where new work is heard of, nothing else may be needed: no tick.
        if fx.hears_of_enqueues() {
            timers.options(|options| (options.poll_min, options.poll_max) = (never, never))
        } else {
            timers.options(|options| options.poll_max = Duration::from_millis(300))
        }
    })
    .await;
    let far = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    for round in 0..4 {
        // From here, and from another instance.
        let timers = if round % 2 == 0 { &world.timers } else { &second };
        let soon = Duration::from_millis(round * 20);
        let near = timers.schedule(NewTimer::new(TOPIC, "", soon)).await.unwrap().work_item;
        assert_eq!(reports.next().await.id(), near);
    }
    // So does one that is moved nearer, by somebody else.
    assert!(second.reschedule(far, Duration::from_millis(50)).await.unwrap());
    assert_eq!(reports.next().await.id(), far);
    running.stop().await.unwrap();
}

async fn r17_several_services_fire_each_timer_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (reporter, mut reports) = Reports::new();
    let second = World::over(fx, fx.second().await, Default::default());
    let running = [fire(&world, reporter.clone()).await, fire(&second, reporter.clone()).await];
    let mut all = BTreeSet::new();
    for round in 0..5 {
        let soon = |n: u64| NewTimer::new(TOPIC, "", Duration::from_millis(round * 10 + n % 7));
        let scheduled = world.timers.schedule_many((0..40).map(soon).collect()).await.unwrap();
        all.extend(scheduled.iter().map(|one| one.work_item));
    }
    let mut had = Vec::new();
    while had.len() < 200 {
        had.push(reports.next().await.id());
    }
    assert_eq!(set(&had), all);
    for running in running {
        running.stop().await.unwrap();
    }
    assert_eq!(reports.rest().len(), 0);
    assert_eq!(world.total().await, 200);
}

async fn mst_002_a_service_that_stops_leaves_no_timer_in_progress(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let many = (0..500).map(|_| NewTimer::new(TOPIC, "", Duration::ZERO)).collect();
    world.timers.schedule_many(many).await.unwrap();
    let (reporter, mut reports) = Reports::new();
    let running = fire_with(&world, reporter, |timers| timers.options(|options| options.batch = 5)).await;
    reports.next().await;
    running.stop().await.unwrap();
    let (timers, messages) = (world.timers.stats().await.unwrap(), world.outbox.stats().await.unwrap());
    assert_eq!((timers.claimed, messages.in_progress), (0, 0));
    assert_eq!(timers.pending + timers.fired, 500);
    assert_eq!(timers.fired, messages.open() + messages.done, "each that has fired is a message");
}

async fn mst_001_a_service_dropped_at_any_moment_loses_no_timer(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let all = world.schedule_some(60).await;
    for round in 0..6 {
        let (reporter, mut reports) = Reports::new();
        let running = fire_with(&world, reporter, |timers| timers.options(|options| options.batch = 2)).await;
        for _ in 0..round {
            reports.next().await;
        }
        // As a crash would: nothing is settled, nothing is said.
        drop(running);
        world.advance(LEASE * 2).await;
    }
    let (reporter, _reports) = Reports::new();
    let running = fire(&world, reporter).await;
    world
        .until("all are done", async |world| {
            // What a dropped worker was claiming may have been taken only after the last move.
            world.advance(LEASE * 2).await;
            world.outbox.stats().await.unwrap().done == 60
        })
        .await;
    running.stop().await.unwrap();
    assert_eq!(world.total().await, 60);
    for id in all {
        assert!(world.timer(id).await.has_fired());
    }
}

async fn r29_timers_are_kept_for_thirty_days(fx: &dyn Fixture) {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let world = World::open(fx).await;
    let waiting = world.schedule(NewTimer::new(TOPIC, "", 100 * DAY)).await;
    let fired = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO).idempotency_key("k")).await;
    let owner = OwnerToken::new();
    assert_eq!(world.forward(owner, 10).await, [fired]);
    let claims = handles(&world.claim(owner, 10).await);
    world.outbox.ack(owner, &claims).await.unwrap();
    let cancelled = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    world.timers.cancel(cancelled).await.unwrap();
    world.advance(29 * DAY).await;
    assert_eq!(world.timers.purge(&Retention::default()).await.unwrap(), 0);
    world.advance(2 * DAY).await;
    // The service does it by itself.
    let (reporter, _reports) = Reports::new();
    let retention = Retention::default().interval(Duration::from_millis(5));
    let running = fire_with(&world, reporter, |timers| timers.retention(Some(retention))).await;
    world.until("it is gone", async |world| world.timers.get(fired).await.unwrap().is_none()).await;
    running.stop().await.unwrap();
    assert!(world.timer(waiting).await.is_pending() && world.timer(cancelled).await.is_cancelled());
    assert_eq!(world.row(fired).await.status, Status::Done, "the message has a retention of its own");
    // Its key went with it.
    assert!(world.timers.schedule(NewTimer::new(TOPIC, "", HOUR).idempotency_key("k")).await.unwrap().added);
}

async fn r26_the_gauges_of_timers_are_published(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let meter = Meter::new();
    let guard = meter.install();
    world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let cancelled = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    world.timers.cancel(cancelled).await.unwrap();
    let held = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    world.timers.reschedule(held, 2 * HOUR).await.unwrap();
    world.forward(OwnerToken::new(), 10).await;
    let counted = meter.read();
    assert_eq!(counted.get(&format!("mainstay_timers_scheduled_total topic={TOPIC}")), Some(&3));
    assert_eq!(counted.get("mainstay_timers_changed_total action=cancel"), Some(&1));
    assert_eq!(counted.get("mainstay_timers_changed_total action=reschedule"), Some(&1));
    // One is overdue, though nobody fires it: a service would do so at once.
    let overdue = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    mainstay_core::telemetry::timer_gauges("store", &world.timers.stats().await.unwrap());
    let gauged = meter.read();
    assert_eq!((gauged.get("timers_pending"), gauged.get("timers_overdue")), (Some(&3), Some(&1)));
    let (reporter, mut reports) = Reports::new();
    let often = Some(Duration::from_millis(5));
    let running = fire_with(&world, reporter, |timers| timers.gauges_every(often)).await;
    assert_eq!(reports.next().await.id(), overdue);
    let mut fired = 0;
    world
        .until("two are pending and none is overdue", async |_| {
            let read = meter.read();
            fired += read.get("mainstay_timers_fired_total").copied().unwrap_or_default();
            (read.get("timers_pending"), read.get("timers_overdue")) == (Some(&2), Some(&0))
        })
        .await;
    assert_eq!(fired, 1);
    running.stop().await.unwrap();
    drop(guard);
}

async fn prim_api_003_timers_set_up_wrongly_are_refused(fx: &dyn Fixture) {
    let provider = fx.provider().await;
    let build = |set_up: fn(TimersBuilder) -> TimersBuilder| {
        let error = Mainstay::builder_over(provider.clone()).timers(set_up).build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        error.field().unwrap()
    };
    assert_eq!(build(|timers| timers.options(|options| options.batch = 0)), "batch");
    assert_eq!(build(|timers| timers.options(|options| options.poll_min = Duration::ZERO)), "poll_min");
    assert_eq!(build(|timers| timers.options(|options| options.poll_max = Duration::MAX)), "poll_max");
    assert_eq!(build(|timers| timers.reap_every(Some(Duration::ZERO))), "timers' reap interval");
    assert_eq!(build(|timers| timers.gauges_every(Some(Duration::ZERO))), "timers' gauge interval");
    assert_eq!(build(|timers| timers.retention(Some(Retention::default().batch(0)))), "batch");
}
