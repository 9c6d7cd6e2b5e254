//! The tables are the interface for other languages: what a plain INSERT gets, and what it can't get past.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod support;

use mainstay_core::queue::ClaimRequest;
use mainstay_core::{OwnerToken, WorkItemId};
use rusqlite::params;

use support::Scratch;

#[tokio::test]
async fn the_documented_insert_is_a_message() {
    let scratch = Scratch::new().await;
    let before = jiff::Timestamp::now();
    let insert = "INSERT INTO infra_outbox (topic, payload) VALUES (?, ?)";
    for n in 0..3 {
        scratch.connect().execute(insert, params!["order.paid", n.to_string()]).unwrap();
    }
    let items = scratch.outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items;
    assert_eq!(items.iter().map(|item| item.payload.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
    let mut ids = std::collections::BTreeSet::new();
    for item in &items {
        for id in [item.id().as_uuid(), item.message_id.as_uuid()] {
            assert_eq!((id.get_version_num(), id.get_variant()), (4, uuid::Variant::RFC4122));
            ids.insert(id);
        }
        assert!(item.created_at.duration_since(before).abs() < jiff::SignedDuration::from_secs(60));
        assert_eq!((item.due_at, item.attempt, item.priority), (item.created_at, 1, 0));
    }
    assert_eq!(ids.len(), 6);
}

#[tokio::test]
async fn every_version_4_byte_occurs() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    connection
        .execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
             INSERT INTO infra_outbox (topic, payload) SELECT 't', '' FROM n",
        )
        .unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(DISTINCT substr(id, 7, 1)) FROM infra_outbox"), 16);
    assert_eq!(count("SELECT count(DISTINCT substr(id, 9, 1)) FROM infra_outbox"), 64);
    assert_eq!(count("SELECT count(DISTINCT id) FROM infra_outbox"), 5_000);
}

#[tokio::test]
async fn the_optional_columns_are_taken() {
    let scratch = Scratch::new().await;
    scratch
        .connect()
        .execute(
            "INSERT INTO infra_outbox (topic, payload, correlation_id, due_at, expires_at, priority, ordering_key, headers)
             VALUES ('t', '', 'c', 1000000, 4000000000000000, 9, 'k', '{\"a\":\"b\"}')",
            [],
        )
        .unwrap();
    let item = scratch.outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items.remove(0);
    assert_eq!(
        (item.priority, item.ordering_key.as_deref(), item.headers["a"].as_str()),
        (9, Some("k"), "b")
    );
    assert_eq!((item.correlation_id.as_deref(), item.due_at.as_second()), (Some("c"), 1));
    assert!(item.expires_at.is_some());
}

#[tokio::test]
async fn what_breaks_the_rules_is_refused_by_name() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    let cases = [
        ("topic, payload", "'', ''", "topic_is_1_to_255"),
        ("topic, payload", "printf('%.256c', 'x'), ''", "topic_is_1_to_255"),
        ("topic, payload", "'a' || char(0), ''", "topic_is_1_to_255"),
        ("topic, payload", "'t', x'00'", "payload_is_text"),
        ("topic, payload", "'t', NULL", "payload"),
        ("topic, payload, id", "'t', '', 'text'", "id_is_uuid"),
        ("topic, payload, message_id", "'t', '', x'01'", "message_id_is_uuid"),
        ("topic, payload, priority", "'t', '', 10", "priority"),
        ("topic, payload, due_at", "'t', '', '2030-01-01'", "times_are_microseconds"),
        ("topic, payload, expires_at", "'t', '', 1e300", "times_are_microseconds"),
        ("topic, payload, ordering_key", "'t', '', ''", "ordering_key"),
        ("topic, payload, correlation_id", "'t', '', ''", "correlation_id"),
        ("topic, payload, status", "'t', '', 1", "lease_goes_with_status"),
        ("topic, payload, parked", "'t', '', 1", "parked_needs_a_key"),
        ("topic, payload, hold_on_failure", "'t', '', 2", "flags"),
    ];
    for (columns, values, named) in cases {
        let insert = format!("INSERT INTO infra_outbox ({columns}) VALUES ({values})");
        let error = connection.execute(&insert, []).expect_err(&insert).to_string();
        assert!(error.contains(named), "{insert}: {error}");
    }
}

#[tokio::test]
async fn a_row_that_is_not_quite_right_does_not_stop_a_claim() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    connection
        .execute_batch(
            "INSERT INTO infra_outbox (topic, payload, headers) VALUES ('t', CAST(x'61ff62' AS TEXT), 'not JSON');
             INSERT INTO infra_outbox (topic, payload) VALUES ('t', 'fine')",
        )
        .unwrap();
    let items = scratch.outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap().items;
    assert_eq!(items.iter().map(|item| item.payload.as_str()).collect::<Vec<_>>(), ["a\u{fffd}b", "fine"]);
}

#[tokio::test]
async fn a_known_id_is_refused_and_nothing_is_added() {
    let scratch = Scratch::new().await;
    let connection = scratch.connect();
    let owner = OwnerToken::new();
    let insert = "INSERT INTO infra_outbox (id, topic, payload) VALUES (?1, 't', '')";
    let enqueue = || async {
        let id = WorkItemId::new();
        connection.execute(insert, [id.as_uuid().as_bytes()]).unwrap();
        let claim = scratch.outbox.claim(&ClaimRequest::new(owner)).await.unwrap().items.remove(0);
        assert_eq!(claim.id(), id);
        (id, [claim.handle])
    };
    let (done, claim) = enqueue().await;
    scratch.outbox.ack(owner, &claim).await.unwrap();
    let (failed, claim) = enqueue().await;
    scratch.outbox.fail(owner, &claim, None).await.unwrap();
    let (open, _) = enqueue().await;
    for (id, message) in [
        (done, "the id belongs to a work item that is done: use every id once"),
        (failed, "the id belongs to a work item that is failed: use every id once"),
        (open, "UNIQUE constraint failed: infra_outbox.id"),
    ] {
        let several =
            "INSERT INTO infra_outbox (id, topic, payload) VALUES (randomblob(16), 't', ''), (?1, 't', '')";
        for insert in [insert, several] {
            let error = connection.execute(insert, [id.as_uuid().as_bytes()]).unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation));
            assert_eq!(error.to_string(), message);
        }
    }
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!((count("infra_outbox"), count("infra_outbox_history")), (1, 2));
    // A requeue brings the message back under its id.
    assert_eq!(scratch.outbox.requeue(&[failed]).await.unwrap(), [failed]);
}
