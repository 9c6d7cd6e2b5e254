//! Many databases under one budget, and what is wrong with one of them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{BreakerState, DatabaseEntry, FleetOptions, Owned, StoreState};
use mainstay_core::outbox::Message;
use mainstay_core::queue::{Context, DispatcherOptions};
use mainstay_core::runtime::MainstayBuilder;
use mainstay_tests::eventually;
use tokio::sync::{Semaphore, watch};

use crate::case::{Verdict, cases};
use crate::crew::{PATIENCE, Reporter, Reports};
use crate::fixture::{Affliction, Fixture, Lacking};
use crate::tenants::{Delivery, Tenants, quiet, reporting, until_status};
use crate::world::{TOPIC, interrupted};

cases! { $ fleet_trouble_cases:
    mst_007_a_dead_database_harms_no_other ["MST-007", "R24"],
    mst_007_a_silent_database_harms_no_other ["MST-007", "R24"],
    mst_007_a_wrong_schema_harms_no_other ["MST-007", "R24"],
    mst_007_a_database_that_vanishes_harms_no_other ["MST-007", "R24"],
    mst_007_a_slow_database_harms_no_other ["MST-007", "R24"],
    mst_007_a_full_database_harms_no_other ["MST-007", "R24"],
    mst_007_a_full_database_says_so_and_goes_on_when_there_is_room ["MST-007", "R24"],
    mst_007_a_database_may_be_dead_from_the_start ["MST-007", "R24"],
    mst_007_a_database_that_can_only_be_read_is_not_taken_for_well ["MST-007", "R24"],
    r24_a_database_that_falls_silent_at_work_gives_its_connections_back ["R24", "MST-007"],
    r24_a_database_that_recovers_is_worked_on_again ["R24", "MST-007"],
    r24_the_budget_of_connections_is_never_exceeded ["R24"],
    r24_a_busy_database_leaves_the_others_their_share ["R24"],
    r24_a_database_with_nothing_to_do_rests ["R24"],
    r24_an_enqueue_wakes_a_database_that_rests ["R24"],
    r24_calls_get_through_while_all_connections_are_at_work ["R24"],
    r24_handlers_of_all_databases_share_one_bound ["R24"],
    r24_only_databases_of_this_node_are_worked_on ["R24"],
    r24_a_stop_leaves_nothing_in_progress ["R24", "MST-002"],
    r24_a_dropped_call_leaves_the_fleet_whole ["R24"],
}

const IDS: [&str; 3] = ["a", "b", "c"];

/// Something becomes wrong with `b` while all three work. The others must go on handling what comes while it is held so.
async fn harms_no_other(fx: &dyn Fixture, affliction: Affliction) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &IDS).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    // Room for two at work, so that one which kept its connections would be in the way.
    let two = |options: &mut FleetOptions| options.connections = 8;
    let fleet = tenants.fleet().options(two).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for id in IDS {
        fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, "before")).await.unwrap();
        reports.next().await;
    }
    fx.afflict(tenants.get("b"), affliction).await?;
    // Whoever enqueues to it waits, or is told; in any case it is a task of its own.
    let sick = fleet.outbox("b").unwrap();
    let waiting = tokio::spawn(async move { sick.enqueue(Message::new(TOPIC, "sick")).await.map(drop) });
    for round in 0..20 {
        for id in ["a", "c"] {
            let message = Message::new(TOPIC, round.to_string());
            fleet.outbox(id).unwrap().enqueue(message).await.unwrap();
        }
        let mut handled = BTreeSet::new();
        while handled.len() < 2 {
            let (id, payload) = reports.next().await;
            if id != "b" {
                assert_eq!(payload, round.to_string());
                handled.insert(id);
            }
        }
    }
    for id in ["a", "c"] {
        let status = fleet.status().store(id).cloned().unwrap();
        assert_eq!((status.breaker, status.failures), (BreakerState::Closed, 0), "{status:?}");
    }
    waiting.abort();
    // The sick one keeps nobody from stopping either.
    running.stop().await;
    for id in ["a", "c"] {
        let stats = tenants.stats(id).await;
        assert_eq!((stats.done, stats.open()), (21, 0), "{id}");
    }
    Ok(())
}

