//! A handler's transaction has the writer to itself, and can't keep it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use std::sync::mpsc;
use std::time::Duration;

use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Outcome, Settlement, Status};
use mainstay_core::store::Provider;
use mainstay_core::{ErrorKind, OwnerToken};
use mainstay_sqlite::Sqlite;
use rusqlite::Connection;

use support::{Scratch, deployed, own, prepared, start};

fn note(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch("CREATE TABLE IF NOT EXISTS note (text TEXT); INSERT INTO note VALUES ('n')")
}

fn notes(scratch: &Scratch) -> i64 {
    let connection = scratch.connect();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS note (text TEXT)").unwrap();
    connection.query_row("SELECT count(*) FROM note", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn writes_messages_and_ack_commit_together() {
    let scratch = Scratch::new().await;
    let owner = OwnerToken::new();
    let id = scratch.outbox.enqueue(Message::new("t", "")).await.unwrap().work_item;
    let claim = scratch.outbox.claim(&ClaimRequest::new(owner)).await.unwrap().items.remove(0).handle;

    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    own(&mut transaction).run(note).await.unwrap();
    transaction.enqueue(&[prepared(Message::new("next", ""))]).await.unwrap();
    scratch.outbox.enqueue_in(own(&mut transaction), Message::new("next", "")).await.unwrap();
    let settled = transaction.settle(owner, &[Settlement { claim, outcome: Outcome::Ack }]).await.unwrap();
    assert_eq!(settled.changed, [id]);
    assert_eq!(
        scratch.outbox.get(id).await.unwrap().unwrap().status,
        Status::InProgress,
        "readers see none of it"
    );
    transaction.commit().await.unwrap();

    assert_eq!(scratch.outbox.get(id).await.unwrap().unwrap().status, Status::Done);
    assert_eq!((scratch.outbox.stats().await.unwrap().ready, notes(&scratch)), (2, 1));
}

#[tokio::test]
async fn a_message_goes_only_into_the_database_of_the_transaction() {
    let scratch = Scratch::new().await;
    let other = Outbox::new(Sqlite::memory().await.unwrap().outbox());
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    let error = other.enqueue_in(own(&mut transaction), Message::new("t", "")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("store")));
}

#[tokio::test]
async fn dropping_rolls_back_and_lets_the_others_go_on() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    own(&mut transaction).run(note).await.unwrap();
    let mut waiting = Box::pin(scratch.outbox.enqueue(Message::new("t", "")));
    assert!(start(&mut waiting).is_pending());
    drop(transaction);
    waiting.await.unwrap();
    assert_eq!(notes(&scratch), 0);
}

#[tokio::test]
async fn a_begin_given_up_in_the_queue_holds_nobody_up() {
    let scratch = Scratch::new().await;
    let first = scratch.outbox.store().begin().await.unwrap();
    let store = scratch.outbox.store();
    let mut second = store.begin();
    assert!(second.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
    drop(second);
    first.commit().await.unwrap();
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
}

#[tokio::test]
async fn a_task_aborted_amid_its_closure_rolls_back() {
    let scratch = Scratch::new().await;
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (go_on, wait) = mpsc::channel::<()>();
    let outbox = scratch.outbox.clone();
    let task = tokio::spawn(async move {
        let mut transaction = outbox.store().begin().await.unwrap();
        let work = move |connection: &Connection| {
            note(connection)?;
            entered.send(()).unwrap();
            wait.recv().unwrap();
            Ok(())
        };
        own(&mut transaction).run(work).await.unwrap();
        transaction.commit().await.unwrap();
    });
    inside.await.unwrap();
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    go_on.send(()).unwrap();
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(notes(&scratch), 0);
}

#[tokio::test]
async fn a_transaction_that_takes_too_long_is_rolled_back() {
    let directory = tempfile::tempdir().unwrap();
    let limit = Duration::from_millis(20);
    let sqlite =
        Sqlite::builder(directory.path().join("app.db")).transaction_limit(limit).open().await.unwrap();
    let outbox = deployed(&sqlite).await;
    let mut transaction = outbox.store().begin().await.unwrap();
    let enqueued = transaction.enqueue(&[prepared(Message::new("t", ""))]).await.unwrap();
    // The mistake the limit is there for: this waits for the transaction that its caller holds.
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let error = own(&mut transaction).run(note).await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true));
    assert!(error.message().contains("longer than 20ms"), "{error}");
    assert!(transaction.commit().await.is_err());
    assert!(outbox.get(enqueued[0].work_item).await.unwrap().is_none());
}

#[tokio::test]
async fn a_closure_that_fails_takes_back_only_itself() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    own(&mut transaction).run(note).await.unwrap();
    let work = |connection: &Connection| {
        note(connection)?;
        connection.execute_batch("INSERT INTO nowhere VALUES (1)")
    };
    let error = own(&mut transaction).run(work).await.unwrap_err();
    assert!(error.message().contains("nowhere"), "{error}");
    transaction.commit().await.unwrap();
    assert_eq!(notes(&scratch), 1);
}

