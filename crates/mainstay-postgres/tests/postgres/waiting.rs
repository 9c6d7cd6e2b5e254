//! Waiting for work: woken at once where the server can, by polling where it can't, and nothing is missed either way.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::Message;
use mainstay_core::queue::ClaimRequest;
use mainstay_core::runtime::Mainstay;
use mainstay_core::store::{OutboxStore, Provider, WaitRequest, Wake};
use mainstay_postgres::Postgres;
use mainstay_tests::{CapturedLogs, FaultProxy, TestPostgres, eventually};
use tracing::Level;

use crate::support::{DEADLINE, Fixture, database};

/// Longer than any test: a wait that ends was woken.
const LONG: Duration = Duration::from_secs(3_600);

async fn wait(store: &Arc<dyn OutboxStore>, consumer: OwnerToken) -> Wake {
    tokio::time::timeout(DEADLINE, store.wait(&WaitRequest::new(consumer).timeout(LONG)))
        .await
        .expect("the wait ends")
        .unwrap()
}

/// Waits until the listener has begun, which wakes everybody once.
async fn listening(store: &Arc<dyn OutboxStore>, consumer: OwnerToken) {
    assert_eq!(wait(store, consumer).await, Wake::Notified);
}

/// How many consumers have declared themselves idle.
async fn idle(fixture: &Fixture) -> usize {
    let client = fixture.database.client().await;
    client.query("select from infra.outbox_waiter where until > now()", &[]).await.unwrap().len()
}

#[tokio::test]
async fn a_notification_ends_the_wait() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let store = fixture.store.clone();
    let waits = tokio::spawn(async move { wait(&store, consumer).await });
    eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
    // Without a message there is nothing that polling could find.
    let client = fixture.database.client().await;
    client.batch_execute("select pg_notify(infra.outbox_channel(), '')").await.unwrap();
    assert_eq!(waits.await.unwrap(), Wake::Notified);
}

#[tokio::test]
async fn an_enqueue_ends_the_wait_of_an_idle_consumer() {
    let fixture = Fixture::new().await;
    let first = OwnerToken::new();
    listening(&fixture.store, first).await;
    fixture.store.leave(first).await;
    for _ in 0..20 {
        // A new one each time: the same would find itself in a flow.
        let consumer = OwnerToken::new();
        let store = fixture.store.clone();
        let waits = tokio::spawn(async move { wait(&store, consumer).await });
        eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
        fixture.enqueue("x").await;
        assert_ne!(waits.await.unwrap(), Wake::TimedOut);
        let batch = fixture.outbox.claim(&ClaimRequest::new(consumer)).await.unwrap();
        assert_eq!(batch.items.len(), 1);
        fixture.outbox.ack(consumer, &batch.handles()).await.unwrap();
        fixture.store.leave(consumer).await;
    }
}

#[tokio::test]
async fn a_consumer_that_is_notified_in_vain_stops_asking_for_it() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let client = fixture.database.client().await;
    let waiting = || {
        let store = fixture.store.clone();
        tokio::spawn(async move { wait(&store, consumer).await })
    };
    for _ in 0..3 {
        let waits = waiting();
        eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
        client.batch_execute("select pg_notify(infra.outbox_channel(), '')").await.unwrap();
        assert_eq!(waits.await.unwrap(), Wake::Notified);
        let batch = fixture.outbox.claim(&ClaimRequest::new(consumer)).await.unwrap();
        assert!(batch.items.is_empty());
    }
    let waits = waiting();
    eventually(DEADLINE, "it takes its declaration back", async || idle(&fixture).await == 0).await;
    // It still looks for itself.
    fixture.enqueue("x").await;
    assert_ne!(waits.await.unwrap(), Wake::TimedOut);
}

#[tokio::test]
async fn a_transaction_that_saw_nobody_idle_is_not_missed() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let mut client = fixture.database.client().await;
    let mut tx = client.transaction().await.unwrap();
    fixture.outbox.enqueue_in(&mut tx, Message::new("t", "")).await.unwrap();

    let store = fixture.store.clone();
    let waits = tokio::spawn(async move { wait(&store, consumer).await });
    eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
    // It commits without a notification.
    tx.commit().await.unwrap();
    assert_eq!(waits.await.unwrap(), Wake::Due);
}