pub(super) async fn mst_007_a_dead_database_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::Dead).await
}

pub(super) async fn mst_007_a_silent_database_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::Silent).await
}

pub(super) async fn mst_007_a_slow_database_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::Slow).await
}

pub(super) async fn mst_007_a_full_database_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::Full).await
}

async fn mst_007_a_full_database_says_so_and_goes_on_when_there_is_room(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "before")).await.unwrap();
    reports.next().await;
    fx.afflict(tenants.get("a"), Affliction::Full).await?;
    let error = fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "lost")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Full, true), "{error}");
    fx.heal(tenants.get("a")).await;
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "after")).await.unwrap();
    assert_eq!(reports.next().await.1, "after");
    running.stop().await;
    Ok(())
}

pub(super) async fn mst_007_a_wrong_schema_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::WrongSchema).await
}

pub(super) async fn mst_007_a_database_that_vanishes_harms_no_other(fx: &dyn Fixture) -> Result<(), Lacking> {
    harms_no_other(fx, Affliction::Vanished).await
}

pub(super) async fn mst_007_a_database_may_be_dead_from_the_start(fx: &dyn Fixture) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &IDS).await;
    fx.afflict(tenants.get("a"), Affliction::Dead).await?;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for id in ["b", "c"] {
        fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, id)).await.unwrap();
        assert_eq!(reports.next().await.0, id);
    }
    let sick = |status: &mainstay_core::fleet::StoreStatus| {
        status.breaker != BreakerState::Closed && status.failures > 1 && status.last_error.is_some()
    };
    until_status(&fleet, "a", "what is wrong can be seen", sick).await;
    running.stop().await;
    Ok(())
}

/// Looks only read, and what they say of such a database must not count for more than what claims say.
pub(super) async fn mst_007_a_database_that_can_only_be_read_is_not_taken_for_well(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a"]).await;
    tenants.outbox("a").enqueue(Message::new(TOPIC, "waits")).await.unwrap();
    fx.afflict(tenants.get("a"), Affliction::Full).await?;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    // Had a look between them closed the breaker, it would begin to count anew.
    until_status(&fleet, "a", "it has failed in a row", |status| status.failures >= 3).await;
    fx.heal(tenants.get("a")).await;
    assert_eq!(reports.next().await.1, "waits");
    let is_well = |status: &mainstay_core::fleet::StoreStatus| {
        status.breaker == BreakerState::Closed && status.failures == 0
    };
    until_status(&fleet, "a", "it is well", is_well).await;
    running.stop().await;
    Ok(())
}

pub(super) async fn r24_a_database_that_recovers_is_worked_on_again(fx: &dyn Fixture) -> Verdict {
    let tenants = Tenants::open(fx, &["a"]).await;
    // A database in memory can't come back from the dead.
    let affliction = if tenants.get("a").provider.capabilities().shared {
        Affliction::Dead
    } else {
        Affliction::WrongSchema
    };
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "before")).await.unwrap();
    reports.next().await;
    until_status(&fleet, "a", "it rests", |status| status.state == StoreState::Cold && status.in_hand == 0)
        .await;
    fx.afflict(tenants.get("a"), affliction).await.unwrap_or_else(|lacking| panic!("{lacking:?}"));
    let failed = |status: &mainstay_core::fleet::StoreStatus| status.breaker == BreakerState::Open;
    if affliction == Affliction::Dead {
        until_status(&fleet, "a", "it has failed", failed).await;
    } else {
        // That is looked at only before there is work.
        fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "before")).await.unwrap();
        until_status(&fleet, "a", "it has failed", failed).await;
        assert_eq!(fleet.status().store("a").unwrap().last_error_kind, Some(ErrorKind::Schema));
    }
    fx.heal(tenants.get("a")).await;
    until_status(&fleet, "a", "it is well", |status| status.breaker == BreakerState::Closed).await;
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "after")).await.unwrap();
    while reports.next().await.1 != "after" {}
    let status = fleet.status().store("a").cloned().unwrap();
    assert_eq!(status.failures, 0);
    assert!(status.last_error.is_some(), "what was wrong can still be read");
    running.stop().await;
    Verdict::Passed
}

