//! Processes die at the worst moment. Nothing is lost, nothing is done twice in the same database.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "support/mod.rs"]
mod support;

use std::collections::HashSet;
use std::time::Duration;

use mainstay::outbox::{Message, MessageFilter, Outbox, Page};
use mainstay::queue::{FailureReason, Status};
use mainstay_tests::eventually;
use support::{Database, Worker};

const DEADLINE: Duration = Duration::from_secs(120);

async fn is_settled(outbox: &Outbox) -> bool {
    outbox.stats().await.is_ok_and(|stats| stats.open() == 0)
}

async fn enqueue(outbox: &Outbox, topic: &str, count: usize) -> HashSet<String> {
    let messages = (0..count).map(|n| Message::new(topic, n.to_string())).collect();
    let enqueued = outbox.enqueue_many(messages).await.unwrap();
    enqueued.into_iter().map(|enqueued| enqueued.message.to_string()).collect()
}

/// MST-001: workers killed at any point lose no message; MST-030: effects are exactly once all the same.
async fn mst_001_killed_workers_lose_nothing(database: Database) {
    let outbox = database.outbox().await;
    let sent = enqueue(&outbox, "record", 400).await;
    let mut workers = vec![Worker::start(&database, &[]).await, Worker::start(&database, &[]).await];
    for round in 0..6 {
        // Killed after some progress, so that claims, handlers and settles are all under way somewhere.
        let goal = (round + 1) * 40;
        eventually(DEADLINE, "some more messages are done", async || {
            outbox.stats().await.is_ok_and(|stats| stats.done >= goal)
        })
        .await;
        let victim = usize::try_from(round).unwrap() % workers.len();
        workers.remove(victim).kill().await;
        workers.push(Worker::start(&database, &[]).await);
    }
    eventually(DEADLINE, "all messages are settled", async || is_settled(&outbox).await).await;
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.done, stats.failed), (400, 0));
    let effects = mainstay_e2e::effects(database.url()).await.unwrap();
    assert_eq!(effects.len(), 400, "an effect was lost or doubled");
    assert_eq!(effects.into_iter().collect::<HashSet<_>>(), sent);
}

/// MST-005: a message that kills its process stops at the delivery limit, and takes no other message along.
async fn mst_005_a_poison_message_stops_at_the_limit(database: Database) {
    let outbox = database.outbox().await;
    let arguments = ["--delivery-limit", "3"];
    enqueue(&outbox, "die", 1).await;
    let poison = outbox.list(&MessageFilter::all(), Page::default()).await.unwrap().remove(0);
    let mut deaths = 0;
    while outbox.get(poison.id).await.unwrap().unwrap().status != Status::Failed {
        assert!(deaths <= 3, "delivered more often than the limit allows");
        let mut worker = Worker::start(&database, &arguments).await;
        let failed = async {
            eventually(DEADLINE, "the poison message is failed", async || {
                outbox
                    .get(poison.id)
                    .await
                    .is_ok_and(|found| found.is_some_and(|m| m.status == Status::Failed))
            })
            .await;
        };
        tokio::select! {
            () = worker.died() => deaths += 1,
            () = failed => worker.kill().await,
        }
    }
    // A process that stalls until its lease has lapsed is delivered to without a death, so there may be fewer.
    assert!((1..=3).contains(&deaths), "{deaths} deaths");
    let ended = outbox.get(poison.id).await.unwrap().unwrap();
    assert_eq!(ended.reason, Some(FailureReason::DeliveryLimit));
    assert_eq!(ended.attempts, 3);
    // Enqueued afterwards: the queue goes on as ever.
    enqueue(&outbox, "record", 5).await;
    let worker = Worker::start(&database, &arguments).await;
    eventually(DEADLINE, "the others are done", async || is_settled(&outbox).await).await;
    worker.stop().await;
    assert_eq!(outbox.stats().await.unwrap().done, 5);
}

/// MST-002: a graceful stop leaves nothing in progress, not even what a handler would not give up.
async fn mst_002_a_graceful_stop_leaves_nothing_in_progress(database: Database) {
    let outbox = database.outbox().await;
    enqueue(&outbox, "hang", 30).await;
    // A lease so long that nothing but a release can free the messages within the test.
    let mut worker = Worker::start(&database, &["--lease-ms", "3600000"]).await;
    worker.line("hanging").await;
    worker.stop().await;
    let stats = outbox.stats().await.unwrap();
    assert_eq!((stats.ready, stats.in_progress), (30, 0));
    let found = outbox.list(&MessageFilter::all(), Page::default()).await.unwrap();
    assert!(found.iter().all(|message| message.attempts == 0), "a release must not count as a delivery");
}

/// Makes a test of each function for each kind of database.
macro_rules! on_every_database {
    ($($name:ident [$($id:literal),+]),+ $(,)?) => {
        $(mod $name {
            use super::support::{Database, not_applicable, recorded};

            const CASE: &str = stringify!($name);
            const IDS: &[&str] = &[$($id),+];

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                let reason = "one process only";
                not_applicable(CASE, IDS, &["sqlite-memory"], reason);
                recorded(CASE, IDS, "sqlite-file", super::$name(Database::sqlite().await)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                recorded(CASE, IDS, "postgres", super::$name(Database::postgres().await)).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn pgbouncer() {
                recorded(CASE, IDS, "postgres-pgbouncer", super::$name(Database::pgbouncer().await)).await;
            }
        })+
    };
}

on_every_database!(
    mst_001_killed_workers_lose_nothing["MST-001", "MST-030", "R2"],
    mst_002_a_graceful_stop_leaves_nothing_in_progress["MST-002", "R12"],
    mst_005_a_poison_message_stops_at_the_limit["MST-005", "R3"],
);
