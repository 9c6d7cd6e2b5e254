//! Many databases: each with a store of its own, found by its key, as discovery says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{DatabaseEntry, DatabaseList, FleetOptions, StoreState};
use mainstay_core::inbox::Incoming;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::Status;
use mainstay_core::store::SchemaStatus;
use mainstay_core::timer::NewTimer;
use mainstay_tests::eventually;
use tokio::sync::Semaphore;
use tracing::Level;
use uuid::Uuid;

use crate::case::cases;
use crate::crew::{PATIENCE, Reports};
use crate::fixture::{Affliction, Fixture};
use crate::probe::Logs;
use crate::tenants::{Directory, Tenants, quiet, reporting, until_status};
use crate::world::TOPIC;

cases! { $ fleet_cases:
    obx_066_each_database_has_a_store_of_its_own ["OBX-066", "IBX-085", "R24"],
    obx_070_a_store_is_known_by_one_identifier ["OBX-070", "IBX-089"],
    obx_071_the_store_is_logged_with_its_messages ["OBX-071", "IBX-090"],
    obx_072_the_router_finds_the_clients_of_a_key ["OBX-072", "IBX-091"],
    obx_073_an_unknown_key_is_an_error ["OBX-073", "IBX-092"],
    obx_074_a_key_is_a_text_or_a_uuid ["OBX-074"],
    obx_075_databases_are_discovered_anew ["OBX-075", "IBX-093"],
    obx_076_every_five_minutes_unless_told_otherwise ["OBX-076", "IBX-094"],
    obx_077_a_new_database_gets_a_store ["OBX-077", "IBX-095"],
    obx_078_a_database_that_is_gone_loses_its_store ["OBX-078", "IBX-096"],
    obx_079_a_database_that_did_not_change_is_left_alone ["OBX-079", "IBX-097"],
    obx_102_clients_are_made_once ["OBX-102", "IBX-124"],
    prim_api_002_a_list_is_checked ["PRIM-API-002"],
    prim_api_002_what_discovery_says_is_checked ["PRIM-API-002", "R24"],
    r24_a_refresh_before_the_start_begins_nothing ["R24"],
    r24_every_primitive_works_over_many_databases ["R24"],
    r24_what_is_registered_in_a_database_is_registered_once ["R24"],
    r24_a_deployment_that_fails_stops_no_other ["R24", "R28"],
}

pub(super) async fn obx_066_each_database_has_a_store_of_its_own(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["acme", "globex", "initech"]).await;
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    assert_eq!(fleet.ids(), ["acme", "globex", "initech"]);
    for id in fleet.ids() {
        fleet.outbox(&id).unwrap().enqueue(Message::new(TOPIC, format!("to {id}"))).await.unwrap();
        fleet
            .inbox(&id)
            .unwrap()
            .enqueue(Incoming::new("test", "1", Message::new(TOPIC, format!("from {id}"))))
            .await
            .unwrap();
    }
    let mut seen = BTreeSet::new();
    for _ in 0..6 {
        let (id, payload) = reports.next().await;
        assert!(payload.ends_with(&id), "{payload:?} was handled in {id}");
        seen.insert(payload);
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    running.stop().await;
    for id in ["acme", "globex", "initech"] {
        let stats = tenants.stats(id).await;
        assert_eq!((stats.done, stats.open(), stats.failed), (1, 0, 0), "{id}");
        let queue = tenants.inbox(id).stats().await.unwrap().queue;
        assert_eq!((queue.done, queue.open()), (1, 0), "{id}");
    }
}

pub(super) async fn obx_070_a_store_is_known_by_one_identifier(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let fleet = tenants.fleet().build().unwrap();
    let running = fleet.start().await.unwrap();
    let outbox = |id: &str| fleet.outbox(id).unwrap().store().identifier().to_owned();
    let inbox = |id: &str| fleet.inbox(id).unwrap().store().identifier().to_owned();
    let before = (outbox("a"), inbox("a"));
    assert_ne!(before.0, outbox("b"));
    assert_ne!(before.1, inbox("b"));
    until_status(&fleet, "a", "it rests", |status| status.state == StoreState::Cold).await;
    fleet.outbox("a").unwrap().stats().await.unwrap();
    fleet.refresh().await.unwrap();
    assert_eq!((outbox("a"), inbox("a")), before, "whatever happens to it");
    let ids: Vec<_> = fleet.status().stores.into_iter().map(|store| store.id).collect();
    assert_eq!(ids, ["a", "b"]);
    running.stop().await;
}