/// Room for one database at work, and one connection for looks.
pub(super) fn tight(options: &mut FleetOptions) {
    options.connections = 4;
}

pub(super) async fn r24_the_budget_of_connections_is_never_exceeded(fx: &dyn Fixture) {
    let ids = ["a", "b", "c", "d", "e"];
    let tenants = Tenants::open(fx, &ids).await;
    for id in ids {
        for number in 0..10 {
            tenants.outbox(id).enqueue(Message::new(TOPIC, number.to_string())).await.unwrap();
        }
    }
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().options(tight).each(reporting(reporter)).build().unwrap();
    fleet.refresh().await.unwrap();
    let providers: Vec<_> =
        ids.iter().map(|id| Arc::clone(fleet.mainstay(*id).unwrap().provider())).collect();
    let running = fleet.start().await.unwrap();
    // What is really open, as the providers count it, all the time.
    let done = Arc::new(AtomicBool::new(false));
    let counting = {
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            let mut most = 0;
            while !done.load(Ordering::SeqCst) {
                // Twice, and the less of both: one may close and another open between two that are asked.
                let count = || providers.iter().map(|provider| provider.open_connections());
                let first: Vec<_> = count().collect();
                most = most.max(first.into_iter().zip(count()).map(|(first, then)| first.min(then)).sum());
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            most
        })
    };
    let mut handled = BTreeSet::new();
    while handled.len() < 50 {
        handled.insert(reports.next().await);
        let connections = fleet.status().connections;
        assert!(connections.used <= 4, "{connections:?}");
    }
    done.store(true, Ordering::SeqCst);
    let most: usize = counting.await.unwrap();
    assert!(most <= 4, "{most} connections were open at once");
    let connections = fleet.status().connections;
    assert_eq!((connections.budget, connections.peak <= 4), (4, true), "{connections:?}");
    running.stop().await;
    assert_eq!(fleet.status().connections.used, 0, "all are given back");
}

pub(super) async fn r24_a_busy_database_leaves_the_others_their_share(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["busy", "quiet"]).await;
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().options(tight).each(move |entry, builder| {
        let (id, reporter) = (entry.id.clone(), reporter.clone());
        let endless = move |context: Context| {
            let (id, reporter) = (id.clone(), reporter.clone());
            async move {
                // Nobody may be listening any more.
                let _ = reporter.send(id.clone());
                if id == "busy" {
                    context.outbox().enqueue(Message::new(TOPIC, "")).await.unwrap();
                }
            }
        };
        quiet(builder).outbox(|outbox| outbox.raw_handler(TOPIC, endless))
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    tenants.outbox("busy").enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "busy");
    for _ in 0..3 {
        tenants.outbox("quiet").enqueue(Message::new(TOPIC, "")).await.unwrap();
        while reports.next().await != "quiet" {}
        while reports.next().await != "busy" {}
    }
    running.stop().await;
}

pub(super) async fn r24_a_database_with_nothing_to_do_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &IDS).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    // Whoever watches a server keeps a connection to it.
    let unwatched = |options: &mut FleetOptions| options.watch = None;
    let fleet = tenants.fleet().options(unwatched).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    eventually(PATIENCE, "all rest without a connection", async || {
        let status = fleet.status();
        status.connections.used == 0 && status.stores.iter().all(|store| store.state == StoreState::Cold)
    })
    .await;
    // Somebody else enqueues; a look finds it.
    tenants.outbox("b").enqueue(Message::new(TOPIC, "found")).await.unwrap();
    assert_eq!(reports.next().await, ("b".to_owned(), "found".to_owned()));
    running.stop().await;
}