#[tokio::test]
async fn work_that_is_due_ends_the_wait() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    fixture.enqueue("now").await;
    assert_eq!(wait(&fixture.store, consumer).await, Wake::Due);
    fixture.outbox.claim(&ClaimRequest::new(consumer)).await.unwrap();
    let later = Message::new("t", "later").due_in(Duration::from_millis(400));
    fixture.outbox.enqueue(later).await.unwrap();
    eventually(DEADLINE, "it becomes due", async || {
        wait(&fixture.store, consumer).await;
        !fixture.claim().await.items.is_empty()
    })
    .await;
    let timed_out =
        fixture.store.wait(&WaitRequest::new(consumer).timeout(Duration::from_millis(20))).await.unwrap();
    assert_eq!(timed_out, Wake::TimedOut);
}

#[tokio::test]
async fn topics_that_are_not_claimed_do_not_end_the_wait() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    fixture.outbox.enqueue(Message::new("other", "")).await.unwrap();
    let request = ClaimRequest::new(consumer).only_topics(vec!["mine".to_owned()]);
    assert!(fixture.outbox.claim(&request).await.unwrap().items.is_empty());
    assert_eq!(wait(&fixture.store, consumer).await, Wake::Due, "whoever wants all topics has work");
    let mine = WaitRequest::new(consumer).only_topics(vec!["mine".to_owned()]);
    eventually(DEADLINE, "the listener has begun", async || {
        let short = mine.clone().timeout(Duration::from_millis(20));
        fixture.store.wait(&short).await.unwrap() == Wake::TimedOut && idle(&fixture).await == 1
    })
    .await;
    fixture.outbox.enqueue(Message::new("mine", "")).await.unwrap();
    let woken = tokio::time::timeout(DEADLINE, fixture.store.wait(&mine.timeout(LONG))).await;
    assert_ne!(woken.expect("the wait ends").unwrap(), Wake::TimedOut);
    assert_eq!(fixture.outbox.claim(&request).await.unwrap().items.len(), 1);
}

#[tokio::test]
async fn a_lost_listener_comes_back_and_wakes_everybody() {
    let database = database().await;
    let proxy = FaultProxy::for_url(&database.url()).await;
    let postgres = Postgres::connect(&proxy.url(&database.url())).await.unwrap();
    let fixture = Fixture::with(database, postgres);
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    for _ in 0..3 {
        let store = fixture.store.clone();
        let waits = tokio::spawn(async move { wait(&store, consumer).await });
        eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
        // Cut off while it has nothing under way but listening.
        proxy.cut().await;
        match tokio::time::timeout(DEADLINE, waits).await.expect("the wait ends") {
            Ok(wake) => assert_eq!(wake, Wake::Notified),
            // The cut hit a look at the database.
            Err(panic) => assert!(panic.is_panic()),
        }
    }
}

#[tokio::test]
async fn waiters_look_at_once_when_the_listener_is_lost() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let store = fixture.store.clone();
    let waits = tokio::spawn(async move { wait(&store, consumer).await });
    eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
    // Only its backend ends, and no other can take its place.
    let client = fixture.database.client().await;
    let admin = TestPostgres::admin().await;
    let lock = |allowed: bool| {
        format!("alter database {} with allow_connections {allowed}", fixture.database.name())
    };
    admin.batch_execute(&lock(false)).await.unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid() and query like 'unlisten%'";
    assert_eq!(client.query(end, &[]).await.unwrap().len(), 1, "there is one listener");
    assert_eq!(waits.await.unwrap(), Wake::Notified, "it has to look for what it did not hear");
    // Once more when notifications come again.
    let store = fixture.store.clone();
    let waits = tokio::spawn(async move { wait(&store, consumer).await });
    admin.batch_execute(&lock(true)).await.unwrap();
    assert_eq!(waits.await.unwrap(), Wake::Notified);
}

#[tokio::test]
async fn through_a_pooler_it_polls_and_says_so_once() {
    let logs = CapturedLogs::new();
    let _guard = logs.install();
    let database = database().await;
    let postgres = Postgres::connect(&database.bouncer_url()).await.unwrap();
    let fixture = Fixture::with(database, postgres);
    let consumer = OwnerToken::new();
    let told = || logs.at(Level::INFO).iter().filter(|event| event.contains("polling")).count();
    eventually(DEADLINE, "it is said", async || {
        assert_eq!(
            fixture
                .store
                .wait(&WaitRequest::new(consumer).timeout(Duration::from_millis(100)))
                .await
                .unwrap(),
            Wake::TimedOut
        );
        told() == 1
    })
    .await;
    assert_eq!(idle(&fixture).await, 0, "nobody notifies for nothing");
    fixture.enqueue("x").await;
    assert_eq!(wait(&fixture.store, consumer).await, Wake::Due);
    assert_eq!(told(), 1);
}

