//! Several databases and the fleets over them, for the cases about many databases.

#![allow(clippy::expect_used, reason = "a case fails by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_core::Result;
use mainstay_core::fleet::{
    DatabaseDiscovery, DatabaseEntry, DatabaseList, DiscoverWith, Fleet, FleetBuilder, FleetOptions,
    StoreStatus,
};
use mainstay_core::inbox::Inbox;
use mainstay_core::outbox::{Outbox, OutboxStats};
use mainstay_core::queue::Context;
use mainstay_core::runtime::MainstayBuilder;
use mainstay_tests::eventually;

use crate::crew::{PATIENCE, Reporter, brisk};
use crate::fixture::{Fixture, Tenant};
use crate::world::TOPIC;

/// Several databases.
pub(crate) struct Tenants<'a> {
    pub(crate) fixture: &'a dyn Fixture,
    pub(crate) all: Vec<Tenant>,
}

/// What a handler of a fleet tells: the database's id, and the message's payload.
pub(crate) type Delivery = (String, String);

impl<'a> Tenants<'a> {
    pub(crate) async fn open(fixture: &'a dyn Fixture, ids: &[&str]) -> Self {
        let mut all = Vec::new();
        for id in ids {
            all.push(fixture.tenant(id).await);
        }
        Self { fixture, all }
    }

    pub(crate) fn entries(&self) -> Vec<DatabaseEntry> {
        self.all.iter().map(|tenant| tenant.entry.clone()).collect()
    }

    pub(crate) fn list(&self) -> DatabaseList {
        DatabaseList::new(self.entries()).expect("a list of databases")
    }

    pub(crate) fn get(&self, id: &str) -> &Tenant {
        self.all.iter().find(|tenant| tenant.entry.id == id).expect("a database of this id")
    }

    /// A database's own outbox, past the fleet.
    pub(crate) fn outbox(&self, id: &str) -> Outbox {
        Outbox::new(self.get(id).provider.outbox())
    }

    /// A database's own inbox, past the fleet.
    pub(crate) fn inbox(&self, id: &str) -> Inbox {
        Inbox::new(self.get(id).provider.as_ref())
    }

    pub(crate) async fn stats(&self, id: &str) -> OutboxStats {
        self.outbox(id).stats().await.expect("stats")
    }

    /// A fleet of all of them, without chores, that is quick about everything.
    pub(crate) fn fleet(&self) -> FleetBuilder {
        self.fleet_by(self.list())
    }

    /// The same of those that `discovery` tells of.
    pub(crate) fn fleet_by(&self, discovery: impl DatabaseDiscovery) -> FleetBuilder {
        Fleet::builder(discovery, self.fixture.connector()).options(quick).each(|_, builder| quiet(builder))
    }
}

/// Nothing takes longer than a case has time for.
pub(crate) fn quick(options: &mut FleetOptions) {
    options.poll_min = Duration::from_millis(10);
    options.poll_max = Duration::from_millis(100);
    options.watch = Some(Duration::from_millis(100));
    options.ring_max = Duration::from_millis(200);
    options.idle = Duration::from_millis(200);
    options.share = Duration::from_millis(200);
    options.look_timeout = Duration::from_secs(3);
    options.breaker.min = Duration::from_millis(20);
    options.breaker.max = Duration::from_millis(200);
}

/// Without chores.
pub(crate) fn quiet(builder: MainstayBuilder) -> MainstayBuilder {
    builder
        .outbox(|outbox| outbox.options(brisk).retention(None).reap_every(None).gauges_every(None))
        .inbox(|inbox| inbox.options(brisk).retention(None).reap_every(None).gauges_every(None))
}

/// Reports every message of the outbox and of the inbox.
pub(crate) fn reporting(
    reporter: Reporter<Delivery>,
) -> impl Fn(&DatabaseEntry, MainstayBuilder) -> MainstayBuilder + Send + Sync {
    move |entry, builder| {
        let handler = |id: String, reporter: Reporter<Delivery>| {
            move |context: Context| {
                // Nobody may be listening any more.
                let _ = reporter.send((id.clone(), context.payload().to_owned()));
                std::future::ready(())
            }
        };
        let (outbox, inbox) =
            (handler(entry.id.clone(), reporter.clone()), handler(entry.id.clone(), reporter.clone()));
        quiet(builder)
            .outbox(|builder| builder.raw_handler(TOPIC, outbox))
            .inbox(|builder| builder.raw_handler(TOPIC, inbox))
    }
}

/// Databases that can be changed while a fleet asks for them.
#[derive(Clone)]
pub(crate) struct Directory(pub(crate) Arc<Mutex<Result<Vec<DatabaseEntry>, &'static str>>>);

impl Directory {
    pub(crate) fn new(entries: Vec<DatabaseEntry>) -> Self {
        Self(Arc::new(Mutex::new(Ok(entries))))
    }

    pub(crate) fn set(&self, entries: Result<Vec<DatabaseEntry>, &'static str>) {
        *self.0.lock().expect("nobody panics while holding it") = entries;
    }

    pub(crate) fn discovery(&self) -> impl DatabaseDiscovery + use<> {
        let directory = self.clone();
        DiscoverWith::new(move || {
            let entries = directory.0.lock().expect("nobody panics while holding it").clone();
            let entries = entries.map_err(|text| {
                mainstay_core::Error::new(mainstay_core::ErrorKind::Unavailable, "directory", text)
            });
            std::future::ready(entries)
        })
    }
}

/// Waits until the status of a database is as wanted.
pub(crate) async fn until_status(fleet: &Fleet, id: &str, what: &str, wanted: impl Fn(&StoreStatus) -> bool) {
    let deadline = PATIENCE;
    eventually(deadline, what, async || fleet.status().store(id).is_some_and(&wanted)).await;
}
