//! `mainstay stores`: one database that is not well changes nothing for the others, and no password is shown.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay_tests::{PostgresUrl, TestDatabase};
use program::{Program, Ran};
use serde_json::Value;

/// A folder with a fleet file that names these databases.
fn fleet(databases: &[(&str, &str)]) -> Program {
    let program = Program::new();
    let lines =
        databases.iter().map(|(id, url)| format!("[[databases]]\nid = \"{id}\"\nurl = \"{url}\"\n\n"));
    program.write("fleet.toml", &lines.collect::<String>());
    program.write("mainstay.toml", "fleet = \"fleet.toml\"\n");
    program
}

/// The row of a database.
#[track_caller]
fn row<'a>(rows: &'a Value, id: &str) -> &'a Value {
    let found = rows.as_array().unwrap().iter().find(|row| row["id"] == id);
    found.unwrap_or_else(|| panic!("no {id} in {rows}"))
}

#[test]
fn a_fleet_is_listed_without_asking_anybody_and_without_passwords() {
    let program =
        fleet(&[("globex", "postgres://app:s3cret@127.0.0.1:1/globex?password=s3cret"), ("acme", "acme.db")]);
    let ran = program.run(&["stores", "list", "--json"]).succeeded();
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
    let rows = ran.json();
    let ids: Vec<_> = rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["acme", "globex"]);
    assert_eq!(row(&rows, "acme")["database"], "sqlite:acme.db");
    assert_eq!(row(&rows, "globex")["database"], "postgres://app@127.0.0.1:1/globex");
    assert!(!program.folder().join("acme.db").exists());

    let ran = program.run(&["stores", "list", "globex"]).succeeded();
    assert!(ran.stdout.contains("globex") && !ran.stdout.contains("acme"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("s3cret"), "{}", ran.stdout);
    program.run(&["stores", "list", "initech"]).failed(1, &["initech", "stores list"]);
}

#[test]
fn a_url_that_is_none_is_told_beside_the_others() {
    let program = fleet(&[("acme", "acme.db"), ("bad", "mysql://u:s3cret@h/d")]);
    for command in [&["stores", "list", "--json"][..], &["stores", "deploy", "--json"]] {
        let ran = program.run(command).ended(1);
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{}", ran.stdout);
        let rows = ran.json();
        assert!(row(&rows, "bad")["error"].as_str().unwrap().contains("mysql"), "{rows}");
        assert!(row(&rows, "acme")["error"].is_null(), "{rows}");
    }
    program.run(&["stores", "status", "acme"]).succeeded();
}

#[test]
fn one_that_is_missing_and_one_of_a_wrong_schema_stop_no_other() {
    let program = fleet(&[("gone", "gone.db"), ("new", "new.db"), ("old", "old.db"), ("well", "well.db")]);
    for file in ["old.db", "well.db"] {
        program.run(&["--database", file, "migrate"]).succeeded();
    }
    program.run(&["--database", "well.db", "outbox", "enqueue", "t"]).succeeded();
    // A schema that is there, and is not the one this program knows.
    let old = rusqlite::Connection::open(program.folder().join("old.db")).unwrap();
    old.execute_batch("update infra_mainstay_migration set checksum = 'edited' where version = 1").unwrap();
    drop(
        rusqlite::Connection::open(program.folder().join("new.db"))
            .unwrap()
            .execute_batch("create table t (a)"),
    );

    let rows = program.run(&["stores", "status", "--json"]).ended(1).json();
    assert_eq!(row(&rows, "well")["ok"], true, "{rows}");
    assert_eq!(row(&rows, "well")["outbox"]["ready"], 1);
    assert_eq!(row(&rows, "well")["next_due_seconds"], 0.0);
    assert_eq!(row(&rows, "new")["status"], "missing");
    assert_eq!(row(&rows, "old")["status"], "drifted");
    assert!(row(&rows, "gone")["error"].as_str().unwrap().contains("gone.db"), "{rows}");
    assert!(!program.folder().join("gone.db").exists(), "a look has made a database");
    for id in ["gone", "new", "old"] {
        assert_eq!(row(&rows, id)["ok"], false, "{rows}");
    }
    let told = program.run(&["stores", "status"]).failed(1, &["3 of 4 databases not well"]);
    assert!(told.stdout.contains("well") && told.stdout.contains("drifted"), "{}", told.stdout);
    // Only those who can't be reached: another code.
    program.run(&["stores", "status", "gone", "well"]).ended(3);

    let rows = program.run(&["stores", "deploy", "--json"]).ended(1).json();
    assert_eq!(row(&rows, "old")["ok"], false, "{rows}");
    for (id, changed) in [("gone", true), ("new", true), ("well", false)] {
        assert_eq!(
            (&row(&rows, id)["ok"], &row(&rows, id)["changed"]),
            (&true.into(), &changed.into()),
            "{rows}"
        );
    }
    program.run(&["stores", "status", "gone", "new", "well"]).succeeded();
    let told = program.run(&["stores", "deploy"]).failed(1, &["1 of 4 databases not deployed"]);
    assert!(told.stdout.contains("nothing to do") && told.stdout.contains("failed"), "{}", told.stdout);
}

