//! Operations that wait together share a transaction; what becomes of one is no concern of the others.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::fleet::DatabaseDiscovery;
use mainstay_core::outbox::Message;
use mainstay_core::store::{Provider, WaitRequest};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use mainstay_sqlite::{Sqlite, SqliteDiscovery};
use mainstay_tests::eventually;
use std::path::Path;
use std::time::Duration;

use support::{PATIENCE, Scratch, SmallDisk, deployed, start};

#[tokio::test]
async fn operations_that_wait_share_one_commit() {
    let scratch = Scratch::new().await;
    let busy = scratch.outbox.store().begin().await.unwrap();
    let mut enqueues: Vec<_> =
        (0..50).map(|n| Box::pin(scratch.outbox.enqueue(Message::new("t", n.to_string())))).collect();
    for enqueue in &mut enqueues {
        assert!(start(enqueue).is_pending());
    }
    let before = scratch.sqlite.commits();
    busy.rollback().await.unwrap();
    for enqueue in enqueues {
        enqueue.await.unwrap();
    }
    assert_eq!(scratch.sqlite.commits() - before, 1);
    assert_eq!(scratch.outbox.stats().await.unwrap().ready, 50);
}

#[tokio::test]
async fn an_operation_that_fails_harms_no_other_of_its_group() {
    let scratch = Scratch::new().await;
    let taken = scratch.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item;
    let busy = scratch.outbox.store().begin().await.unwrap();
    let mut enqueues = Vec::new();
    for n in 0..9 {
        let mut messages = vec![Message::new("t", "first"), Message::new("t", "second")];
        if n == 4 {
            messages.push(Message::new("t", "not new").work_item_id(taken));
        }
        enqueues.push(Box::pin(scratch.outbox.enqueue_many(messages)));
    }
    for enqueue in &mut enqueues {
        assert!(start(enqueue).is_pending());
    }
    let before = scratch.sqlite.commits();
    busy.rollback().await.unwrap();
    for (n, enqueue) in enqueues.into_iter().enumerate() {
        match enqueue.await {
            Ok(enqueued) => assert_eq!((n == 4, enqueued.len()), (false, 2)),
            Err(error) => {
                assert_eq!(
                    (n, error.kind(), error.field()),
                    (4, ErrorKind::AlreadyExists, Some("work_item_id"))
                );
            }
        }
    }
    assert_eq!(scratch.sqlite.commits() - before, 1);
    assert_eq!(scratch.outbox.stats().await.unwrap().ready, 1 + 8 * 2, "nothing of the failed one is there");
}

#[tokio::test]
async fn an_operation_that_fills_the_disk_harms_no_other_of_its_group() {
    let Some(disk) = SmallDisk::mount(2 << 20) else { return };
    let sqlite = Sqlite::open(disk.path().join("app.db")).await.unwrap();
    let outbox = deployed(&sqlite).await;
    let busy = outbox.store().begin().await.unwrap();
    let mut small: Vec<_> = (0..6).map(|_| Box::pin(outbox.enqueue(Message::new("t", "small")))).collect();
    let (before, after) = small.split_at_mut(3);
    before.iter_mut().for_each(|enqueue| assert!(start(enqueue).is_pending()));
    let mut large = Box::pin(outbox.enqueue(Message::new("t", "x".repeat(8 << 20))));
    assert!(start(&mut large).is_pending());
    after.iter_mut().for_each(|enqueue| assert!(start(enqueue).is_pending()));
    busy.rollback().await.unwrap();

    let error = large.await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.message().contains("nothing was written"), "{error}");
    for enqueue in small {
        enqueue.await.unwrap();
    }
    assert_eq!(outbox.stats().await.unwrap().ready, 6);
    sqlite.close().await;
}

#[tokio::test]
async fn an_operation_given_up_before_it_began_never_happens() {
    let scratch = Scratch::new().await;
    let busy = scratch.outbox.store().begin().await.unwrap();
    let gone = WorkItemId::new();
    let mut enqueue = Box::pin(scratch.outbox.enqueue(Message::new("t", "").work_item_id(gone)));
    assert!(start(&mut enqueue).is_pending());
    drop(enqueue);
    busy.rollback().await.unwrap();
    let kept = scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert!(scratch.outbox.get(gone).await.unwrap().is_none());
    assert!(scratch.outbox.get(kept.work_item).await.unwrap().is_some());
}

#[tokio::test]
async fn an_operation_given_up_under_way_happens_as_a_whole_or_not_at_all() {
    let scratch = Scratch::new().await;
    for _ in 0..10 {
        let batch: Vec<_> = (0..500).map(|n| Message::new("t", n.to_string())).collect();
        let mut enqueue = Box::pin(scratch.outbox.enqueue_many(batch));
        assert!(start(&mut enqueue).is_pending());
        drop(enqueue);
        // Ends behind it.
        scratch.outbox.reap_expired().await.unwrap();
        assert_eq!(scratch.outbox.stats().await.unwrap().ready % 500, 0);
    }
}

