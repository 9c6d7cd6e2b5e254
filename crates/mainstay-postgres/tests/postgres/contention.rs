//! Transactions of other clients that stay open: they hold up calls for the same ids and keys, and nothing else.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_core::inbox::{Inbox, Incoming};
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::ClaimRequest;
use mainstay_core::store::Provider;
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use mainstay_postgres::Postgres;
use mainstay_tests::eventually;
use tokio::task::JoinHandle;
use tokio_postgres::IsolationLevel;

use crate::support::{DEADLINE, Fixture, somebody_waits};

const POOL: usize = 4;

/// A provider with a small pool that soon says that it has no connection.
async fn small(fixture: &Fixture) -> Postgres {
    let postgres = Postgres::builder(&fixture.database.url()).pool_size(POOL).listen(false);
    postgres.acquire_timeout(Duration::from_secs(10)).connect().await.unwrap()
}

/// A plain enqueue, a claim, a renewal and a settle, none of which another transaction may hold up.
async fn works(outbox: &Outbox) {
    let owner = OwnerToken::new();
    outbox.enqueue(Message::new("t", "plain")).await.expect("an enqueue goes on");
    let batch = outbox.claim(&ClaimRequest::new(owner)).await.expect("a claim goes on");
    let lease = Duration::from_secs(30);
    let renewed = outbox.renew(owner, &batch.handles(), lease).await.expect("a renewal goes on");
    assert_eq!(renewed.changed.len(), batch.items.len());
    assert_eq!(outbox.ack(owner, &batch.handles()).await.unwrap().changed.len(), batch.items.len());
}

fn spawn_all<T: Send + 'static>(
    calls: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<JoinHandle<T>> {
    calls.into_iter().map(tokio::spawn).collect()
}

/// While twice as many calls as the pool has connections wait for an open transaction that has added their messages.
async fn goes_on_beside(messages: Vec<Message>, first: &[Message]) {
    let fixture = Fixture::new().await;
    let postgres = small(&fixture).await;
    let outbox = Outbox::new(postgres.outbox());
    let mut client = fixture.database.client().await;
    let mut elsewhere = client.transaction().await.unwrap();
    for message in first {
        outbox.enqueue_in(&mut elsewhere, message.clone()).await.unwrap();
    }
    let waiting = spawn_all(messages.into_iter().map(|message| {
        let outbox = outbox.clone();
        async move { outbox.enqueue(message).await }
    }));
    let observer = fixture.database.client().await;
    eventually(DEADLINE, "they wait", async || somebody_waits(&observer).await).await;
    works(&outbox).await;
    let mut tx = postgres.outbox().begin().await.expect("a handler's transaction begins");
    tx.enqueue(&[]).await.unwrap();
    tx.rollback().await.unwrap();

    elsewhere.commit().await.unwrap();
    for answer in join_all(waiting).await {
        match answer.unwrap() {
            Ok(enqueued) => assert!(!enqueued.added, "only a known idempotency key is no error"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}"),
        }
    }
    assert_eq!(fixture.open().await, first.len() as u64);
    postgres.close().await;
    fixture.end().await;
}

#[tokio::test]
async fn callers_with_the_id_of_an_open_transaction_leave_connections_to_others() {
    let message = Message::new("t", "").work_item_id(WorkItemId::new());
    goes_on_beside(vec![message.clone(); 2 * POOL], &[message]).await;
}

#[tokio::test]
async fn callers_with_many_ids_of_an_open_transaction_leave_connections_to_others() {
    let messages: Vec<_> =
        (0..2 * POOL).map(|_| Message::new("t", "").work_item_id(WorkItemId::new())).collect();
    goes_on_beside(messages.clone(), &messages).await;
}

#[tokio::test]
async fn callers_with_the_idempotency_key_of_an_open_transaction_leave_connections_to_others() {
    let message = || Message::new("t", "").idempotency_key("key");
    goes_on_beside((0..2 * POOL).map(|_| message()).collect(), &[message()]).await;
}

#[tokio::test]
async fn an_open_transaction_holds_up_no_caller_with_another_id() {
    let fixture = Fixture::new().await;
    let postgres = small(&fixture).await;
    let outbox = Outbox::new(postgres.outbox());
    let mut client = fixture.database.client().await;
    let mut elsewhere = client.transaction().await.unwrap();
    let message = Message::new("t", "").work_item_id(WorkItemId::new());
    outbox.enqueue_in(&mut elsewhere, message.clone()).await.unwrap();
    let waiting = spawn_all(vec![message; 2 * POOL].into_iter().map(|message| {
        let outbox = outbox.clone();
        async move { outbox.enqueue(message).await }
    }));
    let observer = fixture.database.client().await;
    eventually(DEADLINE, "they wait", async || somebody_waits(&observer).await).await;
    let other = Message::new("t", "").work_item_id(WorkItemId::new());
    assert!(outbox.enqueue(other).await.unwrap().added);
    let other = Message::new("t", "").idempotency_key("other");
    assert!(outbox.enqueue(other).await.unwrap().added);
    // Callers that give up leave, and the rest get their answers.
    waiting[..POOL].iter().for_each(JoinHandle::abort);
    elsewhere.rollback().await.unwrap();
    let mut added = 0;
    for call in waiting.into_iter().skip(POOL) {
        added += usize::from(call.await.unwrap().is_ok());
    }
    assert!(added <= 1);
    assert_eq!(fixture.open().await, 3);
    postgres.close().await;
    fixture.end().await;
}

#[tokio::test]
async fn receptions_of_the_message_of_an_open_transaction_leave_connections_to_others() {
    let fixture = Fixture::new().await;
    let postgres = small(&fixture).await;
    let inbox = Inbox::new(&postgres);
    let outbox = Outbox::new(postgres.outbox());
    let mut client = fixture.database.client().await;
    let mut elsewhere = client.transaction().await.unwrap();
    let incoming = || Incoming::new("source", "id", Message::new("t", ""));
    inbox.enqueue_in(&mut elsewhere, incoming()).await.unwrap();
    let waiting = spawn_all((0..2 * POOL).map(|_| {
        let inbox = inbox.clone();
        async move { inbox.enqueue(incoming()).await }
    }));
    let observer = fixture.database.client().await;
    eventually(DEADLINE, "they wait", async || somebody_waits(&observer).await).await;
    works(&outbox).await;
    elsewhere.commit().await.unwrap();
    for answer in join_all(waiting).await {
        answer.unwrap().unwrap();
    }
    postgres.close().await;
    fixture.end().await;
}

#[tokio::test]
async fn a_known_id_that_an_old_snapshot_does_not_show_is_told_as_known() {
    let fixture = Fixture::new().await;
    let mut client = fixture.database.client().await;
    for level in [IsolationLevel::RepeatableRead, IsolationLevel::Serializable] {
        for own_key in [None, Some("key")] {
            let id = WorkItemId::new();
            let mut old = client.build_transaction().isolation_level(level).start().await.unwrap();
            old.batch_execute("select count(*) from infra.outbox").await.unwrap();
            fixture.outbox.enqueue(Message::new("t", "").work_item_id(id)).await.unwrap();
            let mut message = Message::new("t", "").work_item_id(id);
            if let Some(key) = own_key {
                message = message.idempotency_key(key);
            }
            let error = fixture.outbox.enqueue_in(&mut old, message).await.unwrap_err();
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false), "{error}");
            assert!(error.message().contains(&id.to_string()), "{error}");
            assert_eq!(error.existing(), None, "its status is not known");
            old.rollback().await.unwrap();
        }
    }
    fixture.end().await;
}