#[test]
fn the_file_says_the_schema_of_each() {
    let program = Program::new();
    let file = r#"{"databases": [{"id": "a", "url": "both.db", "schema": "one"}, {"id": "b", "url": "both.db", "schema": "two"}]}"#;
    program.write("fleet.json", file);
    let run = |arguments: &[&str]| {
        let mut command = program.command(arguments);
        Ran::of(command.env("MAINSTAY_FLEET", "fleet.json").output().unwrap())
    };
    run(&["stores", "deploy", "a"]).succeeded();
    let rows = run(&["stores", "status", "--json"]).ended(1).json();
    assert_eq!(
        (&row(&rows, "a")["status"], &row(&rows, "b")["status"]),
        (&"current".into(), &"missing".into())
    );
    run(&["stores", "status", "--schema", "one"]).failed(2, &["--schema", "fleet file"]);
}

#[test]
fn a_fleet_file_that_is_none_is_wrong_usage_and_not_quoted() {
    let program = Program::new();
    program.run(&["stores", "list"]).failed(2, &["--fleet", "MAINSTAY_FLEET"]);
    program.run(&["stores", "list", "--fleet", "nowhere.toml"]).failed(2, &["nowhere.toml"]);
    for (text, says) in [
        ("[[databases]]\nid = \"a\"\nurl = \"postgres://u:s3cret@h/d\" oops\n", "line 3"),
        ("[[databases]]\nid = \"a\"\nuri = \"postgres://u:s3cret@h/d\"\n", "`url`"),
        ("[[databases]]\nid = \"a\"\nurl = \"a.db\"\n[[databases]]\nid = \"a\"\nurl = \"b.db\"\n", "twice"),
        ("", "names no database"),
    ] {
        program.write("fleet.toml", text);
        let ran = program.run(&["stores", "list", "--fleet", "fleet.toml"]).failed(2, &["fleet.toml", says]);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
    program.run(&["stores", "status", "--at-once", "0"]).failed(2, &["--at-once"]);
}

#[tokio::test]
async fn a_fleet_may_be_on_both_kinds_of_database() {
    let database = TestDatabase::create(None).await;
    let url = database.url();
    let stranger = PostgresUrl::parse(&url).with_credentials("nobody", "s3cret").to_string();
    let down = "postgres://app:s3cret@127.0.0.1:1/d";
    let program = fleet(&[("acme", "acme.db"), ("down", down), ("globex", &url), ("stranger", &stranger)]);
    let ran = program.run(&["stores", "deploy", "--json"]).ended(1);
    assert!(
        !ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    let rows = ran.json();
    for (id, ok) in [("acme", true), ("down", false), ("globex", true), ("stranger", false)] {
        assert_eq!(row(&rows, id)["ok"], ok, "{rows}");
    }
    let ran = program.run(&["stores", "status"]).ended(1);
    assert!(
        !ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"),
        "{} {}",
        ran.stdout,
        ran.stderr
    );
    program.run(&["stores", "status", "acme", "globex"]).succeeded();
    program.run(&["stores", "status", "acme", "down"]).ended(3);
}

#[test]
fn one_that_never_answers_is_given_up_in_time() {
    // Connections to it succeed, and that is all.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://app:s3cret@{}/d?sslmode=disable", mute.local_addr().unwrap());
    let program = fleet(&[("acme", "acme.db"), ("mute", &url)]);
    for (command, ok) in [("deploy", "changed"), ("status", "outbox")] {
        let ran = program.run(&["stores", command, "--timeout", "1s", "--at-once", "1", "--json"]).ended(3);
        let rows = ran.json();
        assert!(row(&rows, "mute")["error"].as_str().unwrap().contains("no answer within 1s"), "{rows}");
        assert!(!row(&rows, "acme")[ok].is_null(), "{rows}");
    }
}
