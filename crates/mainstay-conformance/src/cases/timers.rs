//! Scheduling, looking at, changing and cancelling timers.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_core::outbox::{Message, MessageFilter, Outbox, Page};
use mainstay_core::queue::{ClaimRequest, FailureReason, Status};
use mainstay_core::timer::NewTimer;
use mainstay_core::{ErrorKind, MessageId, OwnerToken, WorkItemId};

use crate::case::{Verdict, cases};
use crate::fixture::{End, Fixture};
use crate::world::{LEASE, TOPIC, World, set};

cases! { $ timers_cases:
    r17_a_timer_keeps_all_it_was_scheduled_with ["R17", "R5"],
    r17_many_timers_are_scheduled_all_or_none ["R17"],
    r17_an_idempotency_key_schedules_once ["R17", "R5"],
    r17_what_breaks_a_rule_is_refused_before_anything_is_written ["R17"],
    r17_a_cancelled_timer_never_fires ["R17"],
    r17_a_cancel_is_true_once ["R17"],
    r17_a_timer_is_rescheduled_while_it_waits ["R17"],
    r17_a_timer_that_no_longer_waits_is_not_rescheduled ["R17"],
    r17_timers_are_listed_by_what_is_asked ["R17"],
    r17_a_timer_in_the_caller_s_transaction_shares_its_fate ["R17", "OBX-003"],
    r17_a_timer_is_scheduled_through_the_public_function ["R17"],
    prim_sched_010_the_next_event_is_the_nearest ["PRIM-SCHED-010"],
}

const HOUR: Duration = Duration::from_secs(3_600);

/// A moment as the databases keep it.
fn micros(moment: Timestamp) -> i64 {
    moment.as_microsecond()
}

async fn r17_a_timer_keeps_all_it_was_scheduled_with(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let due = world.now().await + HOUR;
    let (id, message) = (WorkItemId::new(), MessageId::new());
    let timer = NewTimer::new("reminder", "payload 📦", due)
        .id(id)
        .message_id(message)
        .correlation("request-1")
        .idempotency_key("key-1")
        .ordering_key("order-1")
        .priority(-3)
        .expires_at(due + HOUR)
        .header("source", "test");
    let scheduled = world.timers.schedule(timer).await.unwrap();
    assert_eq!((scheduled.work_item, scheduled.message, scheduled.added), (id, message, true));
    let timer = world.timer(id).await;
    assert_eq!((timer.topic(), timer.payload()), ("reminder", Some("payload 📦")));
    assert_eq!(micros(timer.due_at()), micros(due));
    assert_eq!((timer.status(), timer.is_pending()), (Status::Ready, true));
    assert_eq!((timer.correlation_id(), timer.idempotency_key()), (Some("request-1"), Some("key-1")));
    assert_eq!(timer.ordering_key(), Some("order-1"));
    let record = timer.record();
    assert_eq!(record.expires_at.map(micros), Some(micros(due + HOUR)));
    assert_eq!((record.priority, record.attempts), (-3, 0));
    assert_eq!(record.headers.iter().collect::<Vec<_>>(), [(&"source".to_owned(), &"test".to_owned())]);
    // It is no message yet.
    assert_eq!(world.total().await, 0);
    // Relative times are counted from the database's now; those in the past mean at once.
    let soon = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let soon = world.timer(soon).await;
    assert_eq!(micros(soon.due_at()) - micros(soon.created_at()), 3_600_000_000);
    let past = world.schedule(NewTimer::new(TOPIC, "", due - 3 * HOUR)).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [past]);
}

async fn r17_many_timers_are_scheduled_all_or_none(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let many =
        (0..1_000).map(|n| NewTimer::new(TOPIC, n.to_string(), HOUR + Duration::from_secs(n))).collect();
    let scheduled = world.timers.schedule_many(many).await.unwrap();
    assert_eq!(set(&scheduled.iter().map(|one| one.work_item).collect::<Vec<_>>()).len(), 1_000);
    assert_eq!(world.timer(scheduled[417].work_item).await.payload(), Some("417"), "results are in order");
    let taken = NewTimer::new(TOPIC, "", HOUR).id(scheduled[0].work_item);
    let some = vec![NewTimer::new(TOPIC, "", HOUR), taken];
    world.timers.schedule_many(some).await.expect_err("the id is taken");
    assert_eq!(world.timers.stats().await.unwrap().pending, 1_000);
    assert_eq!(world.timers.schedule_many(Vec::new()).await.unwrap(), []);
}

