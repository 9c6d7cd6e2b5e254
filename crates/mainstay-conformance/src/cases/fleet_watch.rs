//! Work that another process adds to databases that rest: seen from outside, and found by looking where it is not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mainstay_core::fleet::{
    Connect, ConnectTerms, DatabaseEntry, Fleet, FleetBuilder, FleetOptions, Mark, Owned, RunningFleet,
    StoreState, Watch,
};
use mainstay_core::outbox::Message;
use mainstay_core::store::Provider;
use mainstay_core::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::{Affliction, Fixture, Lacking};
use crate::tenants::{Delivery, Directory, Tenants, quick, reporting, until_status};
use crate::world::TOPIC;

cases! { $ fleet_watch_cases:
    r24_work_of_another_process_wakes_a_database_that_rests ["R24"],
    r24_a_write_before_the_first_reading_is_not_missed ["R24"],
    r24_a_write_while_nobody_can_read_is_not_missed ["R24"],
    r24_work_is_found_where_nobody_watches ["R24"],
    r24_work_is_found_where_watching_fails ["R24"],
    r24_work_is_found_where_the_watch_sees_nothing ["R24"],
    r24_a_dead_database_keeps_no_other_from_being_watched ["R24", "MST-007"],
    r24_a_silent_database_keeps_no_other_from_being_watched ["R24", "MST-007"],
    r24_only_databases_of_this_node_are_watched ["R24"],
    r24_a_refresh_changes_what_is_watched ["R24"],
    r24_watching_stays_within_the_budget ["R24"],
    r24_a_strategy_hears_of_work_of_another_process ["R24"],
}

const HOUR: Duration = Duration::from_secs(3_600);

/// Nothing is found by looking.
fn drowsy(options: &mut FleetOptions) {
    (options.poll_min, options.poll_max, options.poll_max_watched) = (HOUR, HOUR, HOUR);
    (options.watch, options.ring_max) = (Some(Duration::from_millis(20)), Duration::from_millis(100));
}

/// A fleet that tells what it handles.
async fn started(builder: FleetBuilder) -> (Fleet, RunningFleet, Reports<Delivery>) {
    let (reporter, reports) = Reports::<Delivery>::new();
    let fleet = builder.each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    (fleet, running, reports)
}

async fn until_cold(fleet: &Fleet, id: &str) {
    until_status(fleet, id, "it rests", |status| status.state == StoreState::Cold && status.in_hand == 0)
        .await;
}

async fn until_watched(fleet: &Fleet, id: &str) {
    let watched = |status: &mainstay_core::fleet::StoreStatus| {
        status.watched && status.state == StoreState::Cold && status.in_hand == 0
    };
    until_status(fleet, id, "it rests and is watched", watched).await;
}

/// As another process does: past the fleet.
async fn add(tenants: &Tenants<'_>, id: &str, payload: &str) {
    tenants.outbox(id).enqueue(Message::new(TOPIC, payload)).await.unwrap();
}

/// Databases in memory have no outside, and not every server lets everybody see that one of its databases was written to.
fn seen_from_outside(tenants: &Tenants<'_>) -> Result<(), Lacking> {
    let tenant = &tenants.all[0];
    if !tenant.provider.capabilities().shared {
        return Err(Lacking("shared: no other process reaches a database in memory"));
    }
    match tenants.fixture.connector().watch(&tenant.entry) {
        Some(_) => Ok(()),
        None => Err(Lacking("watch: work that others add is found by looking")),
    }
}

pub(super) async fn r24_work_of_another_process_wakes_a_database_that_rests(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    seen_from_outside(&tenants)?;
    let (fleet, running, mut reports) = started(tenants.fleet().options(drowsy)).await;
    for round in 0..3 {
        for id in ["a", "b"] {
            until_watched(&fleet, id).await;
            let payload = format!("{id}{round}");
            add(&tenants, id, &payload).await;
            assert_eq!(reports.next().await, (id.to_owned(), payload));
        }
    }
    running.stop().await;
    Ok(())
}

/// Connects as it should, and watches as the test says.
struct Staged {
    connect: Arc<dyn Connect>,
    stage: Stage,
}

/// What the test says: a number that stands for all that was written, or why nothing can be read.
#[derive(Clone)]
struct Stage(Arc<Mutex<Result<u64, &'static str>>>);

impl Stage {
    fn new(reading: Result<u64, &'static str>) -> Self {
        Self(Arc::new(Mutex::new(reading)))
    }

    fn set(&self, reading: Result<u64, &'static str>) {
        *self.0.lock().unwrap() = reading;
    }
}

#[async_trait]
impl Connect for Staged {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        self.connect.connect(entry, terms).await
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        self.connect.server(entry)
    }

    fn watch(&self, _: &DatabaseEntry) -> Option<Box<dyn Watch>> {
        Some(Box::new(self.stage.clone()))
    }
}