/// Looks so rarely that nothing is found by looking.
fn rare(options: &mut FleetOptions) {
    (options.poll_min, options.poll_max) = (Duration::from_secs(3_600), Duration::from_secs(3_600));
}

pub(super) async fn r24_an_enqueue_wakes_a_database_that_rests(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().options(rare).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for round in 0..3 {
        until_status(&fleet, "a", "it rests", |status| status.state == StoreState::Cold).await;
        fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, round.to_string())).await.unwrap();
        assert_eq!(reports.next().await.1, round.to_string());
    }
    running.stop().await;
}

/// Handlers that tell whose they are, end when they may, and are given all the time in the world. Those of `free` end at once.
pub(super) fn held(
    reporter: Reporter<String>,
    gate: &Arc<Semaphore>,
    free: Option<&'static str>,
) -> impl Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync + use<> {
    let gate = Arc::clone(gate);
    move |entry, builder| {
        let (id, reporter, gate) = (entry.id.clone(), reporter.clone(), Arc::clone(&gate));
        let held = move |_: Context| {
            let (id, reporter, gate) = (id.clone(), reporter.clone(), Arc::clone(&gate));
            async move {
                // Nobody may be listening any more.
                let _ = reporter.send(id.clone());
                if free != Some(id.as_str()) {
                    gate.acquire().await.unwrap().forget();
                }
            }
        };
        let patient = |options: &mut DispatcherOptions| options.grace = Duration::from_secs(3_600);
        quiet(builder).outbox(|outbox| outbox.options(patient).raw_handler(TOPIC, held))
    }
}

pub(super) async fn r24_a_database_that_falls_silent_at_work_gives_its_connections_back(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    if !tenants.get("a").provider.capabilities().own_clock {
        return Err(Lacking("own_clock: there is no server that could fall silent"));
    }
    let may_end = Arc::new(Semaphore::new(0));
    let (reporter, mut reports) = Reports::new();
    let impatient = |options: &mut FleetOptions| options.look_timeout = Duration::from_secs(1);
    let fleet = tenants.fleet().options(tight).options(impatient).each(held(reporter, &may_end, None));
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    tenants.outbox("a").enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "a");
    // Its handler goes on, and there is no end to its grace. Its connections are for others all the same.
    fx.afflict(tenants.get("a"), Affliction::Silent).await?;
    tenants.outbox("b").enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "b");
    fx.heal(tenants.get("a")).await;
    may_end.add_permits(100);
    until_status(&fleet, "a", "it is well", |status| {
        status.breaker == BreakerState::Closed && status.last_error.is_some()
    })
    .await;
    running.stop().await;
    assert_eq!(fleet.status().connections.used, 0);
    Ok(())
}

/// Keeps its connections however long others wait.
fn unhurried(options: &mut FleetOptions) {
    options.share = Duration::from_secs(3_600);
}

pub(super) async fn r24_calls_get_through_while_all_connections_are_at_work(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let may_end = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&may_end);
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().options(tight).options(unhurried).each(move |entry, builder| {
        let (id, reporter, gate) = (entry.id.clone(), reporter.clone(), Arc::clone(&gate));
        let held = move |_: Context| {
            let (id, reporter, gate) = (id.clone(), reporter.clone(), Arc::clone(&gate));
            async move {
                reporter.send(id).unwrap();
                gate.acquire().await.unwrap().forget();
            }
        };
        quiet(builder).outbox(|outbox| outbox.raw_handler(TOPIC, held))
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "a");
    // What it works with is taken until its handler ends. The other one waits for that, but its callers do not.
    let b = fleet.outbox("b").unwrap();
    b.enqueue(Message::new(TOPIC, "")).await.unwrap();
    until_status(&fleet, "b", "it waits", |status| status.state == StoreState::Waiting).await;
    b.enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(b.stats().await.unwrap().ready, 2);
    may_end.add_permits(3);
    assert_eq!(reports.next().await, "b");
    assert_eq!(reports.next().await, "b");
    running.stop().await;
}

