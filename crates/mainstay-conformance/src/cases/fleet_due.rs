//! What falls due in databases that rest: deadlines of joins, and slices of fan-outs.

use std::time::Duration;

use mainstay_core::WorkItemId;
use mainstay_core::fanout::{Fanout, FanoutDefinition, Slice};
use mainstay_core::fleet::{DatabaseEntry, Fleet, FleetBuilder, StoreState};
use mainstay_core::join::{Joins, NewJoin, Step};
use mainstay_core::outbox::Message;
use mainstay_core::queue::Context;
use mainstay_core::runtime::{FanoutWorkBuilder, MainstayBuilder};

use crate::case::cases;
use crate::crew::{Reporter, Reports};
use crate::fixture::Fixture;
use crate::tenants::{Delivery, Tenants, quiet, reporting, until_status};
use crate::world::TOPIC;

cases! { $ fleet_due_cases:
    r24_a_deadline_wakes_a_database_that_rests ["R24"],
    r24_a_join_goes_on_in_a_database_that_rests ["R24"],
    r24_a_slice_wakes_a_database_that_rests ["R24", "R23"],
    r24_a_run_asked_for_wakes_a_database_that_rests ["R24", "R23"],
    r24_a_run_asked_for_elsewhere_is_seen ["R24", "R23"],
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Looks at a database that rests only when something is due there, or was added here.
fn drowsy(fleet: FleetBuilder) -> FleetBuilder {
    fleet.options(|options| (options.poll_min, options.poll_max) = (HOUR, HOUR))
}

async fn until_it_rests(fleet: &Fleet) {
    until_status(fleet, "a", "it rests", |status| status.state == StoreState::Cold).await;
}

/// Reports messages, and keeps the deadlines of joins.
fn joining(
    reporter: Reporter<Delivery>,
) -> impl Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync {
    let reports = reporting(reporter);
    move |entry, builder| reports(entry, builder).joins(|joins| joins.retention(None).gauges_every(None))
}

pub(super) async fn r24_a_deadline_wakes_a_database_that_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let joins = Joins::new(tenants.get("a").provider.joins());
    let late =
        NewJoin::new(1).deadline_in(Duration::from_millis(1_500)).on_failed(Message::new(TOPIC, "late"));
    joins.start(late).await.unwrap();
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = drowsy(tenants.fleet()).each(joining(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    assert_eq!(reports.next().await.1, "late");
    // One that is started here, while it rests.
    until_it_rests(&fleet).await;
    let here = NewJoin::new(1).deadline_in(Duration::from_millis(700)).on_failed(Message::new(TOPIC, "here"));
    fleet.joins("a").unwrap().start(here).await.unwrap();
    assert_eq!(reports.next().await.1, "here");
    running.stop().await;
}

pub(super) async fn r24_a_join_goes_on_in_a_database_that_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = drowsy(tenants.fleet()).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    let joins = fleet.joins("a").unwrap();
    let (by_hand, cancelled) = (WorkItemId::new(), WorkItemId::new());
    let join = joins.start(NewJoin::new(2).on_failed(Message::new(TOPIC, "next"))).await.unwrap();
    joins.attach(join, &[by_hand, cancelled]).await.unwrap();
    joins.report(join, by_hand, Step::Completed).await.unwrap();
    until_it_rests(&fleet).await;
    joins.report(join, cancelled, Step::Failed).await.unwrap();
    assert_eq!(reports.next().await.1, "next");
    running.stop().await;
}

/// Reports the slices of a fan-out.
fn sliced(
    reporter: Reporter<String>,
    set_up: impl Fn(FanoutWorkBuilder) -> FanoutWorkBuilder + Send + Sync,
) -> impl Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync {
    move |_, builder| {
        let reporter = reporter.clone();
        let handler = move |slice: Slice, _: Context| {
            // Nobody may be listening any more.
            let _ = reporter.send(slice.shard_key.clone());
            std::future::ready(())
        };
        quiet(builder)
            .fanout("etl", |etl| etl.work_key("payments", |work| set_up(work.shards(["1"]).handler(handler))))
    }
}

pub(super) async fn r24_a_slice_wakes_a_database_that_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::new();
    let every = sliced(reporter, |work| work.every(Duration::from_secs(2)));
    let fleet = drowsy(tenants.fleet()).each(every).build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..3 {
        assert_eq!(reports.next().await, "1");
        until_it_rests(&fleet).await;
    }
    running.stop().await;
}

pub(super) async fn r24_a_run_asked_for_wakes_a_database_that_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::new();
    let fleet = drowsy(tenants.fleet()).each(sliced(reporter, |work| work.every(HOUR))).build().unwrap();
    let running = fleet.start().await.unwrap();
    assert_eq!(reports.next().await, "1", "one that nothing is known of is due");
    until_it_rests(&fleet).await;
    fleet.fanout("a").unwrap().run_now("etl", "payments").await.unwrap();
    assert_eq!(reports.next().await, "1");
    running.stop().await;
}

pub(super) async fn r24_a_run_asked_for_elsewhere_is_seen(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let elsewhere = Fanout::new(tenants.get("a").provider.as_ref());
    // Nobody here makes slices of this one, so it wakes nobody for long.
    elsewhere.register(FanoutDefinition::new("etl", "other").every(HOUR)).await.unwrap();
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().each(sliced(reporter, |work| work.every(HOUR))).build().unwrap();
    let running = fleet.start().await.unwrap();
    reports.next().await;
    until_it_rests(&fleet).await;
    elsewhere.run_now("etl", "payments").await.unwrap();
    assert_eq!(reports.next().await, "1");
    elsewhere.run_now("etl", "other").await.unwrap();
    until_it_rests(&fleet).await;
    running.stop().await;
}
