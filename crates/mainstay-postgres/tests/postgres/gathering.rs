//! Enqueues that share a commit.

use futures_util::future::join_all;
use futures_util::poll;
use mainstay_core::outbox::{Enqueued, Message, Outbox};
use mainstay_core::queue::Status;
use mainstay_core::{ErrorKind, OwnerToken, Result, WorkItemId};
use mainstay_tests::eventually;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use crate::support::{DEADLINE, Fixture};

/// Statements that wait for another transaction to end.
const WAITING: &str = "select count(*) from pg_stat_activity
                        where datname = current_database() and wait_event_type = 'Lock' and wait_event = 'transactionid'";

/// Keeps every insert waiting until `unlock`.
async fn lock(client: &Client) {
    client.batch_execute("begin; lock table infra.outbox in exclusive mode").await.unwrap();
}

async fn unlock(client: &Client) {
    client.batch_execute("commit").await.unwrap();
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// Waits until so many statements wait for the lock.
async fn blocked(client: &Client, statements: i64) {
    const WAITING: &str =
        "select count(*) from pg_locks where relation = 'infra.outbox'::regclass and not granted";
    eventually(DEADLINE, "statements wait for the lock", async || count(client, WAITING).await == statements)
        .await;
}

/// Two calls whose statements wait for the lock: as many as may be under way.
async fn occupy(outbox: &Outbox, client: &Client) -> Vec<JoinHandle<Result<Enqueued>>> {
    let mut calls = Vec::new();
    for statements in 1..=2 {
        let outbox = outbox.clone();
        calls.push(tokio::spawn(async move { outbox.enqueue(Message::new("t", "first")).await }));
        blocked(client, statements).await;
    }
    calls
}

#[tokio::test]
async fn callers_who_come_during_a_commit_share_the_next() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let client = fixture.database.client().await;
    lock(&client).await;
    let first = occupy(&outbox, &client).await;
    let rest = join_all((0..100).map(|n| outbox.enqueue(Message::new("t", format!("{n}")))));
    let mut rest = std::pin::pin!(rest);
    assert!(poll!(&mut rest).is_pending());
    unlock(&client).await;
    for enqueued in rest.await {
        assert!(enqueued.unwrap().added);
    }
    for call in first {
        assert!(call.await.unwrap().unwrap().added);
    }
    assert_eq!(fixture.open().await, 102);
    // The two that went at once, and all others in one or two.
    let commits = count(&client, "select count(distinct xmin::text) from infra.outbox").await;
    assert!((3..=4).contains(&commits), "{commits} commits");
    fixture.end().await;
}

#[tokio::test]
async fn one_that_is_refused_harms_no_other() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let client = fixture.database.client().await;
    client.batch_execute("alter table infra.outbox add check (payload <> 'bad')").await.unwrap();
    lock(&client).await;
    let first = occupy(&outbox, &client).await;
    let good = join_all((0..20).map(|_| outbox.enqueue(Message::new("t", "good"))));
    let mut good = std::pin::pin!(good);
    assert!(poll!(&mut good).is_pending());
    let bad = outbox.enqueue(Message::new("t", "bad"));
    let mut bad = std::pin::pin!(bad);
    assert!(poll!(&mut bad).is_pending());
    unlock(&client).await;
    let (good, bad) = tokio::join!(good, bad);
    assert!(good.into_iter().all(|enqueued| enqueued.is_ok()));
    for call in first {
        call.await.unwrap().unwrap();
    }
    assert_eq!(bad.unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(fixture.open().await, 22);
    fixture.end().await;
}

#[tokio::test]
async fn another_transaction_holds_up_only_callers_with_its_id() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let mut client = fixture.database.client().await;
    let id = WorkItemId::new();
    let mine = |payload: &str| Message::new("t", payload).work_item_id(id);
    let mut elsewhere = client.transaction().await.unwrap();
    outbox.enqueue_in(&mut elsewhere, mine("first")).await.unwrap();

    // As many as may be under way at once. One waits for that transaction, and the other one for it.
    let again = join_all(["second", "third"].map(|payload| {
        let (outbox, message) = (outbox.clone(), mine(payload));
        tokio::spawn(async move { outbox.enqueue(message).await })
    }));
    let observer = fixture.database.client().await;
    eventually(DEADLINE, "one waits", async || count(&observer, WAITING).await == 1).await;
    let other = tokio::time::timeout(DEADLINE, outbox.enqueue(Message::new("t", "other"))).await;
    assert!(other.expect("it does not wait with them").unwrap().added);

    elsewhere.commit().await.unwrap();
    for refused in again.await {
        let error = refused.unwrap().unwrap_err();
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false));
        assert_eq!(error.existing().map(|item| (item.id, item.status)), Some((id, Status::Ready)));
    }
    assert_eq!(fixture.open().await, 2);
    fixture.end().await;
}