async fn r17_an_idempotency_key_schedules_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let timer = || NewTimer::new(TOPIC, "", Duration::ZERO).idempotency_key("once");
    let first = world.timers.schedule(timer()).await.unwrap();
    let again = world.timers.schedule(timer()).await.unwrap();
    assert_eq!((again.work_item, again.message, again.added), (first.work_item, first.message, false));
    // Nor after it has fired: that is when it would fire twice.
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [first.work_item]);
    assert!(!world.timers.schedule(timer()).await.unwrap().added);
    assert_eq!(world.forward(OwnerToken::new(), 10).await, []);
    assert_eq!(world.total().await, 1);
    // The keys of timers and of messages are apart.
    assert!(world.outbox.enqueue(Message::new(TOPIC, "").idempotency_key("once")).await.unwrap().added);
}

async fn r17_what_breaks_a_rule_is_refused_before_anything_is_written(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fine = || NewTimer::new(TOPIC, "", HOUR);
    for (timer, field) in [
        (NewTimer::new("", "", HOUR), "topic"),
        (NewTimer::new("t".repeat(256), "", HOUR), "topic"),
        (NewTimer::new(TOPIC, "", Duration::MAX), "due"),
        (fine().correlation("c".repeat(256)), "correlation_id"),
        (fine().idempotency_key(""), "idempotency_key"),
        (fine().ordering_key(""), "ordering_key"),
        (fine().priority(10), "priority"),
    ] {
        let error = world.timers.schedule_many(vec![fine(), timer]).await.expect_err(field);
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)));
    }
    let error = world.timers.reschedule(WorkItemId::new(), Duration::MAX).await.unwrap_err();
    assert_eq!((error.operation(), error.field()), ("timers.reschedule", Some("due")));
    assert_eq!(world.timers.stats().await.unwrap().pending, 0);
}

async fn r17_a_cancelled_timer_never_fires(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let early = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let late = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    let kept = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    // One long before it is due, one when it is due already.
    assert_eq!(world.timers.cancel_many(&[early, late]).await.unwrap().len(), 2);
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [kept]);
    assert!(world.timers.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items.is_empty());
    for id in [early, late] {
        let timer = world.timer(id).await;
        assert!(timer.is_cancelled() && !timer.has_fired());
        assert_eq!((timer.status(), timer.reason()), (Status::Failed, Some(FailureReason::Cancelled)));
        assert!(world.outbox.get(id).await.unwrap().is_none(), "it became a message");
    }
}

async fn r17_a_cancel_is_true_once(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let id = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    let answers = futures_util::future::join_all((0..8).map(|_| world.timers.cancel(id))).await;
    let yes = answers.into_iter().filter(|answer| *answer.as_ref().unwrap()).count();
    assert_eq!(yes, 1, "one of them has cancelled it");
    assert!(!world.timers.cancel(id).await.unwrap());
    assert!(!world.timers.cancel(WorkItemId::new()).await.unwrap(), "there is no such timer");
    let fired = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.forward(OwnerToken::new(), 10).await;
    assert!(!world.timers.cancel(fired).await.unwrap(), "it has fired");
    let claimed = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.timers.claim(&ClaimRequest::new(OwnerToken::new()).lease(LEASE)).await.unwrap();
    assert!(!world.timers.cancel(claimed).await.unwrap(), "somebody has begun with it");
}