pub(super) async fn r24_a_refresh_before_the_start_begins_nothing(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    assert_eq!(fleet.refresh().await.unwrap().added, ["a", "b"]);
    assert_eq!(fleet.ids(), ["a", "b"]);
    tenants.outbox("a").enqueue(Message::new(TOPIC, "early")).await.unwrap();
    // Time enough for whoever had begun.
    for _ in 0..20 {
        assert_eq!(tenants.stats("a").await.ready, 1);
        assert_eq!(fleet.status().connections.peak, 0, "nobody has asked for a connection");
    }
    assert_eq!(fleet.refresh().await.unwrap().kept, ["a", "b"]);
    let running = fleet.start().await.unwrap();
    assert_eq!(reports.next().await.1, "early");
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "late")).await.unwrap();
    assert_eq!(reports.next().await.1, "late");
    running.stop().await;
}

pub(super) async fn obx_071_the_store_is_logged_with_its_messages(fx: &dyn Fixture) {
    let logs = Logs::capture();
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet().each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    for id in ["a", "b"] {
        fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
        fleet.inbox(id).unwrap().enqueue(Incoming::new("test", "1", Message::new(TOPIC, ""))).await.unwrap();
    }
    for _ in 0..4 {
        reports.next().await;
    }
    let stores: Vec<_> = ["a", "b"]
        .into_iter()
        .flat_map(|id| {
            let (outbox, inbox) = (fleet.outbox(id).unwrap(), fleet.inbox(id).unwrap());
            [outbox.store().identifier().to_owned(), inbox.queue().store().identifier().to_owned()]
        })
        .collect();
    running.stop().await;
    let handled = logs.find(Level::INFO, "handling");
    for store in stores {
        let told = handled.iter().filter(|line| line.to_string().contains(&store)).count();
        assert_eq!(told, 1, "{store} in {handled:?}");
    }
}

pub(super) async fn obx_072_the_router_finds_the_clients_of_a_key(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let fleet = tenants.fleet().routes_only().build().unwrap();
    let running = fleet.start().await.unwrap();
    for (number, id) in ["a", "b"].into_iter().enumerate() {
        for _ in 0..=number {
            fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
        }
        fleet.inbox(id).unwrap().enqueue(Incoming::new(id, "1", Message::new(TOPIC, ""))).await.unwrap();
        let timer = NewTimer::new(TOPIC, id, Duration::from_secs(3_600));
        fleet.timers(id).unwrap().schedule(timer).await.unwrap();
        let lease = fleet.leases(id).unwrap().acquire("one").await.unwrap();
        let lease = lease.lease().expect("each database has its own leases");
        lease.release().await.unwrap();
    }
    assert_eq!((tenants.stats("a").await.ready, tenants.stats("b").await.ready), (1, 2));
    for id in ["a", "b"] {
        assert!(tenants.inbox(id).get(id, "1").await.unwrap().is_some());
        assert!(tenants.inbox(id).get(if id == "a" { "b" } else { "a" }, "1").await.unwrap().is_none());
        assert!(fleet.jobs(id).unwrap().list(None, 10).await.unwrap().is_empty());
        assert_eq!(fleet.timers(id).unwrap().stats().await.unwrap().pending, 1);
    }
    running.stop().await;
}

pub(super) async fn obx_073_an_unknown_key_is_an_error(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let fleet = tenants.fleet().build().unwrap();
    assert_eq!(fleet.outbox("a").unwrap_err().kind(), ErrorKind::NotFound, "nobody has been asked yet");
    let running = fleet.start().await.unwrap();
    let errors = [
        fleet.outbox("A").unwrap_err(),
        fleet.inbox("nobody").unwrap_err(),
        fleet.timers("").unwrap_err(),
        fleet.jobs(Uuid::nil()).unwrap_err(),
        fleet.leases("a ").unwrap_err(),
    ];
    for error in errors {
        assert_eq!((error.kind(), error.field()), (ErrorKind::NotFound, Some("key")), "{error}");
    }
    let error = fleet.outbox("nobody").unwrap_err();
    assert!(error.message().contains("\"nobody\""), "{error}");
    running.stop().await;
}

