//! `mainstay health`: what it says of a database in each state, and the exit code that goes with it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay_tests::{PostgresUrl, TestDatabase};
use program::{Program, Ran};
use serde_json::Value;

/// Moves the outbox's times back, as if that much had passed.
fn age(program: &Program, minutes: i64) {
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    let micros = minutes * 60_000_000;
    database
        .execute("update infra_outbox set due_at = due_at - ?1, created_at = created_at - ?1", [micros])
        .unwrap();
}

fn names(report: &Value) -> Vec<&str> {
    report["checks"].as_array().unwrap().iter().map(|check| check["name"].as_str().unwrap()).collect()
}

#[track_caller]
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let found = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[test]
fn a_database_that_is_well_exits_with_0() {
    let program = Program::with_database();
    // What is failed, and what is due later, is no trouble.
    program.run(&["outbox", "enqueue", "t", "--due-in=1h"]).succeeded();
    let id = program.run(&["outbox", "enqueue", "t", "--json"]).succeeded().json()["work_item"].clone();
    program.run(&["outbox", "cancel", id.as_str().unwrap()]).succeeded();
    let report = program.run(&["health", "--json"]).succeeded().json();
    assert_eq!((&report["status"], &report["database"]), (&"healthy".into(), &"sqlite:shop.db".into()));
    assert_eq!(names(&report).len(), 12, "{report}");
    assert!(report["duration_ms"].as_f64().unwrap() > 0.0 && report["reached"] == true, "{report}");
    for (probe, asked) in [("live", &["connectivity"][..]), ("ready", &["connectivity", "schema"])] {
        let report = program.run(&["health", probe, "--json"]).succeeded().json();
        assert_eq!((names(&report), &report["probe"]), (asked.to_vec(), &probe.into()));
    }
    let told = program.run(&["health"]).succeeded().stdout;
    assert!(told.ends_with("sqlite:shop.db: healthy\n"), "{told}");
    assert_eq!(told.lines().count(), 2 + 12 + 1, "one line a check: {told}");
}

#[test]
fn a_doctor_tells_what_may_become_trouble_and_exits_with_0() {
    let program = Program::with_database();
    program.run(&["outbox", "enqueue", "order.paid"]).succeeded();
    let report = program.run(&["doctor", "--json"]).succeeded().json();
    assert_eq!((&report["status"], &report["probe"]), (&"healthy".into(), &"doctor".into()));
    assert_eq!(names(&report).len(), 12 + 12, "{report}");
    assert!(
        check(&report, "lag.outbox")["summary"].as_str().unwrap().starts_with("order.paid: 1 waiting"),
        "{report}"
    );
    let told = program.run(&["doctor"]).succeeded().stdout;
    assert!(told.contains(" lag.outbox ") && told.ends_with("sqlite:shop.db: healthy\n"), "{told}");
    // What is not there is not made, and not examined.
    let gone = program.run(&["doctor", "--database", "gone.db", "--json"]).ended(3).json();
    assert_eq!(gone["reached"], false, "{gone}");
    assert!(!program.folder().join("gone.db").exists());
}

#[test]
fn what_is_bad_comes_first_with_what_to_do() {
    let program = Program::with_database();
    program.run(&["outbox", "enqueue", "order.paid"]).succeeded();
    age(&program, 3);
    let report = program.run(&["health", "--json"]).ended(1).json();
    assert_eq!((names(&report)[0], &report["status"]), ("workers", &"unhealthy".into()));
    age(&program, 40);
    let told = program.run(&["health"]).ended(1).stdout;
    let lines: Vec<_> = told.lines().collect();
    for line in &lines[2..4] {
        assert!(line.trim_start().starts_with("unhealthy") && line.contains("start"), "{told}");
    }
    assert!(told.contains("43 min") && told.ends_with("sqlite:shop.db: unhealthy\n"), "{told}");
    // It could work on it, if it were started.
    program.run(&["health", "ready"]).succeeded();
}

#[test]
fn what_is_degraded_works_and_exits_with_0() {
    let program = Program::with_database();
    program.run(&["lease", "run", "nightly", "--", "true"]).succeeded();
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    let lapse = "update infra_lease set owner = 'gone', \
        expires_at = (cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer) - 60000) * 1000";
    database.execute_batch(lapse).unwrap();
    let report = program.run(&["health", "--json"]).succeeded().json();
    assert_eq!((names(&report)[0], &report["status"]), ("leases", &"degraded".into()));
    assert!(check(&report, "leases")["advice"].as_str().unwrap().contains("mainstay leases list"));
}

#[test]
fn a_schema_that_is_not_there_is_unhealthy() {
    let program = Program::new();
    drop(
        rusqlite::Connection::open(program.folder().join("new.db"))
            .unwrap()
            .execute_batch("create table t (a)"),
    );
    for asked in [&["health", "--database=new.db"][..], &["health", "ready", "--database=new.db"]] {
        let told = program.run(asked).ended(1).stdout;
        assert!(told.contains("mainstay migrate"), "{told}");
    }
    program.run(&["health", "live", "--database=new.db"]).succeeded();
}

