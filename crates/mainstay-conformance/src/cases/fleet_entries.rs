//! Entries of a fleet that change while it runs.

use std::sync::Arc;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{DatabaseEntry, StoreState};
use mainstay_core::health::{HealthOptions, HealthStatus, Probe};
use mainstay_core::outbox::Message;
use mainstay_core::runtime::MainstayBuilder;
use mainstay_core::store::SchemaStatus;
use tracing::Level;

use crate::case::cases;
use crate::crew::Reports;
use crate::fixture::Fixture;
use crate::probe::Logs;
use crate::tenants::{Directory, Tenants, reporting, until_status};
use crate::world::TOPIC;

cases! { $ fleet_entry_cases:
    obx_079_a_changed_entry_that_fails_leaves_its_database_running ["OBX-079", "IBX-097", "R24"],
    obx_079_an_entry_that_is_changed_back_is_fine_again ["OBX-079", "IBX-097"],
    obx_077_a_database_found_at_run_time_is_deployed ["OBX-077", "IBX-095", "R28"],
    r28_a_database_found_at_run_time_is_deployed_only_if_told ["R28", "OBX-077"],
}

/// An option that makes the set-up of a database fail.
const BROKEN: &str = "broken";

/// Fails to set up entries with that option.
fn breakable(entry: &DatabaseEntry, builder: MainstayBuilder) -> MainstayBuilder {
    match entry.options.contains_key(BROKEN) {
        true => builder.job("nightly", "not a cron expression", |job| job.topic(TOPIC)),
        false => builder,
    }
}

async fn obx_079_a_changed_entry_that_fails_leaves_its_database_running(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a", "b"]).await;
    let directory = Directory::new(tenants.entries());
    let (reporter, mut reports) = Reports::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet_by(directory.discovery());
    let fleet = fleet.each(move |entry, builder| breakable(entry, set_up(entry, builder))).build().unwrap();
    let running = fleet.start().await.unwrap();
    let before = fleet.outbox("b").unwrap();
    let entries = |broken: Option<&str>| {
        let mut entries = tenants.entries();
        if let Some(how) = broken {
            entries[1] = entries[1].clone().option(BROKEN, how);
        }
        entries
    };
    let logs = Logs::capture();
    for how in ["once", "twice"] {
        directory.set(Ok(entries(Some(how))));
        let refreshed = fleet.refresh().await.unwrap();
        assert_eq!(refreshed.refused.len(), 1, "{refreshed:?}");
        assert_eq!((refreshed.refused[0].0.as_str(), refreshed.kept), ("b", vec!["a".to_owned()]));
        assert!(refreshed.removed.is_empty() && refreshed.replaced.is_empty());
        // The clients are the same, and the database is worked on.
        let now = fleet.outbox("b").unwrap();
        assert!(Arc::ptr_eq(now.store(), before.store()));
        now.enqueue(Message::new(TOPIC, how)).await.unwrap();
        assert_eq!(reports.next().await, ("b".to_owned(), how.to_owned()));
        let status = fleet.status();
        let status = status.store("b").unwrap();
        assert_ne!(status.state, StoreState::Refused);
        assert!(status.entry_error.as_deref().unwrap().contains("cron"), "{status:?}");
        let health = fleet.health(Probe::Full, HealthOptions::default(), 2).await.unwrap();
        let report = &health.databases.iter().find(|database| database.id == "b").unwrap().report;
        assert_eq!(report.check("entry").unwrap().status, HealthStatus::Degraded);
        assert_ne!(fleet.known_health(Probe::Ready).status, HealthStatus::Unhealthy);
    }
    let told = logs.find(Level::WARN, "keeps running").len();
    assert_eq!(told, 2, "each attempt is logged");
    // What was wrong is put right.
    let mut entries = entries(None);
    entries[1] = entries[1].clone().option("region", "north");
    directory.set(Ok(entries));
    assert_eq!(fleet.refresh().await.unwrap().replaced, ["b"]);
    assert_eq!(fleet.status().store("b").unwrap().entry_error, None);
    fleet.outbox("b").unwrap().enqueue(Message::new(TOPIC, "after")).await.unwrap();
    assert_eq!(reports.next().await, ("b".to_owned(), "after".to_owned()));
    running.stop().await;
}

