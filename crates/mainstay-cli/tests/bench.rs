//! `mainstay bench`: it measures, and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay_tests::TestDatabase;
use program::Program;
use serde_json::Value;

/// What SQLite has too.
const EVERYWHERE: [&str; 17] = [
    "enqueue_1",
    "enqueue_16",
    "enqueue_256",
    "enqueue_in_tx_16",
    "bulk",
    "drain",
    "drain_joined",
    "end_to_end",
    "latency_p50_ms",
    "latency_p99_ms",
    "limit_insert_1",
    "limit_insert_16",
    "limit_insert_in_tx_16",
    "limit_shared_commit_16",
    "limit_shared_commit_256",
    "limit_copy",
    "limit_claim_settle",
];
/// What only SQLite files have.
const FILES: [&str; 3] =
    ["write_alone_p95_ms", "write_beside_busy_p95_ms", "write_beside_busy_p95_ms_to_limit"];
/// What only PostgreSQL has.
const POSTGRES: [&str; 4] =
    ["limit_latency_p50_ms", "limit_latency_p99_ms", "wal_bytes_per_message", "dead_tuples_per_message"];

#[track_caller]
fn assert_measured(results: &Value, names: &[&str]) {
    for name in names {
        assert!(results[name].as_f64() > Some(0.0), "{name}: {results}");
    }
}

#[test]
fn a_temporary_file_is_measured() {
    let program = Program::new();
    let results = program.run(&["bench", "--quick", "--messages", "200", "--json"]).succeeded().json();
    assert_measured(&results, &EVERYWHERE);
    for name in ["bulk_to_limit", "drain_joined_to_limit"] {
        assert!(results[name].as_f64() > Some(0.0), "{name}: {results}");
    }
    assert_measured(&results, &FILES);
    for name in POSTGRES.iter().chain(&["idle_queries_per_s"]) {
        assert!(results.get(name).is_some_and(Value::is_null), "{name}: {results}");
    }
}

#[test]
fn only_what_is_asked_for_is_measured() {
    let program = Program::new();
    let only = ["bench", "--quick", "--messages", "200", "--only", "bulk,limit_copy"];
    let results = program.run(&[&only[..], &["--json"]].concat()).succeeded().json();
    assert_measured(&results, &["bulk", "limit_copy", "bulk_to_limit"]);
    assert!(results.get("drain").is_none(), "{results}");
    let table = program.run(&[&only[..], &["-q"]].concat()).succeeded();
    assert!(table.stdout.contains("enqueue in bulk"), "{}", table.stdout);
    assert!(!table.stdout.contains("drain"), "{}", table.stdout);
    assert_eq!(table.stderr, "");
}

#[test]
fn a_file_of_the_user_is_left_as_it_was() {
    let program = Program::with_database();
    program.run(&["outbox", "enqueue", "t"]).succeeded();
    let tables = || {
        let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
        let mut statement = database.prepare("select name from sqlite_schema order by name").unwrap();
        let names = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        names.collect::<Result<Vec<_>, _>>().unwrap()
    };
    let before = tables();
    let ran = program.run(&["bench", "--quick", "--messages", "200", "--json"]);
    assert_measured(&ran.succeeded().json(), &EVERYWHERE);
    assert_eq!(tables(), before);
    assert_eq!(program.run(&["outbox", "stats", "--json"]).succeeded().json()["ready"], 1);
}

#[test]
fn what_a_killed_one_has_left_is_told() {
    let program = Program::with_database();
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    database.execute_batch("create table mainstay_bench_0badcafe_outbox (x)").unwrap();
    let ran = program.run(&["bench", "--only", "limit_insert_1", "--seconds", "1", "--json"]).succeeded();
    assert!(ran.stderr.contains("left something behind"), "{}", ran.stderr);
    assert!(ran.stderr.contains("mainstay_bench_0badcafe_outbox"), "{}", ran.stderr);
    drop(ran.json());
}

#[tokio::test]
async fn what_a_killed_one_has_left_in_postgres_is_told_with_the_statement_that_removes_it() {
    let database = TestDatabase::create(None).await;
    let client = database.client().await;
    client.batch_execute("create schema mainstay_bench_0badcafe").await.unwrap();
    let program = Program::new();
    let ran =
        program.run(&["bench", "--only", "limit_insert_1", "--seconds", "1", "--database", &database.url()]);
    ran.succeeded().failed(0, &["drop schema mainstay_bench_0badcafe cascade;"]);
}

#[tokio::test]
async fn a_postgres_database_is_left_as_it_was() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let ran =
        program.run(&["bench", "--quick", "--messages", "200", "--json", "--database", &database.url()]);
    let results = ran.succeeded().json();
    assert_measured(&results, &EVERYWHERE);
    assert_measured(&results, &POSTGRES);
    assert!(results["idle_queries_per_s"].is_number(), "{results}");
    let client = database.client().await;
    let left = "select count(*) from pg_namespace where nspname like 'mainstay%'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
}
