//! What the databases of a fleet leave to each other: connections, handlers, and the time of those who wait.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{FleetOptions, StoreState};
use mainstay_core::outbox::Message;
use tokio::sync::Semaphore;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::{Fixture, Lacking};
use crate::tenants::{Delivery, Directory, Tenants, reporting, until_status};
use crate::world::TOPIC;

use super::fleet_trouble::{held, tight};

cases! { $ fleet_shares_cases:
    r24_handlers_that_take_long_keep_no_connections ["R24", "MST-007"],
    r24_handlers_of_one_leave_the_others_theirs ["R24", "MST-007"],
    r24_calls_in_parallel_keep_no_database_from_work ["R24"],
    r24_a_set_up_that_panics_is_refused_by_itself ["R24", "MST-007"],
    r24_a_call_that_outlasts_a_turn_keeps_nobody_waiting_after_it ["R24"],
}

pub(super) async fn r24_handlers_that_take_long_keep_no_connections(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let may_end = Arc::new(Semaphore::new(0));
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().options(tight).each(held(reporter, &may_end, Some("b"))).build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "a");
    for _ in 0..2 {
        fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
        assert_eq!(reports.next().await, "b", "its handler goes on, and others have the connections");
    }
    assert_eq!(fleet.status().store("a").unwrap().in_hand, 1);
    // What it did is settled, once it is done.
    may_end.add_permits(1);
    until_status(&fleet, "a", "it is settled", |status| status.in_hand == 0).await;
    running.stop().await;
    let stats = tenants.stats("a").await;
    assert_eq!((stats.done, stats.open()), (1, 0));
    assert_eq!(fleet.status().connections.used, 0);
}

pub(super) async fn r24_handlers_of_one_leave_the_others_theirs(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let may_end = Arc::new(Semaphore::new(0));
    let (reporter, mut reports) = Reports::new();
    let few = |options: &mut FleetOptions| options.handlers = 4;
    let fleet = tenants.fleet().options(few).each(held(reporter, &may_end, Some("b"))).build().unwrap();
    let messages = (0..10).map(|number| Message::new(TOPIC, number.to_string())).collect();
    tenants.outbox("a").enqueue_many(messages).await.unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..3 {
        assert_eq!(reports.next().await, "a");
    }
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "b", "the fourth is for those that have none");
    may_end.add_permits(10);
    running.stop().await;
}

pub(super) async fn r24_calls_in_parallel_keep_no_database_from_work(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    until_status(&fleet, "a", "it rests", |status| status.state == StoreState::Cold).await;
    let enough = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let (outbox, enough) = (fleet.outbox("a").unwrap(), Arc::clone(&enough));
            tokio::spawn(async move {
                while !enough.load(Ordering::SeqCst) {
                    outbox.enqueue(Message::new(TOPIC, "")).await.unwrap();
                }
            })
        })
        .collect();
    for _ in 0..50 {
        reports.next().await;
    }
    enough.store(true, Ordering::SeqCst);
    for caller in callers {
        caller.await.unwrap();
    }
    running.stop().await;
}

pub(super) async fn r24_a_set_up_that_panics_is_refused_by_itself(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries());
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let (report, is_broken) = (reporting(reporter), Arc::new(AtomicBool::new(true)));
    let breaks = Arc::clone(&is_broken);
    let fleet = tenants.fleet_by(directory.discovery()).each(move |entry, builder| {
        assert!(entry.id != "b" || !breaks.load(Ordering::SeqCst), "an application's bug");
        report(entry, builder)
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await.0, "a");
    let refused = |fleet: &mainstay_core::fleet::Fleet| fleet.status().store("b").cloned().unwrap();
    let first = refused(&fleet);
    assert_eq!((first.state, first.last_error_kind), (StoreState::Refused, Some(ErrorKind::Internal)));
    fleet.refresh().await.unwrap();
    assert_eq!(refused(&fleet).since, first.since, "it has been so all the time");
    is_broken.store(false, Ordering::SeqCst);
    fleet.refresh().await.unwrap();
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await.0, "b");
    running.stop().await;
}

pub(super) async fn r24_a_call_that_outlasts_a_turn_keeps_nobody_waiting_after_it(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    if !tenants.get("a").provider.capabilities().own_clock {
        return Err(Lacking("own_clock: nothing can be added to a file while somebody writes to it"));
    }
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().options(tight).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..3 {
        fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
        assert_eq!(reports.next().await.0, "a");
        // It is at work, and a call has one of its connections for longer than that.
        let call = fleet.mainstay("a").unwrap().provider().outbox().begin().await.unwrap();
        for id in ["a", "b"] {
            tenants.outbox(id).enqueue(Message::new(TOPIC, "")).await.unwrap();
        }
        until_status(&fleet, "b", "it waits", |status| status.state != StoreState::Cold).await;
        drop(call);
        let both: BTreeSet<_> = [reports.next().await.0, reports.next().await.0].into();
        assert_eq!(both.len(), 2, "{both:?}");
    }
    running.stop().await;
    assert_eq!(fleet.status().connections.used, 0);
    Ok(())
}