#[async_trait]
impl Watch for Stage {
    fn place(&self) -> &str {
        "stage"
    }

    fn connects(&self) -> bool {
        true
    }

    async fn read(&mut self, entries: &[&DatabaseEntry]) -> Result<Vec<Option<Mark>>> {
        let reading = *self.0.lock().unwrap();
        let reading = reading.map_err(|text| Error::new(ErrorKind::Unavailable, "stage", text))?;
        Ok(entries.iter().map(|_| Some(Mark::new([reading, 0, 0, 0]))).collect())
    }

    async fn let_go(&mut self) {}
}

/// A fleet whose watch is as the test says.
fn staged(tenants: &Tenants<'_>, stage: &Stage) -> FleetBuilder {
    let connect = Staged { connect: tenants.fixture.connector(), stage: stage.clone() };
    Fleet::builder(tenants.list(), connect).options(quick).options(drowsy)
}

pub(super) async fn r24_a_write_before_the_first_reading_is_not_missed(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let stage = Stage::new(Err("not yet"));
    let (fleet, running, mut reports) = started(staged(&tenants, &stage)).await;
    until_cold(&fleet, "a").await;
    // After the last look, and before the first reading: nothing will ever differ from that one.
    add(&tenants, "a", "between").await;
    stage.set(Ok(1));
    assert_eq!(reports.next().await.1, "between");
    running.stop().await;
}

pub(super) async fn r24_a_write_while_nobody_can_read_is_not_missed(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let stage = Stage::new(Ok(1));
    let (fleet, running, mut reports) = started(staged(&tenants, &stage)).await;
    until_watched(&fleet, "a").await;
    stage.set(Err("away"));
    until_status(&fleet, "a", "nobody watches", |status| !status.watched).await;
    until_cold(&fleet, "a").await;
    add(&tenants, "a", "meanwhile").await;
    stage.set(Ok(2));
    assert_eq!(reports.next().await.1, "meanwhile");
    running.stop().await;
}

/// Connects as it should, and watches nothing.
struct Unwatched(Arc<dyn Connect>);

#[async_trait]
impl Connect for Unwatched {
    async fn connect(&self, entry: &DatabaseEntry, terms: ConnectTerms) -> Result<Arc<dyn Provider>> {
        self.0.connect(entry, terms).await
    }

    fn server(&self, entry: &DatabaseEntry) -> Option<String> {
        self.0.server(entry)
    }
}

/// Looks as often as ever, if nobody watches.
fn awake(options: &mut FleetOptions) {
    drowsy(options);
    (options.poll_min, options.poll_max) = (Duration::from_millis(10), Duration::from_millis(100));
}

async fn is_found(tenants: &Tenants<'_>, builder: FleetBuilder, watched: bool) {
    let (fleet, running, mut reports) = started(builder).await;
    for round in 0..3 {
        until_status(&fleet, "a", "it rests", |status| {
            status.state == StoreState::Cold && status.in_hand == 0 && status.watched == watched
        })
        .await;
        add(tenants, "a", &round.to_string()).await;
        assert_eq!(reports.next().await.1, round.to_string());
    }
    running.stop().await;
}

pub(super) async fn r24_work_is_found_where_nobody_watches(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let fleet = Fleet::builder(tenants.list(), Unwatched(fx.connector())).options(quick).options(awake);
    is_found(&tenants, fleet, false).await;
    is_found(&tenants, tenants.fleet().options(awake).options(|options| options.watch = None), false).await;
}

pub(super) async fn r24_work_is_found_where_watching_fails(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    is_found(&tenants, staged(&tenants, &Stage::new(Err("never"))).options(awake), false).await;
}

pub(super) async fn r24_work_is_found_where_the_watch_sees_nothing(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let blind = staged(&tenants, &Stage::new(Ok(1))).options(awake);
    is_found(&tenants, blind.options(|options| options.poll_max_watched = Duration::from_millis(500)), true)
        .await;
}

/// What is wrong with `b` keeps `a` from nothing, and when it is over, `b` is watched again.
async fn keeps_no_other(fx: &dyn Fixture, affliction: Affliction) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    seen_from_outside(&tenants)?;
    let (fleet, running, mut reports) = started(tenants.fleet().options(drowsy)).await;
    until_watched(&fleet, "a").await;
    until_watched(&fleet, "b").await;
    fx.afflict(tenants.get("b"), affliction).await?;
    for round in 0..3 {
        until_watched(&fleet, "a").await;
        add(&tenants, "a", &round.to_string()).await;
        assert_eq!(reports.next().await, ("a".to_owned(), round.to_string()));
    }
    fx.heal(tenants.get("b")).await;
    add(&tenants, "b", "again").await;
    assert_eq!(reports.next().await, ("b".to_owned(), "again".to_owned()));
    running.stop().await;
    Ok(())
}

