//! From the schema that had an outbox alone, at version 2, to the one of today: with messages in every state, and while others work.

use std::time::Duration;

use mainstay_core::lease::Leases;
use mainstay_core::outbox::{Message, OnFailure, Outbox, OutboxStats, Retention};
use mainstay_core::queue::{ClaimBatch, ClaimRequest};
use mainstay_core::store::{Names, Provider, Queue, SchemaStatus, checksum, render};
use mainstay_core::{ErrorKind, OwnerToken};
use mainstay_postgres::{Postgres, PostgresSchema};
use mainstay_tests::{TestDatabase, eventually};

use crate::support::DEADLINE;

const STEPS: [(&str, &str); 2] = [
    ("outbox", include_str!("../../migrations/0001_outbox.sql")),
    ("floor", include_str!("../../migrations/0002_floor.sql")),
];

/// A database as version 2 has left it: the outbox's tables and functions, and nothing else.
async fn version_2() -> (TestDatabase, Postgres) {
    let database = TestDatabase::create(None).await;
    let client = database.client().await;
    let names = Names::default().of(Queue::Outbox);
    let ledger = "create schema infra; create table infra.mainstay_migration (
        outbox text not null, version integer not null, name text not null, checksum text not null,
        applied_at timestamptz not null, primary key (outbox, version))";
    client.batch_execute(ledger).await.unwrap();
    let record = async |version: i32, name: &str, checksum: &str| {
        let insert = "insert into infra.mainstay_migration values ('outbox', $1, $2, $3, now())";
        client.execute(insert, &[&version, &name, &checksum]).await.unwrap();
    };
    for ((name, sql), version) in STEPS.into_iter().zip(1..) {
        client.batch_execute(&render(sql, &names)).await.unwrap();
        record(version, name, &checksum(sql)).await;
    }
    // What one function says of another is not looked at while they are made.
    client.batch_execute("set check_function_bodies = off").await.unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/functions");
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        // Those of timers, and what came later.
        let other = ["queue_forward.sql", "queue_first_due.sql", "queue_pause.sql"].contains(&name.as_str());
        if name.starts_with("queue_") && !other {
            // Nothing could be paused.
            let paused = r#""{{schema}}"."{{queue}}_paused" p"#;
            let sql = std::fs::read_to_string(&path).unwrap();
            let sql = sql.replace(paused, "(select ''::text as topic where false) p");
            client.batch_execute(&render(&sql, &names)).await.unwrap();
        }
    }
    // There were no joins for the end of a message to count for.
    let none = "create function infra.joins_waiting() returns boolean language sql as 'select false'";
    client.batch_execute(none).await.unwrap();
    record(0, "functions", "of version 2").await;
    let postgres = Postgres::connect(&database.url()).await.unwrap();
    let status = postgres.schema().status().await.unwrap();
    assert_eq!(status, SchemaStatus::Outdated { found: 2, wanted: PostgresSchema::VERSION });
    (database, postgres)
}

async fn claim(outbox: &Outbox, owner: OwnerToken, topic: &str) -> ClaimBatch {
    let request =
        ClaimRequest::new(owner).only_topics(vec![topic.to_owned()]).lease(Duration::from_secs(600));
    outbox.claim(&request).await.unwrap()
}

/// One that was given up is due again a moment later: scheduled or ready, it is open.
fn counts(stats: &OutboxStats) -> [u64; 5] {
    [stats.ready + stats.scheduled, stats.in_progress, stats.done, stats.failed, stats.held_keys]
}