#[tokio::test]
async fn a_closure_that_panics_ends_the_transaction_and_nothing_else() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    own(&mut transaction).run(note).await.unwrap();
    let error =
        own(&mut transaction).run(|_| -> rusqlite::Result<()> { panic!("on purpose") }).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(transaction.commit().await.is_err());
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(notes(&scratch), 0);
}

#[tokio::test]
async fn a_closure_must_not_end_the_transaction() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    let error = own(&mut transaction).run(|connection| connection.execute_batch("COMMIT")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(transaction.commit().await.is_err());
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
}

#[tokio::test]
async fn a_transaction_with_a_call_given_up_midway_can_only_be_rolled_back() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    let (go_on, wait) = mpsc::channel::<()>();
    let mut call = Box::pin(own(&mut transaction).run(move |connection| {
        wait.recv().unwrap();
        note(connection)
    }));
    assert!(start(&mut call).is_pending());
    drop(call);
    go_on.send(()).unwrap();
    assert_eq!(own(&mut transaction).run(note).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(transaction.commit().await.unwrap_err().kind(), ErrorKind::Conflict);
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(notes(&scratch), 0);
}

/// Runs until it is interrupted.
const ENDLESS: &str =
    "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number) SELECT count(*) FROM number";

async fn with_limit(limit: Duration) -> (tempfile::TempDir, Outbox) {
    let directory = tempfile::tempdir().unwrap();
    let sqlite =
        Sqlite::builder(directory.path().join("app.db")).transaction_limit(limit).open().await.unwrap();
    let outbox = deployed(&sqlite).await;
    (directory, outbox)
}

#[tokio::test]
async fn a_statement_that_runs_at_the_limit_is_interrupted() {
    let limit = Duration::from_millis(20);
    let (_directory, outbox) = with_limit(limit).await;
    for statement in [ENDLESS.to_owned(), format!("CREATE TABLE counted AS {ENDLESS}")] {
        let mut transaction = outbox.store().begin().await.unwrap();
        let work = move |connection: &Connection| connection.execute_batch(&statement);
        let error = own(&mut transaction).run(work).await.unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Unavailable, true), "{error}");
        assert!(error.message().contains("longer than 20ms"), "{error}");
        assert!(error.message().contains("`transaction_limit`"), "{error}");
        assert!(transaction.commit().await.unwrap_err().message().contains("longer than 20ms"));
        // The next statements of the same connection run to their end.
        outbox.enqueue(Message::new("t", "")).await.unwrap();
    }
}

#[tokio::test]
async fn an_interrupt_never_hits_the_next_statement() {
    let (_directory, outbox) = with_limit(Duration::from_millis(1)).await;
    for _ in 0..200 {
        let mut transaction = outbox.store().begin().await.unwrap();
        let call = own(&mut transaction).run(|connection| connection.execute_batch(ENDLESS));
        // Waits behind it, and begins in the moment in which it ends.
        let (interrupted, next) = tokio::join!(call, outbox.enqueue(Message::new("t", "")));
        assert!(interrupted.is_err());
        next.unwrap();
    }
}

#[tokio::test]
async fn a_closure_that_blocks_beyond_the_limit_is_rolled_back_when_it_returns() {
    let (directory, outbox) = with_limit(Duration::from_millis(20)).await;
    let mut transaction = outbox.store().begin().await.unwrap();
    let work = |connection: &Connection| {
        note(connection)?;
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(25) {
            std::thread::yield_now();
        }
        Ok(())
    };
    let error = own(&mut transaction).run(work).await.unwrap_err();
    assert!(error.message().contains("longer than 20ms"), "{error}");
    assert!(transaction.commit().await.is_err());
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let connection = Connection::open(directory.path().join("app.db")).unwrap();
    let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'note'";
    assert_eq!(connection.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_closure_that_goes_on_after_an_interrupt_commits_nothing() {
    let (directory, outbox) = with_limit(Duration::from_millis(20)).await;
    let mut transaction = outbox.store().begin().await.unwrap();
    let work = |connection: &Connection| {
        // SQLite rolls back for this one, so that what follows is in no transaction.
        assert!(connection.execute_batch(&format!("CREATE TABLE counted AS {ENDLESS}")).is_err());
        assert!(connection.is_autocommit());
        assert!(note(connection).is_err());
        Ok(())
    };
    assert!(own(&mut transaction).run(work).await.is_err());
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let connection = Connection::open(directory.path().join("app.db")).unwrap();
    let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'note'";
    assert_eq!(connection.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

#[tokio::test]
async fn a_closure_that_commits_keeps_nothing() {
    let scratch = Scratch::new().await;
    let mut transaction = scratch.outbox.store().begin().await.unwrap();
    let work = |connection: &Connection| {
        note(connection)?;
        connection.execute_batch("COMMIT")
    };
    let error = own(&mut transaction).run(work).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("commit()"), "{error}");
    drop(transaction);
    scratch.outbox.enqueue(Message::new("t", "")).await.unwrap();
    assert_eq!(notes(&scratch), 0);
}
