//! `mainstay bench`: it measures, and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay_tests::TestDatabase;
use program::Program;
use serde_json::Value;

#[track_caller]
fn assert_measured(results: &Value) {
    for name in ["enqueue_1", "enqueue_16", "bulk", "drain", "end_to_end", "latency_p50_ms", "latency_p99_ms"]
    {
        assert!(results[name].as_f64() > Some(0.0), "{name}: {results}");
    }
}

#[test]
fn a_temporary_file_is_measured() {
    let program = Program::new();
    assert_measured(&program.run(&["bench", "--messages", "200", "--json"]).succeeded().json());
    let table = program.run(&["bench", "--messages", "100", "-q"]).succeeded();
    assert!(table.stdout.contains("enqueue, 16 callers"), "{}", table.stdout);
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
    assert_measured(&program.run(&["bench", "--messages", "200", "--json"]).succeeded().json());
    assert_eq!(tables(), before);
    assert_eq!(program.run(&["outbox", "stats", "--json"]).succeeded().json()["ready"], 1);
}

#[tokio::test]
async fn a_postgres_database_is_left_as_it_was() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let ran = program.run(&["bench", "--messages", "200", "--json", "--database", &database.url()]);
    assert_measured(&ran.succeeded().json());
    let client = database.client().await;
    let left = "select count(*) from pg_namespace where nspname like 'mainstay%'";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
}
