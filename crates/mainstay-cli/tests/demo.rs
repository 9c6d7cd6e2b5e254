//! `mainstay demo`: the books balance, however it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use mainstay_tests::{TestDatabase, eventually_blocking};
use program::{Program, Ran};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

#[track_caller]
fn assert_balanced(summary: &Value) {
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
    assert_eq!(summary["balanced"], true, "{summary}");
    assert!(number("enqueued") > 0 && number("done") > 0 && number("retries") > 0, "{summary}");
    assert_eq!(number("done") + number("failed"), number("enqueued"), "{summary}");
    for name in ["pending", "in_progress", "lost", "stale_settles", "shipped_twice", "out_of_order"] {
        assert_eq!(number(name), 0, "{name}: {summary}");
    }
    for name in ["miscounted", "unannounced"] {
        assert_eq!(summary["inventory"][name], 0, "{name}: {summary}");
    }
    assert!(summary["latency_p50_ms"].is_number() && summary["latency_p99_ms"].is_number(), "{summary}");
}

#[test]
fn the_books_balance_on_sqlite() {
    let program = Program::new();
    let ran = program.run(&["demo", "--for", "2s", "--json"]).succeeded();
    let summary = ran.json();
    assert_balanced(&summary);
    assert_eq!((&summary["database"], &summary["interrupted"]), (&"sqlite".into(), &false.into()));
    assert!(summary["failed"].as_u64() > Some(0), "some orders are poison: {summary}");
    // Every second all branches are counted, each in its own database.
    let inventory = |name: &str| summary["inventory"][name].as_u64().unwrap();
    assert!(inventory("runs") > 0 && inventory("slices") > 0, "{summary}");
    assert!(inventory("slices") <= 3 * inventory("runs"), "{summary}");
    // What goes on beside the orders: timers, a job, an inbox fed with duplicates, a lease.
    let number = |name: &str| summary[name].as_u64().unwrap_or_else(|| panic!("no {name} in {summary}"));
    for name in ["reminders", "stock_counts", "reports", "shifts"] {
        assert!(number(name) > 0, "{name}: {summary}");
    }
    assert!(number("reports_sent") > number("reports"), "no duplicates came: {summary}");
    assert!(ran.stderr.contains("orders"), "there is no progress in {:?}", ran.stderr);
    assert_eq!(std::fs::read_dir(program.folder()).unwrap().count(), 0, "something is left behind");
}

