//! The inbox beside other users of the file: plain INSERTs, and the transactions of the application's own driver.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::inbox::{EntryState, Inbox, Incoming, ReceivedOutcome};
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimRequest;
use mainstay_core::{ErrorKind, OwnerToken};
use mainstay_sqlite::Sqlite;

use support::Scratch;

fn incoming(id: &str) -> Incoming {
    Incoming::new("s", id, Message::new("t", "a\0b").header("h", "v"))
}

#[tokio::test]
async fn a_plain_insert_receives_a_message_once() {
    let scratch = Scratch::new().await;
    let inbox = Inbox::new(&scratch.sqlite);
    let connection = scratch.connect();
    let insert =
        "INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES ('s', 'm', 't', ?1)";
    connection.execute(insert, ["first"]).unwrap();
    connection.execute(insert, ["second"]).unwrap();
    let owner = OwnerToken::new();
    let claimed = inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    assert_eq!(claimed.items.len(), 1);
    assert_eq!((claimed.items[0].topic.as_str(), claimed.items[0].payload.as_str()), ("t", "second"));
    assert_eq!(claimed.items[0].headers["mainstay-source"], "s");
    inbox.ack(owner, &claimed.handles()).await.unwrap();
    connection.execute(insert, ["third"]).unwrap();
    let state = "SELECT state FROM infra_inbox_ledger WHERE source = 's' AND message_id = 'm'";
    assert_eq!(connection.query_row(state, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    assert_eq!(inbox.queue().stats().await.unwrap().open(), 0, "it is done");
    // What breaks the rules is refused, and leaves nothing.
    for odd in [
        "INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES ('', 'n', 't', '')",
        "INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES ('s', NULL, 't', '')",
        "INSERT INTO infra_inbox_received (source, message_id, topic, payload) VALUES ('s', 'n', '', '')",
        "INSERT INTO infra_inbox_received (source, message_id, topic) VALUES ('s', 'n', 't')",
        "INSERT INTO infra_inbox_received (source, message_id, topic, payload, hash) VALUES ('s', 'n', 't', '', x'00')",
    ] {
        assert!(connection.execute(odd, []).is_err(), "{odd}");
    }
    assert!(inbox.get("s", "n").await.unwrap().is_none());
}

#[tokio::test]
async fn rusqlite_transactions_receive_and_complete() {
    let scratch = Scratch::new().await;
    let inbox = Inbox::new(&scratch.sqlite);
    let mut connection = scratch.connect();
    for commit in [false, true] {
        let id = if commit { "committed" } else { "rolled back" };
        let guard = inbox.begin("guarded", id).await.unwrap().into_new().unwrap();
        let mut transaction = connection.transaction().unwrap();
        let received = inbox.enqueue_in_blocking(&mut transaction, incoming("m")).unwrap();
        assert_eq!(received.outcome, ReceivedOutcome::Added);
        guard.complete_in_blocking(&mut transaction).unwrap();
        if commit {
            transaction.commit().unwrap()
        } else {
            transaction.rollback().unwrap()
        }
        assert_eq!(inbox.get("s", "m").await.unwrap().is_some(), commit);
        let entry = inbox.get("guarded", id).await.unwrap().unwrap();
        assert_eq!(entry.state, if commit { EntryState::Done } else { EntryState::Processing });
    }
    let claimed = inbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items;
    assert_eq!((claimed.len(), claimed[0].payload.as_str()), (1, "a\0b"));
}

#[tokio::test]
async fn a_call_is_refused_in_a_transaction_of_another_database() {
    let (scratch, other) = (Scratch::new().await, Sqlite::memory().await.unwrap());
    let inbox = Inbox::new(&scratch.sqlite);
    mainstay_core::store::Provider::schema(&other).deploy().await.unwrap();
    let mut transaction = mainstay_core::store::Provider::outbox(&other).begin().await.unwrap();
    let error = inbox.enqueue_in(&mut transaction, incoming("m")).await.unwrap_err();
    assert_eq!((error.kind(), error.field()), (ErrorKind::InvalidArgument, Some("store")));
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn sqlx_transactions_receive_and_complete() {
    use sqlx::{Connection, SqliteConnection};

    let scratch = Scratch::new().await;
    let inbox = Inbox::new(&scratch.sqlite);
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(scratch.path());
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    for commit in [false, true] {
        let id = if commit { "committed" } else { "rolled back" };
        let guard = inbox.begin("guarded", id).await.unwrap().into_new().unwrap();
        let mut transaction = connection.begin().await.unwrap();
        let received =
            inbox.enqueue_many_in(&mut transaction, vec![incoming("m"), incoming("m")]).await.unwrap();
        let outcomes: Vec<_> = received.iter().map(|one| one.outcome).collect();
        assert_eq!(outcomes, [ReceivedOutcome::Added, ReceivedOutcome::Replaced]);
        guard.complete_in(&mut transaction).await.unwrap();
        if commit {
            transaction.commit().await.unwrap()
        } else {
            transaction.rollback().await.unwrap()
        }
        assert_eq!(inbox.get("s", "m").await.unwrap().is_some(), commit);
        let entry = inbox.get("guarded", id).await.unwrap().unwrap();
        assert_eq!(entry.state, if commit { EntryState::Done } else { EntryState::Processing });
    }
}