#[tokio::test]
async fn closing_finishes_what_is_queued_and_then_refuses() {
    let scratch = Scratch::new().await;
    let busy = scratch.outbox.store().begin().await.unwrap();
    let request = WaitRequest::new(OwnerToken::new()).timeout(PATIENCE);
    let mut waiting = Box::pin(scratch.outbox.store().wait(&request));
    assert!(start(&mut waiting).is_pending());
    let mut enqueue = Box::pin(scratch.outbox.enqueue(Message::new("t", "")));
    assert!(start(&mut enqueue).is_pending());
    let mut close = Box::pin(scratch.sqlite.close());
    assert!(start(&mut close).is_pending());
    busy.rollback().await.unwrap();
    let kept = enqueue.await.unwrap();
    close.await;

    assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Closed);
    let refused = [
        scratch.outbox.enqueue(Message::new("t", "")).await.map(drop).unwrap_err(),
        scratch.outbox.get(kept.work_item).await.map(drop).unwrap_err(),
        scratch
            .outbox
            .store()
            .wait(&WaitRequest::new(OwnerToken::new()).timeout(PATIENCE))
            .await
            .map(drop)
            .unwrap_err(),
        scratch.outbox.store().begin().await.map(drop).unwrap_err(),
        scratch.sqlite.now().await.map(drop).unwrap_err(),
    ];
    for error in refused {
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    scratch.sqlite.close().await;
    assert!(scratch.second().await.get(kept.work_item).await.unwrap().is_some());
}

#[tokio::test]
async fn dropping_the_last_handle_ends_the_threads() {
    let Scratch { directory, sqlite, outbox } = Scratch::new().await;
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert!(is_open(directory.path()));
    drop((sqlite, outbox));
    // Not by the log: two connections that end at the same moment each leave it for the other to delete.
    eventually(PATIENCE, "all connections are closed", async || !is_open(directory.path())).await;
}

/// Whether this process has a file in the directory open.
fn is_open(directory: &Path) -> bool {
    let files = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|path| path.starts_with(directory))
}

#[tokio::test]
async fn an_operation_that_runs_too_long_is_interrupted_and_harms_no_other_of_its_group() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    // Long enough for the others on a busy machine.
    let sqlite = Sqlite::builder(&path).statement_limit(Duration::from_secs(1)).open().await.unwrap();
    let outbox = deployed(&sqlite).await;
    let endless = "CREATE VIEW endless AS WITH RECURSIVE number(n) AS \
                   (SELECT 1 UNION ALL SELECT n + 1 FROM number) SELECT count(*) FROM number; \
                   CREATE TRIGGER endless_insert AFTER INSERT ON infra_outbox WHEN new.topic = 'endless' \
                   BEGIN SELECT * FROM endless; END";
    rusqlite::Connection::open(&path).unwrap().execute_batch(endless).unwrap();
    let busy = outbox.store().begin().await.unwrap();
    let topics = ["t", "t", "endless", "t", "t"];
    let mut enqueues: Vec<_> =
        topics.iter().map(|topic| Box::pin(outbox.enqueue(Message::new(*topic, "")))).collect();
    for enqueue in &mut enqueues {
        assert!(start(enqueue).is_pending());
    }
    busy.rollback().await.unwrap();
    for (topic, enqueue) in topics.into_iter().zip(enqueues) {
        match enqueue.await {
            Ok(_) => assert_eq!(topic, "t"),
            Err(error) => {
                assert_eq!((topic, error.kind()), ("endless", ErrorKind::Unavailable), "{error}");
                assert!(error.message().contains("longer than 1s"), "{error}");
                assert!(error.message().contains("`statement_limit`"), "{error}");
            }
        }
    }
    assert_eq!(outbox.stats().await.unwrap().ready, 4);
}

#[tokio::test]
async fn a_read_that_runs_too_long_is_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    let sqlite = Sqlite::builder(&path).statement_limit(Duration::from_millis(20)).readers(1);
    let sqlite = sqlite.open().await.unwrap();
    let endless = "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number) \
                   SELECT count(*), '' FROM number";
    let error = SqliteDiscovery::new(sqlite.clone(), endless).discover().await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, "sqlite.discover"), "{error}");
    assert!(error.message().contains("longer than 20ms"), "{error}");
    // The one reader goes on.
    sqlite.now().await.unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn a_group_is_cut_short_while_another_process_waits_for_its_turn() {
    let scratch = Scratch::new().await;
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    // A process that waits, for as long as this is locked.
    let turn = std::fs::File::open(scratch.directory.path().join("app.db-turn")).unwrap();
    rustix::fs::flock(&turn, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let busy = scratch.outbox.store().begin().await.unwrap();
    let mut enqueues: Vec<_> =
        (0..500).map(|n| Box::pin(scratch.outbox.enqueue(Message::new("t", n.to_string())))).collect();
    for enqueue in &mut enqueues {
        assert!(start(enqueue).is_pending());
    }
    let before = scratch.sqlite.commits();
    busy.rollback().await.unwrap();
    for enqueue in enqueues {
        enqueue.await.unwrap();
    }
    assert!(scratch.sqlite.commits() - before > 1);
    assert_eq!(scratch.outbox.stats().await.unwrap().ready, 501);
}