#[test]
fn quiet_is_quiet() {
    let ran = Program::new().run(&["demo", "--for", "500ms", "-q"]).succeeded();
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_named_database_is_kept_and_can_be_used_again() {
    let program = Program::new();
    for _ in 0..2 {
        let ran = program.run(&["demo", "--for", "1s", "--database", "kept.db"]).succeeded();
        assert!(ran.stdout.contains("The books balance"), "{}", ran.stdout);
    }
    let stats = ["--database", "kept.db", "--schema", "mainstay_demo", "outbox", "stats", "--json"];
    let stats = program.run(&stats).succeeded().json();
    assert!(stats["done"].as_u64() > Some(0), "{stats}");
    let rest = ["ready", "scheduled", "in_progress"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(rest, [0, 0, 0]);
}

/// Each has slices that only it can work on, and claims those of the other one too.
#[test]
fn two_at_once_on_one_database_balance_both() {
    let program = Program::new();
    program.run(&["--database", "shared.db", "--schema", "mainstay_demo", "migrate"]).succeeded();
    let start =
        || program.start(&["demo", "--for", "4s", "--rate", "40", "--json", "--database", "shared.db"]);
    let both = [start(), start()];
    for child in both {
        let summary = Ran::of(child.wait_with_output().unwrap()).succeeded().json();
        assert_eq!(summary["balanced"], true, "{summary}");
        assert!(summary["inventory"]["runs"].as_u64() > Some(0), "{summary}");
    }
}

/// Waits until the program tells of orders, and so is in the middle of things; gives the rest of what it tells.
fn under_way(child: &mut Child) -> impl Read + use<> {
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("orders") {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended by itself");
    }
    stderr
}

fn interrupted(signal: Signal) {
    let program = Program::new();
    let mut child = program.start(&["demo", "--for", "10m", "--json"]);
    let mut stderr = under_way(&mut child);
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let summary = Ran::of(child.wait_with_output().unwrap()).succeeded().json();
    assert_balanced(&summary);
    assert_eq!(summary["interrupted"], true);
}

#[test]
fn an_interrupt_still_checks_the_books() {
    interrupted(Signal::INT);
}

#[test]
fn so_does_a_request_to_end() {
    interrupted(Signal::TERM);
}

#[test]
fn messages_that_vanish_are_missed() {
    let program = Program::new();
    let mut child = program.start(&["demo", "--for", "3s", "--json", "--database", "robbed.db"]);
    let mut stderr = under_way(&mut child);
    let database = rusqlite::Connection::open(program.folder().join("robbed.db")).unwrap();
    database.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    // Of orders: what else goes on has books of its own.
    let robbed = "delete from mainstay_demo_outbox_history where id in
                  (select id from mainstay_demo_outbox_history where topic = 'order.placed' limit 3)
                  and (select count(*) from mainstay_demo_outbox_history where topic = 'order.placed') >= 3";
    let rob = || database.execute(robbed, []).unwrap() == 3;
    eventually_blocking(Duration::from_secs(60), "three orders to delete", rob);
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let summary = Ran::of(child.wait_with_output().unwrap()).ended(1).json();
    assert_eq!((&summary["balanced"], &summary["lost"]), (&false.into(), &3.into()));
}

/// Deletes one row, as soon as there is one to delete.
fn rob(database: &Path, robbed: &str) {
    eventually_blocking(Duration::from_secs(60), "something to delete", || {
        let connection = rusqlite::Connection::open(database).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        let rows = connection.execute(robbed, []).unwrap();
        assert!(rows <= 1, "{rows} were deleted");
        rows == 1
    });
}

#[test]
fn a_branch_that_was_not_counted_is_missed() {
    let program = Program::new();
    let temporary = program.folder().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = program.command(&["demo", "--for", "10m", "--json", "--database", "shop.db"]);
    command.env("TMPDIR", &temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stderr = under_way(&mut child);

    let folder = std::fs::read_dir(&temporary).unwrap().next().unwrap().unwrap().path();
    // A branch is counted again when the count before is over, so nobody looks at the oldest of several any more.
    let count = "delete from infra_outbox_history where id = (select id from infra_outbox_history order by rowid limit 1)
                 and (select count(*) from infra_outbox_history) > 1";
    rob(&folder.join("harbour.db"), count);
    let told = "delete from mainstay_demo_outbox_history where id =
                (select id from mainstay_demo_outbox_history where topic = 'inventory.complete' limit 1)";
    rob(&program.folder().join("shop.db"), told);

    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut rest = String::new();
    stderr.read_to_string(&mut rest).unwrap();
    let summary = Ran::of(child.wait_with_output().unwrap()).ended(1).json();
    assert_eq!(summary["balanced"], false, "{summary}");
    let inventory = &summary["inventory"];
    assert_eq!((&inventory["miscounted"], &inventory["unannounced"]), (&1.into(), &1.into()), "{summary}");
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0, "something is left behind");
}

#[tokio::test]
async fn the_books_balance_on_postgres() {
    let database = TestDatabase::create(None).await;
    let url = database.url();
    let program = Program::new();
    let ran = program.run(&["demo", "--for", "2s", "--json", "--database", &url]).succeeded();
    let summary = ran.json();
    assert_balanced(&summary);
    assert_eq!(summary["database"], "postgres");

    let secret =
        url.split_once("://").and_then(|(_, rest)| rest.split_once('@')).map(|(user, _)| user.to_owned());
    let secret =
        secret.and_then(|user| user.split_once(':').map(|(_, password)| password.to_owned())).unwrap();
    let table = program.run(&["demo", "--for", "1s", "--database", &url, "-vv"]).succeeded();
    assert!(table.stdout.contains("The books balance"), "{}", table.stdout);
    for text in [&ran.stdout, &ran.stderr, &table.stdout, &table.stderr] {
        assert!(!text.contains(&format!(":{secret}@")), "the password is shown");
    }
}

#[tokio::test]
async fn it_works_through_a_pooler() {
    let database = TestDatabase::create(None).await;
    let program = Program::new();
    let ran =
        program.run(&["demo", "--for", "1s", "--json", "--database", &database.bouncer_url()]).succeeded();
    assert_balanced(&ran.json());
}