async fn r17_a_timer_is_rescheduled_while_it_waits(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let owner = OwnerToken::new();
    let id = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    // Later.
    let due = world.now().await + 3 * HOUR;
    assert!(world.timers.reschedule(id, due).await.unwrap());
    assert_eq!(micros(world.timer(id).await.due_at()), micros(due));
    world.advance(2 * HOUR).await;
    assert_eq!(world.forward(owner, 10).await, []);
    // Sooner, counted from now; then already past, which means now.
    assert!(world.timers.reschedule(id, Duration::from_secs(600)).await.unwrap());
    assert_eq!(world.forward(owner, 10).await, []);
    assert!(world.timers.reschedule(id, Timestamp::UNIX_EPOCH).await.unwrap());
    assert_eq!(world.forward(owner, 10).await, [id]);
    // Beside others that were due before and are gone: what is put in front of them is found.
    for round in 0..5 {
        let later = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
        world.schedule_some(20).await;
        assert_eq!(world.forward(owner, 100).await.len(), 20);
        assert!(world.timers.reschedule(later, Duration::ZERO).await.unwrap());
        assert_eq!(world.forward(owner, 100).await, [later], "round {round}");
    }
}

async fn r17_a_timer_that_no_longer_waits_is_not_rescheduled(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let fired = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.forward(OwnerToken::new(), 10).await;
    let claimed = world.schedule(NewTimer::new(TOPIC, "", Duration::ZERO)).await;
    world.timers.claim(&ClaimRequest::new(OwnerToken::new()).lease(LEASE)).await.unwrap();
    let cancelled = world.schedule(NewTimer::new(TOPIC, "", HOUR)).await;
    world.timers.cancel(cancelled).await.unwrap();
    for id in [fired, claimed, cancelled, WorkItemId::new()] {
        assert!(!world.timers.reschedule(id, HOUR).await.unwrap());
    }
    assert_eq!(world.timer(claimed).await.status(), Status::InProgress);
    world.advance(2 * HOUR).await;
    // Only the claim that has lapsed is left.
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [claimed]);
}

async fn r17_timers_are_listed_by_what_is_asked(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let a = world.schedule(NewTimer::new("a", "", HOUR).correlation("c")).await;
    let b = world.schedule(NewTimer::new("b", "", Duration::ZERO)).await;
    let c = world.schedule(NewTimer::new("b", "", HOUR)).await;
    world.forward(OwnerToken::new(), 10).await;
    world.timers.cancel(c).await.unwrap();
    let list = async |filter: MessageFilter| {
        let found = world.timers.list(&filter, Page::default()).await.unwrap();
        found.iter().map(|timer| timer.id()).collect::<Vec<_>>()
    };
    assert_eq!(list(MessageFilter::all()).await, [c, b, a]);
    assert_eq!(list(MessageFilter::all().topic("b")).await, [c, b]);
    assert_eq!(list(MessageFilter::all().status(Status::Ready)).await, [a]);
    assert_eq!(list(MessageFilter::all().status(Status::Done)).await, [b]);
    assert_eq!(list(MessageFilter::all().reason(FailureReason::Cancelled)).await, [c]);
    assert_eq!(list(MessageFilter::all().correlation_id("c")).await, [a]);
    let page = Page { limit: 1, before: Some(c) };
    assert_eq!(world.timers.list(&MessageFilter::all(), page).await.unwrap()[0].id(), b);
    let stats = world.timers.stats().await.unwrap();
    assert_eq!((stats.pending, stats.overdue, stats.fired, stats.failed), (1, 0, 1, 1));
}

async fn r17_a_timer_in_the_caller_s_transaction_shares_its_fate(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let timer = || NewTimer::new(TOPIC, "", Duration::ZERO).ordering_key("lane");
    let gone = fx.schedule(&world.timers, "rolled back", timer(), End::Rollback).await.unwrap();
    assert!(world.timers.get(gone.work_item).await.unwrap().is_none());
    assert_eq!(world.forward(OwnerToken::new(), 10).await, []);
    let kept = fx.schedule(&world.timers, "committed", timer(), End::Commit).await.unwrap();
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [kept.work_item]);
    assert_eq!(world.row(kept.work_item).await.ordering_key.as_deref(), Some("lane"));
    assert_eq!(fx.notes().await, ["committed"]);
}