pub(super) async fn obx_074_a_key_is_a_text_or_a_uuid(fx: &dyn Fixture) {
    let key = Uuid::from_u128(0xAB_CDEF);
    let tenants = Tenants::open(fx, &[&key.to_string()]).await;
    let fleet = tenants.fleet().routes_only().build().unwrap();
    let running = fleet.start().await.unwrap();
    fleet.outbox(key).unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    fleet.outbox(key.to_string()).unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    fleet.inbox(key).unwrap();
    assert_eq!(tenants.stats(&key.to_string()).await.ready, 2);
    let other = Uuid::from_u128(1);
    assert_eq!(fleet.outbox(other).unwrap_err().kind(), ErrorKind::NotFound);
    running.stop().await;
}

pub(super) async fn obx_075_databases_are_discovered_anew(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries()[..1].to_vec());
    let fleet = tenants.fleet_by(directory.discovery());
    let fleet = fleet.options(|options| options.refresh = Some(Duration::from_millis(20))).build().unwrap();
    let running = fleet.start().await.unwrap();
    assert_eq!(fleet.ids(), ["a"]);
    // An error in between changes nothing and is no reason to stop asking.
    directory.set(Err("the directory is down"));
    eventually(PATIENCE, "the error is seen", async || fleet.status().refresh_error.is_some()).await;
    assert_eq!(fleet.ids(), ["a"]);
    directory.set(Ok(tenants.entries()));
    eventually(PATIENCE, "the second is found", async || fleet.ids() == ["a", "b"]).await;
    assert_eq!(fleet.status().refresh_error, None);
    running.stop().await;
}

pub(super) async fn obx_076_every_five_minutes_unless_told_otherwise(_: &dyn Fixture) {
    assert_eq!(FleetOptions::default().refresh, Some(Duration::from_secs(300)));
}

pub(super) async fn obx_077_a_new_database_gets_a_store(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries()[..1].to_vec());
    let (reporter, mut reports) = Reports::new();
    let fleet = tenants.fleet_by(directory.discovery()).each(reporting(reporter)).build().unwrap();
    let running = fleet.start().await.unwrap();
    tenants.outbox("b").enqueue(Message::new(TOPIC, "waiting")).await.unwrap();
    directory.set(Ok(tenants.entries()));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!((refreshed.added, refreshed.kept), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert_eq!(reports.next().await, ("b".to_owned(), "waiting".to_owned()));
    let incoming = Incoming::new("test", "1", Message::new(TOPIC, "received"));
    fleet.inbox("b").unwrap().enqueue(incoming).await.unwrap();
    assert_eq!(reports.next().await, ("b".to_owned(), "received".to_owned()));
    running.stop().await;
}

