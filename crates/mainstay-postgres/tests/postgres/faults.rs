//! Servers that die, connections that break, futures that are dropped: nothing acknowledged is lost, nothing is left open.

use std::collections::HashSet;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Outcome, Settlement, Status};
use mainstay_core::store::{OutboxStore, Provider, WaitRequest};
use mainstay_core::{ErrorKind, OwnerToken, WorkItemId};
use mainstay_postgres::{Postgres, PostgresTransaction};
use mainstay_tests::{FaultProxy, OwnCluster, eventually};

use crate::support::{DEADLINE, Fixture, database, somebody_waits};

/// What the workers of a test know.
#[derive(Default)]
struct Ledger {
    enqueued: Mutex<HashSet<WorkItemId>>,
    acked: Mutex<HashSet<WorkItemId>>,
    stop: AtomicBool,
}

async fn produce(outbox: Outbox, ledger: Arc<Ledger>) {
    while !ledger.stop.load(Ordering::Relaxed) {
        match outbox.enqueue(Message::new("t", "payload")).await {
            Ok(enqueued) => drop(ledger.enqueued.lock().unwrap().insert(enqueued.work_item)),
            Err(error) => transient(&error).await,
        }
    }
}

async fn consume(outbox: Outbox, ledger: Arc<Ledger>) {
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).lease(Duration::from_secs(2));
    loop {
        let batch = match outbox.claim(&request).await {
            Ok(batch) if batch.items.is_empty() && ledger.stop.load(Ordering::Relaxed) => return,
            Ok(batch) => batch,
            Err(error) => {
                transient(&error).await;
                continue;
            }
        };
        for item in &batch.items {
            assert!(!ledger.acked.lock().unwrap().contains(&item.id()), "delivered after its ack");
        }
        match outbox.ack(owner, &batch.handles()).await {
            Ok(settled) => ledger.acked.lock().unwrap().extend(settled.changed),
            Err(error) => transient(&error).await,
        }
        tokio::task::yield_now().await;
    }
}