async fn r17_a_timer_is_scheduled_through_the_public_function(fx: &dyn Fixture) -> Verdict {
    let world = World::open(fx).await;
    if !world.provider.capabilities().functions {
        return Verdict::NotApplicable("functions");
    }
    let names = mainstay_core::store::Names::default();
    let call = async |function: &str, arguments: &[Option<&str>]| fx.call(&names, function, arguments).await;
    let arguments = [Some("t"), Some("{}"), None, Some("3600"), Some("request"), Some("key"), Some("lane")];
    let id: WorkItemId = call("timers_schedule", &arguments).await.unwrap()[0].parse().unwrap();
    let again: WorkItemId = call("timers_schedule", &arguments).await.unwrap()[0].parse().unwrap();
    assert_eq!(id, again, "the key was used before");
    let timer = world.timer(id).await;
    assert_eq!((timer.correlation_id(), timer.ordering_key()), (Some("request"), Some("lane")));
    let text = id.to_string();
    let changed = call("timers_reschedule", &[Some(&text), None, Some("0")]).await.unwrap();
    assert_eq!(changed, ["t"]);
    assert_eq!(world.forward(OwnerToken::new(), 10).await, [id]);
    assert_eq!(world.row(id).await.ordering_key.as_deref(), Some("lane"));
    assert_eq!(call("timers_reschedule", &[Some(&text), None, Some("0")]).await.unwrap(), ["f"]);
    for (function, arguments, says) in [
        ("timers_schedule", vec![Some("t"), Some("")], "either due_at or due_in_seconds"),
        ("timers_schedule", vec![Some("t"), Some(""), Some("2030-01-01"), Some("1")], "and not both"),
        ("timers_schedule", vec![Some("t"), Some(""), Some("infinity")], "due_at must be a finite time"),
        ("timers_reschedule", vec![Some(text.as_str())], "either due_at or due_in_seconds"),
        ("timers_reschedule", vec![Some(text.as_str()), Some("-infinity")], "due_at must be a finite time"),
        ("timers_reschedule", vec![Some(text.as_str()), None, Some("-1")], "due_in_seconds must be 0 to"),
    ] {
        if !fx.can_say(function, &arguments) {
            continue;
        }
        let error = call(function, &arguments).await.expect_err(says);
        assert!(error.contains(says), "{function}: {error}");
    }
    Verdict::Passed
}

async fn prim_sched_010_the_next_event_is_the_nearest(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let next = async || world.timers.next_event_time().await.unwrap().map(micros);
    assert_eq!(next().await, None, "nothing is scheduled");
    let now = world.now().await;
    let far = world.schedule(NewTimer::new(TOPIC, "", now + 5 * HOUR)).await;
    assert_eq!(next().await, Some(micros(now + 5 * HOUR)));
    let near = world.schedule(NewTimer::new(TOPIC, "", now + 2 * HOUR).priority(-9)).await;
    world.schedule(NewTimer::new(TOPIC, "", now + 3 * HOUR).priority(9)).await;
    assert_eq!(next().await, Some(micros(now + 2 * HOUR)), "whatever the priority");
    // Job runs count too, messages do not.
    let runs = Outbox::new(world.provider.queue(mainstay_core::store::Queue::JobRuns));
    let run = runs.enqueue(Message::new(TOPIC, "").due_at(now + HOUR)).await.unwrap().work_item;
    world.enqueue(Message::new(TOPIC, "").due_at(now + HOUR / 2)).await;
    assert_eq!(next().await, Some(micros(now + HOUR)));
    runs.cancel(&[run]).await.unwrap();
    world.timers.cancel(near).await.unwrap();
    assert_eq!(next().await, Some(micros(now + 3 * HOUR)));
    world.timers.reschedule(far, now + HOUR / 4).await.unwrap();
    assert_eq!(next().await, Some(micros(now + HOUR / 4)));
    // What is overdue is told with the time it was due at.
    world.advance(HOUR).await;
    assert_eq!(next().await, Some(micros(now + HOUR / 4 - HOUR)));
}