#[tokio::test]
async fn version_2_is_upgraded_with_messages_in_every_state() {
    let (database, postgres) = version_2().await;
    let outbox = Outbox::new(postgres.outbox());
    let owner = OwnerToken::new();
    let message = |topic: &str| Message::new(topic, format!("payload of {topic}"));
    let first = outbox.enqueue(message("ready").idempotency_key("once")).await.unwrap();
    outbox.enqueue(message("later").due_in(Duration::from_secs(86_400))).await.unwrap();
    for topic in ["running", "done", "failed", "again", "cancelled"] {
        outbox.enqueue(message(topic).correlation(topic).header("h", topic)).await.unwrap();
    }
    for _ in 0..2 {
        let keyed = message("keyed").ordering_key("k").on_failure(OnFailure::Hold);
        outbox.enqueue(keyed).await.unwrap();
    }
    let running = claim(&outbox, owner, "running").await;
    let done = claim(&outbox, owner, "done").await;
    outbox.ack(owner, &done.handles()).await.unwrap();
    for topic in ["failed", "keyed"] {
        let batch = claim(&outbox, owner, topic).await;
        assert_eq!(batch.handles().len(), 1, "{topic}");
        outbox.fail(owner, &batch.handles(), Some("no".to_owned())).await.unwrap();
    }
    let again = claim(&outbox, owner, "again").await;
    let settled = outbox
        .abandon(owner, &again.handles(), Some(Duration::from_millis(1)), Some("busy".to_owned()))
        .await;
    assert_eq!(settled.unwrap().changed.len(), 1);
    let cancelled = claim(&outbox, owner, "cancelled").await;
    outbox.release(owner, &cancelled.handles(), None).await.unwrap();
    let id = cancelled.handles()[0].id();
    // As that version did it: without a record, for there was no audit trail.
    let cancel = format!("select infra.outbox_cancel_items(array['{id}']::uuid[])");
    assert_eq!(database.client().await.query(&cancel, &[]).await.unwrap().len(), 1);
    let before = outbox.stats().await.unwrap();
    assert!(counts(&before).iter().all(|count| *count > 0), "{before:?}");
    assert!(before.ready > 0 && before.scheduled > 0, "{before:?}");

    let current = SchemaStatus::Current { version: PostgresSchema::VERSION };
    assert_eq!(postgres.schema().deploy().await.unwrap(), current);
    assert_eq!(postgres.schema().deploy().await.unwrap(), current, "and again");

    assert_eq!(counts(&outbox.stats().await.unwrap()), counts(&before));
    let same = outbox.enqueue(message("ready").idempotency_key("once")).await.unwrap();
    assert_eq!((same.added, same.work_item), (false, first.work_item));
    // Who had claimed before the upgrade settles after it.
    assert_eq!(outbox.ack(owner, &running.handles()).await.unwrap().changed.len(), 1);
    for (topic, attempt) in [("ready", 1), ("again", 2)] {
        let batch = claim(&outbox, owner, topic).await;
        let [claimed] = &batch.items[..] else { panic!("{topic}: {batch:?}") };
        assert_eq!((claimed.payload.as_str(), claimed.attempt), (&*format!("payload of {topic}"), attempt));
        outbox.ack(owner, &batch.handles()).await.unwrap();
    }
    assert!(claim(&outbox, owner, "keyed").await.items.is_empty(), "the key is still held");
    assert!(outbox.release_key("k").await.unwrap());
    let keyed = claim(&outbox, owner, "keyed").await;
    assert_eq!(outbox.ack(owner, &keyed.handles()).await.unwrap().changed.len(), 1);
    let failed = outbox.requeue_where(&mainstay_core::outbox::MessageFilter::all().topic("failed"), 10).await;
    assert_eq!(failed.unwrap().len(), 1);
    let failed = claim(&outbox, owner, "failed").await;
    assert_eq!(outbox.ack(owner, &failed.handles()).await.unwrap().changed.len(), 1);
    let all = Retention::default().done(Some(Duration::ZERO));
    assert!(outbox.purge(&all).await.unwrap() > 0);
    // And what is new is there.
    Leases::new(postgres.leases()).acquire("new").await.unwrap().lease().unwrap().close().await.unwrap();
    postgres.close().await;
}

/// A step that needs a table in use waits only a little, because all who settle wait behind it.
#[tokio::test]
async fn an_upgrade_that_is_held_up_gives_way_and_says_by_whom() {
    let (database, postgres) = version_2().await;
    let outbox = Outbox::new(postgres.outbox());
    let owner = OwnerToken::new();
    outbox.enqueue(Message::new("t", "")).await.unwrap();
    let batch = claim(&outbox, owner, "t").await;
    let long = database.client().await;
    long.batch_execute("begin; set application_name = 'month-end'; delete from infra.outbox_history")
        .await
        .unwrap();

    let deploy = tokio::spawn({
        let schema = postgres.schema();
        async move { schema.deploy().await }
    });
    let watch = database.client().await;
    let waiting = "select from pg_locks l join pg_class c on c.oid = l.relation
                    where c.relname = 'outbox_history' and not l.granted and l.database = (select oid from pg_database where datname = current_database())";
    eventually(DEADLINE, "the upgrade waits", async || {
        !watch.query(waiting, &[]).await.unwrap().is_empty() || deploy.is_finished()
    })
    .await;
    // Waits behind the upgrade, and no longer than that does, although the long transaction goes on.
    let settled = tokio::time::timeout(DEADLINE, outbox.ack(owner, &batch.handles())).await;
    assert_eq!(settled.expect("settling goes on").unwrap().changed.len(), 1);
    let error = deploy.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, true), "{error}");
    for words in
        ["another transaction holds", "outbox_history", "month-end", "nothing was changed", "try again"]
    {
        assert!(error.message().contains(words), "{words}: {error}");
    }
    let status = postgres.schema().status().await.unwrap();
    assert_eq!(status, SchemaStatus::Outdated { found: 2, wanted: PostgresSchema::VERSION });

    long.batch_execute("rollback").await.unwrap();
    let current = SchemaStatus::Current { version: PostgresSchema::VERSION };
    assert_eq!(postgres.schema().deploy().await.unwrap(), current);
    postgres.close().await;
}
