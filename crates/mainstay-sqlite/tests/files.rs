//! Files that can't be used, and what is said about them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::outbox::Message;
use mainstay_core::store::{Provider, SchemaStatus};
use mainstay_core::{Error, ErrorKind};
use mainstay_sqlite::Sqlite;

use support::{Scratch, SmallDisk, deployed};

async fn refused(path: impl Into<std::path::PathBuf>) -> Error {
    Sqlite::open(path).await.map(drop).expect_err("the file can't be used")
}

#[tokio::test]
async fn opening_creates_the_file_and_no_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.db");
    let sqlite = Sqlite::open(&path).await.unwrap();
    assert!(path.exists());
    let error = sqlite.schema().require().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Schema);
    let connection = rusqlite::Connection::open(&path).unwrap();
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
    assert_eq!(objects, 0);
}

#[tokio::test]
async fn a_file_of_another_kind_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notes.txt");
    let text = "these are my notes, not a database\n".repeat(200);
    std::fs::write(&path, &text).unwrap();
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("not an SQLite database"), "{error}");
    assert!(error.message().contains("notes.txt"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// It may be somebody else's, or was made by mistake: whoever only looks changes nothing.
#[tokio::test]
async fn a_file_without_our_tables_stays_as_it_is_until_they_are_deployed() {
    let directory = tempfile::tempdir().unwrap();
    let (theirs, empty) = (directory.path().join("theirs.db"), directory.path().join("empty.db"));
    rusqlite::Connection::open(&theirs)
        .unwrap()
        .execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
        .unwrap();
    std::fs::write(&empty, "").unwrap();
    for path in [&theirs, &empty] {
        let before = std::fs::read(path).unwrap();
        let sqlite = Sqlite::open(path).await.unwrap();
        assert!(matches!(sqlite.schema().status().await.unwrap(), SchemaStatus::Missing { .. }));
        sqlite.now().await.unwrap();
        sqlite.close().await;
        assert!(std::fs::read(path).unwrap() == before, "{}", path.display());

        let sqlite = Sqlite::open(path).await.unwrap();
        deployed(&sqlite).await;
        let beside = rusqlite::Connection::open(path).unwrap();
        let mode: String = beside.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal", "{}", path.display());
        sqlite.close().await;
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "no log is left");
}

#[tokio::test]
async fn a_directory_is_called_one() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(directory.path()).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("is a directory"), "{error}");
}

#[tokio::test]
async fn a_directory_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let error = refused(directory.path().join("missing").join("app.db")).await;
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("missing"), "{error}");
}

#[tokio::test]
async fn a_file_that_can_only_be_read_is_refused_at_once() {
    let Some(disk) = SmallDisk::mount(4 << 20) else { return };
    let path = disk.path().join("app.db");
    let sqlite = Sqlite::open(&path).await.unwrap();
    deployed(&sqlite).await;
    sqlite.close().await;
    disk.make_read_only();
    let error = refused(&path).await;
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error}");
    assert!(error.message().contains("write permission"), "{error}");
}

#[tokio::test]
async fn a_damaged_file_is_called_damaged() {
    let scratch = Scratch::new().await;
    let path = scratch.directory.path().join("damaged.db");
    let messages = (0..8_000).map(|n| Message::new("t", format!("{n}").repeat(200)));
    scratch.outbox.enqueue_many(messages.collect()).await.unwrap();
    scratch.sqlite.close().await;
    let mut bytes = std::fs::read(scratch.path()).unwrap();
    // All but the first pages, which hold the schema.
    let kept = 4_096 * 256;
    assert!(bytes.len() > 2 * kept);
    bytes[kept..].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    let outbox = mainstay_core::outbox::Outbox::new(Sqlite::open(&path).await.unwrap().outbox());
    let error = outbox.stats().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    assert!(error.message().contains("damaged"), "{error}");
    assert!(!error.is_retryable());
}

#[tokio::test]
async fn a_full_disk_loses_nothing_and_passes() {
    let Some(disk) = SmallDisk::mount(3 << 20) else { return };
    let sqlite = Sqlite::open(disk.path().join("app.db")).await.unwrap();
    let outbox = deployed(&sqlite).await;
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        match outbox.enqueue(Message::new("t", "x".repeat(20_000))).await {
            Ok(enqueued) => kept.push(enqueued.work_item),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.is_retryable());
    assert!(!kept.is_empty());
    assert_eq!(
        outbox.stats().await.unwrap().ready,
        kept.len() as u64,
        "what was acknowledged, and nothing else"
    );
    std::fs::remove_file(&ballast).unwrap();
    outbox.enqueue(Message::new("t", "x".repeat(20_000))).await.unwrap();
    assert_eq!(outbox.stats().await.unwrap().ready, kept.len() as u64 + 1);
    sqlite.close().await;
}

#[tokio::test]
async fn a_process_that_keeps_the_lock_makes_writes_unavailable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    let timeout = std::time::Duration::from_millis(10);
    let sqlite = Sqlite::builder(&path).busy_timeout(timeout).open().await.unwrap();
    let outbox = deployed(&sqlite).await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = outbox.enqueue(Message::new("t", "")).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
    assert_eq!(outbox.stats().await.unwrap().ready, 0, "readers don't mind");
    connection.execute_batch("ROLLBACK").unwrap();
    outbox.enqueue(Message::new("t", "")).await.unwrap();
}