pub(super) async fn r24_handlers_of_all_databases_share_one_bound(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &IDS).await;
    for id in IDS {
        for number in 0..10 {
            tenants.outbox(id).enqueue(Message::new(TOPIC, number.to_string())).await.unwrap();
        }
    }
    let (reporter, mut reports) = Reports::new();
    let at_once = Arc::new(AtomicUsize::new(0));
    let fleet = tenants.fleet().options(|options| options.handlers = 2).each(move |_, builder| {
        let (reporter, at_once) = (reporter.clone(), Arc::clone(&at_once));
        let counting = move |_: Context| {
            let (reporter, at_once) = (reporter.clone(), Arc::clone(&at_once));
            async move {
                let now = at_once.fetch_add(1, Ordering::SeqCst) + 1;
                tokio::task::yield_now().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                // Nobody may be listening any more.
                let _ = reporter.send(now);
            }
        };
        quiet(builder).outbox(|outbox| outbox.raw_handler(TOPIC, counting))
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    for _ in 0..30 {
        assert!(reports.next().await <= 2);
    }
    running.stop().await;
}

pub(super) async fn r24_only_databases_of_this_node_are_worked_on(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let (owned, changes) = watch::channel(Owned::by(|id| id == "a"));
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().owned(changes).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for id in ["b", "a"] {
        fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, "first")).await.unwrap();
    }
    assert_eq!(reports.next().await.0, "a");
    until_status(&fleet, "b", "it is another node's", |status| status.state == StoreState::Elsewhere).await;
    assert_eq!(tenants.stats("b").await.ready, 1, "but it can be routed to");
    owned.send_replace(Owned::by(|id| id == "b"));
    assert_eq!(reports.next().await, ("b".to_owned(), "first".to_owned()));
    until_status(&fleet, "a", "it is another node's now", |status| status.state == StoreState::Elsewhere)
        .await;
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "second")).await.unwrap();
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "second")).await.unwrap();
    assert_eq!(reports.next().await, ("b".to_owned(), "second".to_owned()));
    running.stop().await;
    assert_eq!(tenants.stats("a").await.ready, 1);
}

pub(super) async fn r24_a_stop_leaves_nothing_in_progress(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &IDS).await;
    for id in IDS {
        let messages = (0..60).map(|number| Message::new(TOPIC, number.to_string())).collect();
        tenants.outbox(id).enqueue_many(messages).await.unwrap();
    }
    let (reporter, mut reports) = Reports::<Delivery>::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    reports.next().await;
    running.stop().await;
    for id in IDS {
        let stats = tenants.stats(id).await;
        assert_eq!((stats.in_progress, stats.done + stats.ready), (0, 60), "{id}: {stats:?}");
    }
    assert_eq!(fleet.status().connections.used, 0);
}

pub(super) async fn r24_a_dropped_call_leaves_the_fleet_whole(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let fleet = tenants.fleet().routes_only().build().unwrap();
    let running = fleet.start().await.unwrap();
    let outbox = fleet.outbox("a").unwrap();
    for polls in 0..40 {
        interrupted(polls, outbox.enqueue(Message::new(TOPIC, polls.to_string()))).await;
    }
    outbox.enqueue(Message::new(TOPIC, "last")).await.unwrap();
    eventually(PATIENCE, "all connections are given back", async || fleet.status().connections.used == 0)
        .await;
    outbox.stats().await.unwrap();
    running.stop().await;
    // One in memory is gone with the fleet, so a test's own outlasts it.
    if outbox.store().capabilities().shared {
        assert_eq!(outbox.stats().await.unwrap_err().kind(), ErrorKind::Closed);
    }
}