#[test]
fn a_database_out_of_reach_can_t_be_told() {
    let program = Program::new();
    let report = program.run(&["health", "--database=gone.db", "--json"]).ended(3).json();
    assert_eq!((&report["status"], &report["reached"]), (&"unhealthy".into(), &false.into()));
    assert!(!program.folder().join("gone.db").exists(), "a look has made a database");
    let url = "--database=postgres://app:s3cret@127.0.0.1:1/shop?password=s3cret";
    for asked in [&["health", url, "--json"][..], &["health", "live", url]] {
        let ran = program.run(asked).ended(3);
        assert!(ran.stdout.contains("can't be reached"), "{}", ran.stdout);
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{}", ran.stdout);
    }
}

#[test]
fn wrong_usage_is_told_before_a_database_is_opened() {
    let program = Program::new();
    program.run(&["health"]).failed(2, &["no database is named"]);
    program.run(&["health", "dead", "--database=a.db"]).failed(2, &["dead"]);
    program.run(&["health", "--database=a.db", "--timeout=0s"]).failed(2, &["--timeout"]);
    program.run(&["health", "--database=a.db", "--timeout=6m"]).failed(2, &["timeout", "10 ms to 5 min"]);
    program.run(&["health", "--database=mysql://u:s3cret@h/d"]).failed(2, &["mysql"]);
    program.run(&["health", "--database=a.db", "--store=acme"]).failed(2, &["--fleet"]);
    program.run(&["health", "--fleet=nowhere.toml"]).failed(2, &["nowhere.toml"]);
}

#[test]
fn a_fleet_is_told_database_by_database() {
    let program = Program::new();
    let entry = |id: &str, url: &str| format!("[[databases]]\nid = \"{id}\"\nurl = \"{url}\"\n\n");
    let down = entry("down", "postgres://app:s3cret@127.0.0.1:1/shop");
    let file = [down, entry("new", "new.db"), entry("well", "well.db"), entry("fine", "fine.db")].concat();
    program.write("fleet.toml", &file);
    program.write("mainstay.toml", "fleet = \"fleet.toml\"\n");
    program.run(&["stores", "deploy", "well", "fine"]).succeeded();
    drop(
        rusqlite::Connection::open(program.folder().join("new.db"))
            .unwrap()
            .execute_batch("create table t (a)"),
    );
    let ran = program.run(&["health", "--json"]).ended(1);
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
    let health = ran.json();
    let ids: Vec<_> =
        health["databases"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
    assert_eq!((ids, &health["status"]), (vec!["down", "new", "fine", "well"], &"unhealthy".into()));
    assert_eq!(health["databases"][2]["status"], "healthy");
    assert_eq!(health["databases"][2]["database"], "sqlite:fine.db");
    // Only those who can't be reached: another code.
    program.run(&["health", "--store=down", "--store=well"]).ended(3);
    program.run(&["health", "live", "--store=new", "--store=well"]).succeeded();
    let told = program.run(&["health", "--store=fine", "--store=well"]).succeeded().stdout;
    assert!(told.contains("all of 12 checks") && told.ends_with("2 databases: healthy\n"), "{told}");
    let told = program.run(&["health"]).ended(1).stdout;
    assert!(
        told.contains("can't be reached") && told.ends_with("4 databases: unhealthy, 2 not well\n"),
        "{told}"
    );
    // A database that is named counts before a fleet that only the settings name.
    program.run(&["health", "--database=well.db"]).succeeded();
}

#[tokio::test]
async fn health_is_told_of_postgres() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let run = |arguments: &[&str]| {
        let mut command = program.command(arguments);
        Ran::of(command.env("MAINSTAY_DATABASE", database.url()).output().unwrap())
    };
    run(&["health"]).ended(1);
    run(&["migrate"]).succeeded();
    let report = run(&["health", "--json"]).succeeded().json();
    assert_eq!((&report["status"], &report["provider"]), (&"healthy".into(), &"postgres".into()));
    run(&["outbox", "enqueue", "t"]).succeeded();
    let client = database.client().await;
    client.batch_execute("update infra.outbox set due_at = due_at - interval '1 hour'").await.unwrap();
    let report = run(&["health", "--json"]).ended(1).json();
    assert_eq!(check(&report, "overdue.outbox")["status"], "unhealthy");

    // A table that somebody has locked is all that can't be told.
    client.batch_execute("delete from infra.outbox").await.unwrap();
    client.batch_execute("begin; lock table infra.timers").await.unwrap();
    let report = run(&["health", "--json", "--timeout=1s"]).ended(3).json();
    let unknown = |check: &&Value| check["status"] == "unknown";
    let checks = report["checks"].as_array().unwrap();
    let unknown: Vec<_> =
        checks.iter().filter(unknown).map(|check| check["name"].as_str().unwrap()).collect();
    assert_eq!(unknown, ["workers", "stuck", "overdue.timers"], "{report}");
    assert!(check(&report, "overdue.timers")["summary"].as_str().unwrap().contains("no answer within 1 s"));
    assert_eq!(check(&report, "overdue.outbox")["status"], "healthy");
    client.batch_execute("rollback").await.unwrap();
    run(&["health"]).succeeded();

    let wrong = PostgresUrl::parse(&database.url()).with_credentials("nobody", "s3cret").to_string();
    let ran = program.run(&["health", "--database", &wrong]).ended(3);
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
}