/// Errors of a server that goes down and comes up are told apart from mistakes.
async fn transient(error: &mainstay_core::Error) {
    assert!(error.is_retryable(), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    tokio::task::yield_now().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mst_003_a_server_killed_under_load_comes_back_and_nothing_is_lost() {
    let cluster = OwnCluster::create().await;
    let postgres = Postgres::connect(cluster.url()).await.unwrap();
    postgres.schema().deploy().await.unwrap();
    let outbox = Outbox::new(postgres.outbox());
    let ledger = Arc::new(Ledger::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..3 {
        tasks.spawn(produce(outbox.clone(), Arc::clone(&ledger)));
        tasks.spawn(consume(outbox.clone(), Arc::clone(&ledger)));
    }
    for _ in 0..3 {
        let before = ledger.acked.lock().unwrap().len();
        eventually(DEADLINE, "messages go through", async || {
            ledger.acked.lock().unwrap().len() >= before + 50
        })
        .await;
        cluster.kill().await;
        cluster.start().await;
    }
    ledger.stop.store(true, Ordering::Relaxed);
    let drained = async {
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap()
        }
    };
    tokio::time::timeout(DEADLINE, drained).await.expect("the workers end");

    // What was claimed when the server died comes back when its lease has lapsed.
    eventually(DEADLINE, "nothing is left", async || {
        let owner = OwnerToken::new();
        let batch = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        outbox.ack(owner, &batch.handles()).await.unwrap();
        outbox.stats().await.unwrap().open() == 0
    })
    .await;
    let enqueued = ledger.enqueued.lock().unwrap().clone();
    for id in enqueued {
        let message = outbox.get(id).await.unwrap().expect("an acknowledged message is there");
        assert_eq!(message.status, Status::Done);
    }
}

#[tokio::test]
async fn a_connection_cut_midway_harms_only_the_operation_on_it() {
    let database = database().await;
    let proxy = FaultProxy::for_url(&database.url()).await;
    let postgres = Postgres::connect(&proxy.url(&database.url())).await.unwrap();
    let fixture = Fixture::with(database, postgres);
    let mut there = 0;
    for _ in 0..40 {
        let enqueue = fixture.outbox.enqueue(Message::new("t", ""));
        let (result, ()) = tokio::join!(enqueue, proxy.cut());
        match result {
            Ok(_) => there += 1,
            Err(error) => transient(&error).await,
        }
    }
    eventually(DEADLINE, "the store works again", async || fixture.outbox.stats().await.is_ok()).await;
    // Those that failed may have been committed before the answer was lost, but none that succeeded is missing.
    assert!(fixture.open().await >= there);
}

#[tokio::test]
async fn an_operation_on_a_stalled_connection_can_be_given_up() {
    let database = database().await;
    let proxy = FaultProxy::for_url(&database.url()).await;
    let url = proxy.url(&database.url());
    let postgres = Postgres::builder(&url).pool_size(1).connect().await.unwrap();
    let fixture = Fixture::with(database, postgres);
    fixture.enqueue("before").await;
    proxy.stall(true);
    let gave_up = tokio::time::timeout(Duration::from_millis(50), fixture.outbox.stats()).await;
    assert!(gave_up.is_err());
    proxy.stall(false);
    // The only connection of the pool was lost with it, and another is made.
    fixture.enqueue("after").await;
}

/// Polls a future so many times, and then drops it.
async fn poll_times<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    // Polled again when it asks for it, as anywhere.
    std::future::poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// A handler's transaction from beginning to end.
async fn transaction(store: Arc<dyn OutboxStore>, owner: OwnerToken, ack: Settlement, outbox: Outbox) {
    let mut tx = store.begin().await.unwrap();
    let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
    own.client().unwrap().batch_execute("select 1").await.unwrap();
    outbox.enqueue_in(own, Message::new("in-transaction", "")).await.unwrap();
    tx.settle(owner, &[ack]).await.unwrap();
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn futures_can_be_dropped_at_any_await() {
    let database = database().await;
    let postgres = Postgres::builder(&database.url()).pool_size(2).connect().await.unwrap();
    let fixture = Fixture::with(database, postgres);
    let outbox = &fixture.outbox;
    let owner = OwnerToken::new();
    let request = ClaimRequest::new(owner).batch(1);
    for times in 0..60 {
        fixture.enqueue("x").await;
        poll_times(outbox.enqueue(Message::new("t", "")), times).await;
        poll_times(outbox.claim(&request), times).await;
        let batch = outbox.claim(&request).await.unwrap();
        let ack = Settlement { claim: batch.items[0].handle, outcome: Outcome::Ack };
        poll_times(transaction(fixture.store.clone(), owner, ack.clone(), outbox.clone()), times).await;
        poll_times(outbox.settle(owner, &[ack]), times).await;
        poll_times(fixture.store.wait(&WaitRequest::new(owner).timeout(Duration::from_millis(1))), times)
            .await;
        poll_times(fixture.postgres.schema().deploy(), times).await;
    }
    let client = fixture.database.client().await;
    let open = "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and xact_start is not null";
    eventually(DEADLINE, "no transaction is left open", async || {
        client.query(open, &[]).await.unwrap().is_empty()
    })
    .await;
    // Each ack and the message of its transaction came together: with every such message one item went.
    let stats = outbox.stats().await.unwrap();
    let sent = stats
        .topics
        .iter()
        .find(|topic| topic.topic == "in-transaction")
        .map_or(0, |topic| topic.ready + topic.in_progress);
    assert!(stats.done >= sent, "{stats:?}");
    // And the pool, small as it is, is as good as new.
    for _ in 0..10 {
        fixture.postgres.now().await.unwrap();
    }
    fixture.end().await;
}

#[tokio::test]
async fn a_transaction_dropped_rolls_back_and_one_that_failed_does_not_commit() {
    let fixture = Fixture::new().await;
    fixture.enqueue("x").await;
    let owner = OwnerToken::new();
    let batch = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    let ack = [Settlement { claim: batch.items[0].handle, outcome: Outcome::Ack }];

    let mut tx = fixture.store.begin().await.unwrap();
    tx.settle(owner, &ack).await.unwrap();
    drop(tx);
    eventually(DEADLINE, "the row is free again", async || {
        let renewed = fixture.outbox.renew(owner, &batch.handles(), Duration::from_secs(30)).await.unwrap();
        renewed.changed.len() == 1
    })
    .await;

    let mut tx = fixture.store.begin().await.unwrap();
    tx.settle(owner, &ack).await.unwrap();
    let own = tx.as_any_mut().downcast_mut::<PostgresTransaction>().unwrap();
    // A handler that overlooks an error of its own.
    own.client().unwrap().batch_execute("select 1/0").await.unwrap_err();
    let error = tx.commit().await.unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, false));
    let message = fixture.outbox.get(batch.items[0].id()).await.unwrap().unwrap();
    assert_eq!(message.status, Status::InProgress);
}

#[tokio::test]
async fn obx_082_a_deadlock_is_tried_again() {
    let fixture = Fixture::new().await;
    // Long enough for the other side to close the circle before the server looks for one.
    let admin = fixture.database.client().await;
    let set = format!("alter database {} set deadlock_timeout = '2s'", fixture.database.name());
    admin.batch_execute(&set).await.unwrap();
    fixture.outbox.enqueue_many(vec![Message::new("t", "a"), Message::new("t", "b")]).await.unwrap();
    let owner = OwnerToken::new();
    let batch = fixture.outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    let mut ids: Vec<_> = batch.items.iter().map(|item| item.id().as_uuid()).collect();
    ids.sort();

    let rival = fixture.database.client().await;
    rival.batch_execute("set deadlock_timeout = '1h'; begin").await.unwrap();
    let lock = "select from infra.outbox where id = $1 for update";
    rival.query(lock, &[&ids[1]]).await.unwrap();
    let (outbox, handles) = (fixture.outbox.clone(), batch.handles());
    let acks = tokio::spawn(async move { outbox.ack(owner, &handles).await });
    eventually(DEADLINE, "the ack waits", async || somebody_waits(&admin).await).await;
    // Now each waits for the other, until the server ends the ack.
    rival.query(lock, &[&ids[0]]).await.unwrap();
    rival.batch_execute("commit").await.unwrap();
    assert_eq!(acks.await.unwrap().unwrap().changed.len(), 2);
}
