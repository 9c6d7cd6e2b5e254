//! A fleet whose databases are found by the schemes of their URLs.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use mainstay::fleet::{DatabaseEntry, DatabaseList, Fleet, StoreState, UrlConnector};
use mainstay::{Context, ErrorKind, Message};
use tokio::sync::mpsc;

#[tokio::test]
async fn a_database_is_connected_to_by_its_scheme() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| format!("sqlite:{}", directory.path().join(name).display());
    let databases = DatabaseList::new([
        DatabaseEntry::new("one", file("one.db")),
        DatabaseEntry::new("two", file("two.db")),
        DatabaseEntry::new("none", "mysql://app:secret@db/none"),
        DatabaseEntry::new("bare", "secret"),
    ])
    .unwrap();
    let (handled, mut reports) = mpsc::unbounded_channel();
    let fleet = Fleet::builder(databases, UrlConnector::new())
        .each(move |entry, mainstay| {
            let (handled, id) = (handled.clone(), entry.id.clone());
            mainstay.deploy_schema(true).outbox(|outbox| {
                outbox.raw_handler("greet", move |_: Context| {
                    let _ = handled.send(id.clone());
                    std::future::ready(())
                })
            })
        })
        .build()
        .unwrap();
    let running = fleet.start().await.unwrap();
    // Clients don't wait for the deployment, which the fleet sees to.
    for deployed in fleet.deploy(2).await {
        deployed.result.unwrap();
    }
    for id in ["one", "two"] {
        fleet.outbox(id).unwrap().enqueue(Message::new("greet", "")).await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(30), reports.recv()).await.unwrap();
        assert_eq!(next.as_deref(), Some(id));
    }
    for id in ["none", "bare"] {
        let refused = fleet.outbox(id).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Config);
        assert!(!refused.to_string().contains("secret"), "{refused}");
        assert_eq!(fleet.status().store(id).unwrap().state, StoreState::Refused);
    }
    running.stop().await;
}