pub(super) async fn r24_a_dead_database_keeps_no_other_from_being_watched(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    keeps_no_other(fx, Affliction::Dead).await
}

pub(super) async fn r24_a_silent_database_keeps_no_other_from_being_watched(
    fx: &dyn Fixture,
) -> Result<(), Lacking> {
    keeps_no_other(fx, Affliction::Silent).await
}

pub(super) async fn r24_only_databases_of_this_node_are_watched(fx: &dyn Fixture) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    seen_from_outside(&tenants)?;
    let (owned, changes) = watch::channel(Owned::by(|id| id == "a"));
    let (fleet, running, mut reports) = started(tenants.fleet().options(drowsy).owned(changes)).await;
    until_watched(&fleet, "a").await;
    assert!(!fleet.status().store("b").unwrap().watched);
    owned.send_replace(Owned::by(|id| id == "b"));
    until_watched(&fleet, "b").await;
    until_status(&fleet, "a", "it is another node's now", |status| {
        status.state == StoreState::Elsewhere && !status.watched
    })
    .await;
    add(&tenants, "a", "not here").await;
    add(&tenants, "b", "here").await;
    assert_eq!(reports.next().await, ("b".to_owned(), "here".to_owned()));
    running.stop().await;
    assert_eq!(tenants.stats("a").await.ready, 1);
    Ok(())
}

pub(super) async fn r24_a_refresh_changes_what_is_watched(fx: &dyn Fixture) -> Result<(), Lacking> {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    seen_from_outside(&tenants)?;
    let directory = Directory::new(vec![tenants.get("a").entry.clone()]);
    let (fleet, running, mut reports) =
        started(tenants.fleet_by(directory.discovery()).options(drowsy)).await;
    until_watched(&fleet, "a").await;
    directory.set(Ok(tenants.entries()));
    fleet.refresh().await.unwrap();
    until_watched(&fleet, "b").await;
    // The one that was there first goes, and whatever was watched through it.
    directory.set(Ok(vec![tenants.get("b").entry.clone()]));
    fleet.refresh().await.unwrap();
    for round in 0..2 {
        until_watched(&fleet, "b").await;
        add(&tenants, "b", &round.to_string()).await;
        assert_eq!(reports.next().await, ("b".to_owned(), round.to_string()));
    }
    directory.set(Ok(tenants.entries()));
    fleet.refresh().await.unwrap();
    until_watched(&fleet, "a").await;
    add(&tenants, "a", "back").await;
    assert_eq!(reports.next().await, ("a".to_owned(), "back".to_owned()));
    running.stop().await;
    Ok(())
}

pub(super) async fn r24_watching_stays_within_the_budget(fx: &dyn Fixture) -> Result<(), Lacking> {
    let ids = ["a", "b", "c"];
    let tenants = Tenants::open(fx, &ids).await;
    seen_from_outside(&tenants)?;
    // Room for one database at work, and one connection for looks; none to keep open for watching.
    let tight = |options: &mut FleetOptions| options.connections = 4;
    let (fleet, running, mut reports) = started(tenants.fleet().options(drowsy).options(tight)).await;
    for id in ids {
        until_watched(&fleet, id).await;
        add(&tenants, id, "found").await;
        assert_eq!(reports.next().await, (id.to_owned(), "found".to_owned()));
    }
    let connections = fleet.status().connections;
    assert!(connections.peak <= 4, "{connections:?}");
    running.stop().await;
    assert_eq!(fleet.status().connections.used, 0, "all are given back");
    Ok(())
}

pub(super) async fn r24_a_strategy_hears_of_work_of_another_process(fx: &dyn Fixture) -> Result<(), Lacking> {
    use mainstay_core::fleet::{RoundRobin, Selection};
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    seen_from_outside(&tenants)?;
    let builder = tenants.fleet().options(drowsy).selection(Selection::by(RoundRobin::new));
    let (fleet, running, mut reports) = started(builder).await;
    for id in ["a", "b"] {
        until_watched(&fleet, id).await;
        add(&tenants, id, "found").await;
        assert_eq!(reports.next().await, (id.to_owned(), "found".to_owned()));
    }
    running.stop().await;
    Ok(())
}