async fn obx_079_an_entry_that_is_changed_back_is_fine_again(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let directory = Directory::new(tenants.entries());
    let fleet = tenants.fleet_by(directory.discovery()).each(breakable).build().unwrap();
    let running = fleet.start().await.unwrap();
    let before = fleet.outbox("a").unwrap();
    directory.set(Ok(vec![tenants.entries()[0].clone().option(BROKEN, "yes")]));
    assert_eq!(fleet.refresh().await.unwrap().refused.len(), 1);
    directory.set(Ok(tenants.entries()));
    assert_eq!(fleet.refresh().await.unwrap().kept, ["a"]);
    assert_eq!(fleet.status().store("a").unwrap().entry_error, None);
    assert!(Arc::ptr_eq(fleet.outbox("a").unwrap().store(), before.store()));
    // One that goes while its changed entry can't be used is gone.
    directory.set(Ok(vec![tenants.entries()[0].clone().option(BROKEN, "yes")]));
    assert_eq!(fleet.refresh().await.unwrap().refused.len(), 1);
    directory.set(Ok(vec![DatabaseEntry::new("z", tenants.entries()[0].target.expose())]));
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!((refreshed.removed, fleet.ids()), (vec!["a".to_owned()], vec!["z".to_owned()]));
    assert_eq!(fleet.outbox("a").unwrap_err().kind(), ErrorKind::NotFound);
    running.stop().await;
}

async fn obx_077_a_database_found_at_run_time_is_deployed(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let bare = fx.bare_tenant("b").await;
    let directory = Directory::new(tenants.entries());
    let (reporter, mut reports) = Reports::new();
    let set_up = reporting(reporter);
    let fleet = tenants.fleet_by(directory.discovery());
    let fleet = fleet.each(move |entry, builder| set_up(entry, builder).deploy_schema(true)).build().unwrap();
    let running = fleet.start().await.unwrap();
    assert!(matches!(bare.provider.schema().status().await.unwrap(), SchemaStatus::Missing { .. }));
    directory.set(Ok([tenants.entries(), vec![bare.entry.clone()]].concat()));
    assert_eq!(fleet.refresh().await.unwrap().added, ["b"]);
    // No call has reached it.
    until_status(&fleet, "b", "it is deployed and rests", |status| {
        status.known && status.failures == 0 && status.state == StoreState::Cold
    })
    .await;
    let status = bare.provider.schema().status().await.unwrap();
    assert!(matches!(status, SchemaStatus::Current { .. }), "{status:?}");
    for id in ["a", "b"] {
        fleet.outbox(id).unwrap().enqueue(Message::new(TOPIC, "hello")).await.unwrap();
        assert_eq!(reports.next().await, (id.to_owned(), "hello".to_owned()));
    }
    running.stop().await;
}

async fn r28_a_database_found_at_run_time_is_deployed_only_if_told(fx: &dyn Fixture) {
    let tenants = Tenants::open(fx, &["a"]).await;
    let bare = fx.bare_tenant("b").await;
    let directory = Directory::new(tenants.entries());
    let fleet = tenants.fleet_by(directory.discovery()).build().unwrap();
    let running = fleet.start().await.unwrap();
    directory.set(Ok([tenants.entries(), vec![bare.entry.clone()]].concat()));
    assert_eq!(fleet.refresh().await.unwrap().added, ["b"]);
    until_status(&fleet, "b", "it is left alone", |status| status.last_error_kind == Some(ErrorKind::Schema))
        .await;
    assert!(matches!(bare.provider.schema().status().await.unwrap(), SchemaStatus::Missing { .. }));
    // An operator deploys it, and it is worked on.
    assert!(fleet.deploy(1).await.iter().all(|one| one.result.is_ok()));
    until_status(&fleet, "b", "it is well", |status| status.failures == 0 && status.known).await;
    running.stop().await;
}