pub(super) async fn obx_078_a_database_that_is_gone_loses_its_store(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries());
    let (reporter, mut reports) = Reports::new();
    let may_end = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&may_end);
    let fleet = tenants.fleet_by(directory.discovery()).each(move |entry, builder| {
        let (id, reporter, gate) = (entry.id.clone(), reporter.clone(), Arc::clone(&gate));
        quiet(builder).outbox(|outbox| {
            outbox.raw_handler(TOPIC, move |_| {
                let (id, reporter, gate) = (id.clone(), reporter.clone(), Arc::clone(&gate));
                async move {
                    reporter.send(id).unwrap();
                    gate.acquire().await.unwrap().forget();
                }
            })
        })
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    let outbox = fleet.outbox("b").unwrap();
    let id = outbox.enqueue(Message::new(TOPIC, "")).await.unwrap().work_item;
    assert_eq!(reports.next().await, "b");
    directory.set(Ok(tenants.entries()[..1].to_vec()));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(refreshed.removed, ["b"]);
    assert_eq!(fleet.ids(), ["a"]);
    assert_eq!(fleet.outbox("b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fleet.inbox("b").unwrap_err().kind(), ErrorKind::NotFound);
    // What it had in hand is finished.
    may_end.add_permits(1);
    eventually(PATIENCE, "the message is done", async || {
        tenants.outbox("b").get(id).await.unwrap().unwrap().status == Status::Done
    })
    .await;
    tenants.outbox("b").enqueue(Message::new(TOPIC, "late")).await.unwrap();
    may_end.add_permits(1);
    fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    assert_eq!(reports.next().await, "a", "the others go on");
    running.stop().await;
    assert_eq!(tenants.stats("b").await.ready, 1, "nobody works on what is gone");
}

pub(super) async fn obx_079_a_database_that_did_not_change_is_left_alone(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries());
    let fleet = tenants.fleet_by(directory.discovery()).build().unwrap();
    let running = fleet.start().await.unwrap();
    let stores = || (fleet.outbox("a").unwrap(), fleet.outbox("b").unwrap());
    let same = |one: &Outbox, other: &Outbox| Arc::ptr_eq(one.store(), other.store());
    let before = stores();
    let mut entries = tenants.entries();
    entries.reverse();
    directory.set(Ok(entries));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!(refreshed.kept.len(), 2, "{refreshed:?}");
    let after = stores();
    assert!(same(&before.0, &after.0) && same(&before.1, &after.1));
    // A changed one is connected to anew, the other is not.
    let mut entries = tenants.entries();
    entries[1] = entries[1].clone().option("region", "north");
    directory.set(Ok(entries));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!((refreshed.replaced, refreshed.kept), (vec!["b".to_owned()], vec!["a".to_owned()]));
    assert!(same(&before.0, &fleet.outbox("a").unwrap()));
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "")).await.unwrap();
    running.stop().await;
}

pub(super) async fn obx_102_clients_are_made_once(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let fleet = tenants.fleet().build().unwrap();
    let running = fleet.start().await.unwrap();
    let (one, other) = (fleet.outbox("a").unwrap(), fleet.outbox("a").unwrap());
    assert!(Arc::ptr_eq(one.store(), other.store()));
    let (one, other) = (fleet.inbox("a").unwrap(), fleet.inbox("a").unwrap());
    assert!(Arc::ptr_eq(one.store(), other.store()));
    let (one, other) = (fleet.jobs("a").unwrap(), fleet.jobs("a").unwrap());
    assert!(Arc::ptr_eq(one.store(), other.store()));
    running.stop().await;
}

pub(super) async fn prim_api_002_a_list_is_checked(_: &dyn Fixture) {
    let entry = |id: &str| DatabaseEntry::new(id, "postgres://app:secret@db/app");
    let long = "x".repeat(256);
    let wrong = [
        (vec![], "databases"),
        (vec![entry("a"), entry("b"), entry("a")], "id"),
        (vec![entry("")], "id"),
        (vec![entry(&long)], "id"),
        (vec![entry("a\0b")], "id"),
    ];
    for (list, field) in wrong {
        let error = DatabaseList::new(list).unwrap_err();
        assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some(field)), "{error}");
        assert!(!error.to_string().contains("secret"));
    }
    DatabaseList::new([entry("a"), entry("A"), entry(&long[1..])]).unwrap();
}

pub(super) async fn prim_api_002_what_discovery_says_is_checked(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let entry = tenants.entries().remove(0);
    let directory = Directory::new(vec![]);
    let error = tenants.fleet_by(directory.discovery()).build().unwrap().start().await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("databases")), "{error}");

    directory.set(Ok(vec![entry.clone()]));
    let fleet = tenants.fleet_by(directory.discovery()).build().unwrap();
    let running = fleet.start().await.unwrap();
    for wrong in [vec![entry.clone(), entry.clone()], vec![DatabaseEntry::new("", "x")], vec![]] {
        directory.set(Ok(wrong));
        assert_eq!(fleet.refresh().await.unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert_eq!(fleet.ids(), ["a"], "all is as it was");
        fleet.outbox("a").unwrap().stats().await.unwrap();
    }
    running.stop().await;

    let fleet = tenants.fleet_by(directory.discovery()).options(|options| options.allow_empty = true);
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    assert!(fleet.ids().is_empty(), "none is fine if that was said");
    directory.set(Ok(vec![entry]));
    fleet.refresh().await.unwrap();
    assert_eq!(fleet.ids(), ["a"]);
    directory.set(Ok(vec![]));
    assert_eq!(fleet.refresh().await.unwrap().removed, ["a"]);
    running.stop().await;
}