#[tokio::test]
async fn an_id_that_is_settled_while_its_enqueue_waits_is_refused() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let client = fixture.database.client().await;
    let id = WorkItemId::new();
    // Nothing of this can be seen before it is committed, and afterwards nothing of it is open.
    let one_transaction = format!(
        "begin;
         select infra.outbox_enqueue('t', '', work_item_id => '{id}');
         select infra.outbox_claim('{owner}', 30, 1);
         select infra.outbox_ack('{owner}', array['{id}']::uuid[])",
        owner = OwnerToken::new()
    );
    client.batch_execute(&one_transaction).await.unwrap();
    let late = tokio::spawn(async move { outbox.enqueue(Message::new("t", "").work_item_id(id)).await });
    let observer = fixture.database.client().await;
    eventually(DEADLINE, "the insert waits", async || count(&observer, WAITING).await == 1).await;
    client.batch_execute("commit").await.unwrap();
    let error = late.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(error.existing().map(|item| (item.id, item.status)), Some((id, Status::Done)));
    assert_eq!(fixture.open().await, 0, "what was refused left nothing behind");
    fixture.end().await;
}

#[tokio::test]
async fn a_caller_who_leaves_takes_only_its_own_along() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let client = fixture.database.client().await;
    lock(&client).await;
    let first = occupy(&outbox, &client).await;
    let mut gone = Box::pin(outbox.enqueue(Message::new("gone", "")));
    assert!(poll!(&mut gone).is_pending());
    let stays = join_all((0..20).map(|_| outbox.enqueue(Message::new("t", "stays"))));
    let mut stays = std::pin::pin!(stays);
    assert!(poll!(&mut stays).is_pending());
    // One that waits leaves, and both whose statements the others wait for.
    drop(gone);
    for call in first {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    unlock(&client).await;
    assert!(stays.await.into_iter().all(|enqueued| enqueued.is_ok()));
    assert_eq!(count(&client, "select count(*) from infra.outbox where payload = 'stays'").await, 20);
    assert_eq!(count(&client, "select count(*) from infra.outbox where topic = 'gone'").await, 0);
    fixture.end().await;
}

#[tokio::test]
async fn a_runtime_that_ends_leaves_nobody_waiting() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let client = fixture.database.client().await;
    lock(&client).await;
    let elsewhere = outbox.clone();
    let (go, mut goes) = mpsc::unbounded_channel::<()>();
    let other = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            while goes.recv().await.is_some() {
                let outbox = elsewhere.clone();
                tokio::spawn(async move { outbox.enqueue(Message::new("t", "elsewhere")).await });
            }
        });
    });
    for statements in 1..=2 {
        go.send(()).unwrap();
        blocked(&client, statements).await;
    }
    let waits = join_all((0..20).map(|_| outbox.enqueue(Message::new("t", "waits"))));
    let mut waits = std::pin::pin!(waits);
    assert!(poll!(&mut waits).is_pending());
    drop(go);
    tokio::task::spawn_blocking(move || other.join().unwrap()).await.unwrap();
    unlock(&client).await;
    // Carried on by somebody else, or told that nobody will; never left.
    let ended = tokio::time::timeout(DEADLINE, waits).await.expect("nobody is left waiting");
    let carried = ended.iter().filter(|enqueued| enqueued.is_ok()).count() as i64;
    for error in ended.iter().filter_map(|enqueued| enqueued.as_ref().err()) {
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert_eq!(count(&client, "select count(*) from infra.outbox where payload = 'waits'").await, carried);
    fixture.enqueue("afterwards").await;
    fixture.end().await;
}

#[tokio::test]
async fn calls_that_nobody_polls_stop_nobody() {
    let fixture = Fixture::new().await;
    let outbox = fixture.outbox.clone();
    let mut held: Vec<_> = (0..5).map(|_| Box::pin(outbox.enqueue(Message::new("t", "held")))).collect();
    for call in &mut held {
        assert!(poll!(call).is_pending());
    }
    let other = tokio::time::timeout(DEADLINE, outbox.enqueue(Message::new("t", "other"))).await;
    assert!(other.expect("nobody is left waiting").unwrap().added);
    for call in held {
        assert!(call.await.unwrap().added);
    }
    assert_eq!(fixture.open().await, 6);
}
