//! What can be seen of database files from outside.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::Poll;

use mainstay_core::fleet::{Connect, DatabaseEntry, Mark, Watch};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::store::{ConnectionGate, Provider};
use mainstay_sqlite::{Sqlite, SqliteConnector};

fn entry(path: &Path) -> DatabaseEntry {
    DatabaseEntry::new("a", format!("sqlite:{}", path.display()))
}

fn watch() -> Box<dyn Watch> {
    SqliteConnector::new().watch(&DatabaseEntry::new("a", "anywhere")).unwrap()
}

async fn read(watch: &mut dyn Watch, path: &Path) -> Option<Mark> {
    watch.read(&[&entry(path)]).await.unwrap()[0]
}

async fn deployed(path: &Path) -> Sqlite {
    let sqlite = Sqlite::open(path).await.unwrap();
    sqlite.schema().deploy().await.unwrap();
    sqlite
}

async fn add(sqlite: &Sqlite) {
    Outbox::new(sqlite.outbox()).enqueue(Message::new("t", "x")).await.unwrap();
}

/// Looks as a keeper does: with connections that are opened for it and closed again.
async fn look(path: &Path) {
    let gate = ConnectionGate::new(|| {});
    let sqlite = Sqlite::builder(path).gate(gate).create_missing(false).open().await.unwrap();
    for _ in 0..3 {
        sqlite.allow_connections(1).await;
        sqlite.schema().require().await.unwrap();
        sqlite.agenda().await.unwrap();
        sqlite.allow_connections(0).await;
    }
    sqlite.close().await;
}

#[tokio::test]
async fn a_write_is_seen_and_a_look_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let sqlite = deployed(&path).await;
    let mut watch = watch();
    for _ in 0..3 {
        let before = read(watch.as_mut(), &path).await;
        assert!(before.is_some());
        look(&path).await;
        assert_eq!(read(watch.as_mut(), &path).await, before, "nobody has written");
        add(&sqlite).await;
        assert_ne!(read(watch.as_mut(), &path).await, before);
    }
    // Nobody else has it open any more: who looks is the last to close it.
    sqlite.close().await;
    let before = read(watch.as_mut(), &path).await;
    look(&path).await;
    assert_eq!(read(watch.as_mut(), &path).await, before);
    // A program that comes, writes and goes.
    let sqlite = Sqlite::open(&path).await.unwrap();
    add(&sqlite).await;
    sqlite.close().await;
    assert_ne!(read(watch.as_mut(), &path).await, before);
}

#[tokio::test]
async fn a_file_is_seen_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("real").join("a.db"), directory.path().join("a.db"));
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let sqlite = deployed(&path).await;
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut watch = watch();
    let before = read(watch.as_mut(), &link).await;
    add(&sqlite).await;
    assert_ne!(read(watch.as_mut(), &link).await, before);
}

#[tokio::test]
async fn what_is_no_file_is_not_seen() {
    let directory = tempfile::tempdir().unwrap();
    let mut watch = watch();
    assert_eq!(read(watch.as_mut(), &directory.path().join("missing.db")).await, None);
    assert_eq!(read(watch.as_mut(), directory.path()).await, None);
    std::fs::write(directory.path().join("empty.db"), "").unwrap();
    assert_eq!(read(watch.as_mut(), &directory.path().join("empty.db")).await, None);
}

#[tokio::test]
async fn a_reading_may_be_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.db");
    let sqlite = deployed(&path).await;
    let mut watch = watch();
    let before = read(watch.as_mut(), &path).await;
    for _ in 0..10 {
        let entry = entry(&path);
        let entries = [&entry];
        let mut reading = pin!(watch.read(&entries));
        std::future::poll_fn(|context| {
            drop(reading.as_mut().poll(context));
            Poll::Ready(())
        })
        .await;
    }
    add(&sqlite).await;
    assert_ne!(read(watch.as_mut(), &path).await, before, "what was read for somebody else is not used");
}