#[tokio::test]
async fn without_listening_it_polls() {
    let database = database().await;
    let postgres = Postgres::builder(&database.url()).listen(false).connect().await.unwrap();
    let fixture = Fixture::with(database, postgres);
    let consumer = OwnerToken::new();
    assert_eq!(
        fixture.store.wait(&WaitRequest::new(consumer).timeout(Duration::from_millis(10))).await.unwrap(),
        Wake::TimedOut
    );
    assert_eq!(idle(&fixture).await, 0);
    fixture.enqueue("x").await;
    assert_eq!(wait(&fixture.store, consumer).await, Wake::Due);
}

/// Statements the database has run, by transactions ended.
async fn transactions(fixture: &Fixture) -> i64 {
    let client = fixture.database.client().await;
    let sql = "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn an_idle_consumer_asks_little_and_a_busy_one_takes_its_declaration_back() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let before = transactions(&fixture).await;
    for _ in 0..3 {
        fixture.store.wait(&WaitRequest::new(consumer).timeout(Duration::from_millis(500))).await.unwrap();
    }
    // A dozen looks while transactions of other tests are under way; without a pause there would be thousands.
    let asked = transactions(&fixture).await - before;
    assert!(asked < 60, "{asked} statements in three waits");
    assert_eq!(idle(&fixture).await, 1);

    fixture.outbox.enqueue_many((0..4).map(|_| Message::new("t", "")).collect()).await.unwrap();
    let request = ClaimRequest::new(consumer).batch(2);
    fixture.outbox.claim(&request).await.unwrap();
    fixture.outbox.claim(&request).await.unwrap();
    assert_eq!(idle(&fixture).await, 0);
}

#[tokio::test]
async fn a_consumer_that_leaves_takes_its_declaration_back() {
    let fixture = Fixture::new().await;
    let consumer = OwnerToken::new();
    listening(&fixture.store, consumer).await;
    let store = fixture.store.clone();
    let waits = tokio::spawn(async move { wait(&store, consumer).await });
    eventually(DEADLINE, "the consumer is idle", async || idle(&fixture).await == 1).await;
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    fixture.store.leave(OwnerToken::new()).await;
    assert_eq!(idle(&fixture).await, 1, "somebody else's is not ours to take back");
    fixture.store.leave(consumer).await;
    assert_eq!(idle(&fixture).await, 0);
    fixture.store.leave(consumer).await;
}

#[tokio::test]
async fn a_dispatcher_that_stops_takes_its_declaration_back() {
    let fixture = Fixture::new().await;
    let mainstay = Mainstay::builder_over(Arc::new(fixture.postgres.clone()))
        .outbox(|outbox| outbox.raw_handler("t", |_| std::future::ready(())))
        .build()
        .unwrap();
    let running = mainstay.start().await.unwrap();
    eventually(DEADLINE, "the dispatcher is idle", async || idle(&fixture).await == 1).await;
    running.stop().await.unwrap();
    assert_eq!(idle(&fixture).await, 0);
}

#[tokio::test]
async fn work_that_others_have_locked_does_not_spin() {
    let fixture = Fixture::new().await;
    fixture.enqueue("x").await;
    let rival = fixture.database.client().await;
    rival.batch_execute("begin; select from infra.outbox for update").await.unwrap();
    let consumer = OwnerToken::new();
    let before = transactions(&fixture).await;
    let started = tokio::time::Instant::now();
    let mut rounds = 0;
    while started.elapsed() < Duration::from_secs(2) {
        fixture.store.wait(&WaitRequest::new(consumer).timeout(LONG)).await.unwrap();
        assert!(fixture.outbox.claim(&ClaimRequest::new(consumer)).await.unwrap().items.is_empty());
        rounds += 1;
    }
    let asked = transactions(&fixture).await - before;
    assert!(rounds < 60, "{rounds} rounds with {asked} statements");
    rival.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn the_outbox_outlives_the_provider() {
    let database = database().await;
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let store = postgres.outbox();
    drop(postgres);
    let consumer = OwnerToken::new();
    listening(&store, consumer).await;
    assert_eq!(
        store.wait(&WaitRequest::new(consumer).timeout(Duration::from_millis(10))).await.unwrap(),
        Wake::TimedOut
    );
    drop(store);
    let client = database.client().await;
    let others =
        "select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    eventually(DEADLINE, "its connections end with it", async || {
        client.query(others, &[]).await.unwrap().is_empty()
    })
    .await;
}
