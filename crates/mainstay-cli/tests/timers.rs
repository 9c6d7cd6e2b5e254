//! `mainstay timers`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{OwnerToken, Timers};
use program::Program;
use serde_json::Value;

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

fn schedule(program: &Program, arguments: &[&str]) -> String {
    let all = [&["timers", "schedule", "--json"], arguments].concat();
    let scheduled = program.run(&all).succeeded().json();
    scheduled["work_item"].as_str().unwrap().to_owned()
}

fn show(program: &Program, id: &str) -> Value {
    program.run(&["timers", "show", id, "--json"]).succeeded().json()
}

/// Fires what is due, as a process with timers would.
fn fire(program: &Program) -> usize {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let fired = Timers::new(&sqlite).queue().store().forward(OwnerToken::new(), 100).await.unwrap();
        sqlite.close().await;
        fired.len()
    })
}

#[test]
fn a_timer_keeps_all_it_was_scheduled_with() {
    let program = Program::with_database();
    let due = "--due-at=2031-01-31T09:00:00Z";
    let arguments = [
        "reminder",
        "{\"user\":7}",
        due,
        "--correlation-id=request-1",
        "--key=reminder-7",
        "--ordering-key=user-7",
        "--hold-on-failure",
        "--priority=-3",
        "--header=source=test",
    ];
    let id = schedule(&program, &arguments);
    assert_eq!(schedule(&program, &arguments), id, "the key was used before");
    let shown = show(&program, &id);
    for (field, value) in [
        ("topic", "reminder"),
        ("payload", "{\"user\":7}"),
        ("correlation_id", "request-1"),
        ("idempotency_key", "reminder-7"),
        ("ordering_key", "user-7"),
        ("due_at", "2031-01-31T09:00:00Z"),
        ("status", "ready"),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(shown["priority"], -3);
    assert_eq!(shown["headers"], serde_json::json!({ "source": "test" }));
    let told = program.run(&["timers", "show", &id]).succeeded().stdout;
    assert!(told.contains("2031-01-31 09:00:00") && told.contains("user-7"), "{told}");
    assert_eq!(program.run(&["timers", "show", &id, "--payload"]).succeeded().stdout, "{\"user\":7}");
    let told = program.run(&["timers", "schedule", "t", "--due-in=1h"]).succeeded().stdout;
    assert!(told.starts_with("timer     ") && told.contains("\nmessage   "), "{told}");
}

#[test]
fn wrong_usage_is_told_before_a_database_is_opened() {
    let program = Program::new();
    program.run(&["timers", "schedule", "t", "--database=none.db"]).failed(2, &["--due-in"]);
    let both = ["timers", "schedule", "t", "--due-in=1s", "--due-at=2031-01-31T09:00:00Z"];
    program.run(&both).failed(2, &["cannot be used with"]);
    program.run(&["timers", "schedule", "", "--due-in=1s", "--database=none.db"]).failed(2, &["topic"]);
    program.run(&["timers", "reschedule", NOBODY, "--database=none.db"]).failed(2, &["--due-in"]);
    program.run(&["timers", "cancel", "seven", "--database=none.db"]).failed(2, &["UUID"]);
}

#[test]
fn timers_are_cancelled_once_and_moved_while_they_wait() {
    let program = Program::with_database();
    let (gone, kept) = (schedule(&program, &["t", "--due-in=1h"]), schedule(&program, &["t", "--due-in=1h"]));
    program.run(&["timers", "cancel", &gone]).succeeded();
    program.run(&["timers", "cancel", &gone]).failed(1, &["not cancelled: it is cancelled"]);
    program.run(&["timers", "reschedule", &gone, "--due-in=1s"]).failed(1, &["not rescheduled"]);
    program.run(&["timers", "reschedule", NOBODY, "--due-in=1s"]).failed(1, &["there is no such timer"]);
    program.run(&["timers", "show", NOBODY]).failed(1, &["there is no timer", "mainstay timers list"]);
    assert_eq!(fire(&program), 0);
    let moved = program.run(&["timers", "reschedule", &kept, "--due-at=2020-01-01T00:00:00Z"]).succeeded();
    assert_eq!(moved.stdout, format!("{kept} rescheduled\n"));
    assert_eq!(fire(&program), 1);
    assert_eq!(show(&program, &kept)["status"], "done");
    // Its message is there, under the same id.
    let message = program.run(&["outbox", "show", &kept, "--json"]).succeeded().json();
    assert_eq!((&message["status"], &message["topic"]), (&"ready".into(), &"t".into()));
}

#[test]
fn timers_are_listed_and_counted() {
    let program = Program::with_database();
    assert_eq!(program.run(&["timers", "list"]).succeeded().stdout, "no timers\n");
    schedule(&program, &["a", "secret", "--due-at=2031-01-31T09:00:00Z"]);
    let overdue = schedule(&program, &["b", "--due-in=0s"]);
    let cancelled = schedule(&program, &["b", "--due-in=1h"]);
    program.run(&["timers", "cancel", &cancelled]).succeeded();
    let listed = program.run(&["timers", "list", "--json", "--topic=b"]).succeeded().json();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|timer| timer["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [&cancelled, &overdue]);
    let all = program.run(&["timers", "list"]).succeeded().stdout;
    assert!(all.contains("2031-01-31 09:00:00") && !all.contains("secret"), "{all}");
    assert_eq!(fire(&program), 1);
    let stats = program.run(&["timers", "stats", "--json"]).succeeded().json();
    for (field, count) in [("pending", 1), ("overdue", 0), ("claimed", 0), ("fired", 1), ("failed", 1)] {
        assert_eq!(stats[field], count, "{field}");
    }
    assert_eq!(stats["next_event_time"], "2031-01-31T09:00:00Z");
    let told = program.run(&["timers", "stats"]).succeeded().stdout;
    assert!(told.contains("the next event is due at 2031-01-31 09:00:00"), "{told}");
    let help = program.run(&["timers", "list", "--help"]).succeeded().stdout;
    assert!(help.contains("mainstay timers list --status ready") && !help.contains("outbox list"), "{help}");
}
