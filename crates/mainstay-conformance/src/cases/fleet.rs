//! Many databases: each with a store of its own, found by its key, as discovery says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::ErrorKind;
use mainstay_core::fleet::{DatabaseEntry, DatabaseList, Fleet, FleetOptions};
use mainstay_core::inbox::Incoming;
use mainstay_core::job::JobDefinition;
use mainstay_core::outbox::Message;
use mainstay_core::timer::NewTimer;
use mainstay_tests::eventually;
use uuid::Uuid;

use crate::case::cases;
use crate::crew::{PATIENCE, Reports};
use crate::fixture::Fixture;
use crate::tenants::{Directory, Tenants, reporting};
use crate::world::TOPIC;

cases! { $ fleet_cases:
    obx_066_each_database_has_a_store_of_its_own ["OBX-066", "IBX-085", "R24"],
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
