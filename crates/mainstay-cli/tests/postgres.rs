//! The commands on PostgreSQL, which speak the same words as on SQLite.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay_tests::{PostgresUrl, TestDatabase};
use program::{Program, Ran};

#[tokio::test]
async fn the_commands_work_on_postgres() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let run = |arguments: &[&str]| {
        let mut command = program.command(arguments);
        Ran::of(command.env("MAINSTAY_DATABASE", database.url()).output().unwrap())
    };
    run(&["migrate", "--check"]).failed(1, &["not current", "mainstay migrate"]);
    run(&["outbox", "stats"]).failed(1, &["mainstay migrate"]);
    assert_eq!(run(&["migrate", "--json"]).succeeded().json()["changed"], true);
    run(&["migrate", "--check"]).succeeded();

    let enqueued = run(&["outbox", "enqueue", "t", "{}", "--due-in", "1h", "--json"]).succeeded().json();
    let id = enqueued["work_item"].as_str().unwrap();
    assert_eq!(run(&["outbox", "show", id, "--payload"]).succeeded().stdout, "{}");
    run(&["outbox", "cancel", id]).succeeded();
    let failed = run(&["outbox", "list", "--status", "failed", "--json"]).succeeded().json();
    assert_eq!(failed[0]["id"], id);
    run(&["outbox", "requeue", "--all-failed"]).succeeded();
    assert_eq!(run(&["outbox", "stats", "--json"]).succeeded().json()["ready"], 1);
}

#[tokio::test]
async fn a_printed_script_makes_the_schema_that_check_wants() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let url = database.url();
    let script = program.run(&["--database", &url, "migrate", "--print"]).succeeded().stdout;
    database.client().await.batch_execute(&script).await.unwrap();
    program.run(&["--database", &url, "migrate", "--check"]).succeeded();
}

#[tokio::test]
async fn grants_let_an_application_work() {
    let database = TestDatabase::create(None).await;
    let client = database.client().await;
    let program = Program::new();
    let url = database.url();
    // Roles belong to the whole server, so each test has its own. A quote in it must do no harm.
    let role = format!("{}\"app", database.name());
    let quoted = format!("\"{}\"", role.replace('"', "\"\""));
    client.batch_execute(&format!("create role {quoted} login password 's3cret'")).await.unwrap();

    program.run(&["--database", &url, "migrate"]).succeeded();
    let as_role = PostgresUrl::parse(&url).with_credentials(&role.replace('"', "%22"), "s3cret").to_string();
    let enqueue = || program.run(&["--database", &as_role, "outbox", "enqueue", "t"]);
    let refused = enqueue();
    let script = program.run(&["--database", &url, "migrate", "--grants", &role]).succeeded().stdout;
    client.batch_execute(&script).await.unwrap();
    let allowed = enqueue();

    client.batch_execute(&format!("drop owned by {quoted}; drop role {quoted}")).await.unwrap();
    assert!(!refused.failed(1, &["error: "]).stderr.contains("s3cret"));
    allowed.succeeded();
}

#[tokio::test]
async fn a_wrong_password_is_told_without_it() {
    let database = TestDatabase::create(None).await;
    let url = PostgresUrl::parse(&database.url()).with_credentials("nobody", "s3cret").to_string();
    let ran = Program::new().run(&["--database", &url, "migrate"]);
    let ran = ran.failed(1, &["error: "]);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
}
