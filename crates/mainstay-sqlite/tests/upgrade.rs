//! From the schema that had an outbox alone, at version 1, to the one of today, with messages in every state.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::audit::{Audit, AuditEvent, AuditFilter, AuditPage};
use mainstay_core::lease::Leases;
use mainstay_core::operation::{NewOperation, Operations};
use mainstay_core::outbox::{Message, MessageFilter, OnFailure, Outbox, OutboxStats, Retention};
use mainstay_core::queue::{ClaimBatch, ClaimRequest};
use mainstay_core::store::{Names, Provider, SchemaStatus, checksum};
use mainstay_sqlite::{MIGRATIONS, Sqlite};

/// A file as this version has left it.
fn version(path: &std::path::Path, version: usize) -> rusqlite::Connection {
    let connection = rusqlite::Connection::open(path).unwrap();
    let ledger = "CREATE TABLE infra_mainstay_migration (
        outbox TEXT NOT NULL COLLATE NOCASE, version INTEGER NOT NULL, name TEXT NOT NULL, checksum TEXT NOT NULL,
        applied_at INTEGER NOT NULL, PRIMARY KEY (outbox, version));";
    connection.execute_batch(ledger).unwrap();
    for step in &MIGRATIONS[..version] {
        connection.execute_batch(&step.render(&Names::default())).unwrap();
        let insert = "INSERT INTO infra_mainstay_migration VALUES ('outbox', ?1, ?2, ?3, 0)";
        connection.execute(insert, (step.version, step.name, &checksum(step.sql))).unwrap();
    }
    connection
}

#[tokio::test]
async fn version_9_keeps_what_records_are_about_and_what_operations_are_found_by() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    let aside = version(&path, 9);
    let sqlite = Sqlite::open(&path).await.unwrap();
    let audit = Audit::new(sqlite.audit()).by("alice");
    for number in 0..50 {
        let event = AuditEvent::new("order.changed").anchor("order", number.to_string()).anchor("shop", "a");
        audit.write(event).await.unwrap();
    }
    let operations = Operations::new(sqlite.operations());
    let operation =
        operations.start(NewOperation::new("import").tag("shop", "a").tag("file", "b")).await.unwrap();
    let order = AuditFilter::all().anchor("order", "7");
    let before = audit.list(&order, AuditPage::default()).await.unwrap();
    assert_eq!(before.len(), 1);

    sqlite.schema().deploy().await.unwrap();
    assert_eq!(audit.list(&order, AuditPage::default()).await.unwrap(), before);
    let count = |table: &str| -> i64 {
        aside.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    // And those of the deployment itself.
    assert_eq!(count("infra_audit_anchor WHERE kind <> 'schema'"), 100);
    assert_eq!(count("infra_operations_tag"), 2);
    assert_eq!(operations.get(operation).await.unwrap().unwrap().tags.len(), 2);
    for refused in ["UPDATE infra_audit_anchor SET kind = 'x'", "DELETE FROM infra_audit_anchor"] {
        let error = aside.execute_batch(refused).unwrap_err().to_string();
        assert!(error.contains("append-only"), "{refused}: {error}");
    }
    assert_eq!(aside.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0)).unwrap(), "ok");
    sqlite.close().await;
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
async fn version_1_is_upgraded_with_messages_in_every_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    version(&path, 1);
    let sqlite = Sqlite::open(&path).await.unwrap();
    let wanted = MIGRATIONS.last().unwrap().version;
    assert_eq!(sqlite.schema().status().await.unwrap(), SchemaStatus::Outdated { found: 1, wanted });
    // Version 1 asked neither for joins nor for what is paused; this program does, and finds none.
    let aside = rusqlite::Connection::open(&path).unwrap();
    let new = "CREATE TABLE infra_joins (status INTEGER); CREATE TABLE infra_outbox_paused (topic TEXT)";
    aside.execute_batch(new).unwrap();
    let outbox = Outbox::new(sqlite.outbox());
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
    assert_eq!(outbox.store().cancel(&[id], None).await.unwrap(), [id]);
    let before = outbox.stats().await.unwrap();
    assert!(counts(&before).iter().all(|count| *count > 0), "{before:?}");
    assert!(before.ready > 0 && before.scheduled > 0, "{before:?}");

    aside.execute_batch("DROP TABLE infra_joins; DROP TABLE infra_outbox_paused").unwrap();
    let current = SchemaStatus::Current { version: wanted };
    assert_eq!(sqlite.schema().deploy().await.unwrap(), current);
    assert_eq!(sqlite.schema().deploy().await.unwrap(), current, "and again");

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
    let failed = outbox.requeue_where(&MessageFilter::all().topic("failed"), 10).await;
    assert_eq!(failed.unwrap().len(), 1);
    let failed = claim(&outbox, owner, "failed").await;
    assert_eq!(outbox.ack(owner, &failed.handles()).await.unwrap().changed.len(), 1);
    let all = Retention::default().done(Some(Duration::ZERO));
    assert!(outbox.purge(&all).await.unwrap() > 0);
    // And what is new is there.
    Leases::new(sqlite.leases()).acquire("new").await.unwrap().lease().unwrap().close().await.unwrap();
    sqlite.close().await;
}