pub(super) async fn r24_every_primitive_works_over_many_databases(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let (reporter, mut reports) = Reports::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet().each(move |entry, builder| {
        set_up(entry, builder)
            .timers(|timers| timers.gauges_every(None))
            .job("nightly", "0 3 * * *", |job| job.topic(TOPIC).payload("run"))
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    let mut expected = BTreeSet::new();
    for id in ["a", "b"] {
        eventually(PATIENCE, "the job is registered", async || {
            fleet.jobs(id).unwrap().get("nightly").await.unwrap().is_some()
        })
        .await;
        until_status(&fleet, id, "it rests", |status| status.state == StoreState::Cold).await;
        fleet.timers(id).unwrap().schedule(NewTimer::new(TOPIC, "timer", Duration::ZERO)).await.unwrap();
        fleet.jobs(id).unwrap().trigger("nightly").await.unwrap();
        expected.extend([(id.to_owned(), "timer".to_owned()), (id.to_owned(), "run".to_owned())]);
    }
    let mut seen = BTreeSet::new();
    while seen.len() < 4 {
        seen.insert(reports.next().await);
    }
    assert_eq!(seen, expected);
    running.stop().await;
}

async fn r24_what_is_registered_in_a_database_is_registered_once(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let (reporter, mut reports) = Reports::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet().each(move |entry, builder| {
        set_up(entry, builder).job("nightly", "0 3 * * *", |job| job.topic(TOPIC).payload("run"))
    });
    let fleet = fleet.build().unwrap();
    let running = fleet.start().await.unwrap();
    let jobs = fleet.jobs("a").unwrap();
    let worked = async |reports: &mut Reports<_>, payload: &str| {
        fleet.outbox("a").unwrap().enqueue(Message::new(TOPIC, payload)).await.unwrap();
        assert_eq!(reports.next().await, ("a".to_owned(), payload.to_owned()));
        until_status(&fleet, "a", "it rests", |status| status.state == StoreState::Cold).await;
    };
    worked(&mut reports, "first").await;
    assert!(jobs.get("nightly").await.unwrap().is_some());
    // Somebody deletes it. That there is work once more does not bring it back.
    jobs.delete("nightly").await.unwrap();
    worked(&mut reports, "second").await;
    assert_eq!(jobs.get("nightly").await.unwrap(), None);
    // Tables that were deployed may be new.
    assert!(fleet.deploy(1).await.iter().all(|one| one.result.is_ok()));
    worked(&mut reports, "third").await;
    assert!(jobs.get("nightly").await.unwrap().is_some());
    running.stop().await;
}

pub(super) async fn r24_a_deployment_that_fails_stops_no_other(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b", "c"]).await;
    fx.afflict(tenants.get("b"), Affliction::WrongSchema)
        .await
        .unwrap_or_else(|lacking| panic!("{lacking:?}"));
    let fleet = tenants.fleet().build().unwrap();
    let running = fleet.start().await.unwrap();
    let deployed = fleet.deploy(2).await;
    let ids: Vec<_> = deployed.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c"]);
    for one in &deployed {
        match &one.result {
            Ok(status) => assert!(matches!(status, SchemaStatus::Current { .. }), "{status:?}"),
            Err(error) => assert_eq!((one.id.as_str(), error.kind()), ("b", ErrorKind::Schema), "{error}"),
        }
    }
    assert!(deployed[1].result.is_err());
    until_status(&fleet, "b", "it is left alone", |status| status.last_error_kind == Some(ErrorKind::Schema))
        .await;
    fx.heal(tenants.get("b")).await;
    assert!(fleet.deploy(0).await.iter().all(|one| one.result.is_ok()));
    until_status(&fleet, "b", "it is well again", |status| status.failures == 0).await;
    running.stop().await;
}
