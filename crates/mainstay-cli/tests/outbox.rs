//! `mainstay outbox`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::io::Write;
use std::process::Stdio;

use mainstay::queue::ClaimRequest;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use program::{Program, Ran};
use serde_json::Value;

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

fn enqueue(program: &Program, arguments: &[&str]) -> Value {
    let all = [&["outbox", "enqueue", "--json"], arguments].concat();
    program.run(&all).succeeded().json()
}

fn id(enqueued: &Value) -> String {
    enqueued["work_item"].as_str().unwrap().to_owned()
}

fn show(program: &Program, id: &str) -> Value {
    program.run(&["outbox", "show", id, "--json"]).succeeded().json()
}

#[test]
fn a_message_keeps_all_it_was_enqueued_with() {
    let program = Program::with_database();
    let enqueued = enqueue(
        &program,
        &[
            "order.paid",
            "{\"order\":7}",
            "--correlation-id=request-1",
            "--due-in=5m",
            "--key=order-7",
            "--ordering-key=customer-3",
            "--priority=-3",
            "--expires-in=1h",
            "--header=source=test",
            "--header=empty=",
        ],
    );
    assert_eq!(enqueued["added"], true);
    let shown = show(&program, &id(&enqueued));
    for (field, value) in [
        ("topic", "order.paid"),
        ("payload", "{\"order\":7}"),
        ("correlation_id", "request-1"),
        ("idempotency_key", "order-7"),
        ("ordering_key", "customer-3"),
        ("status", "ready"),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    assert_eq!(shown["priority"], -3);
    assert_eq!(shown["headers"]["source"], "test");
    assert_eq!(shown["headers"]["empty"], "");
    assert!(shown["due_at"].is_string() && shown["expires_at"].is_string());

    let again = enqueue(&program, &["order.paid", "--key=order-7"]);
    assert_eq!(again["added"], false);
    assert_eq!(again["work_item"], enqueued["work_item"]);
}

#[test]
fn a_payload_comes_from_the_argument_a_file_or_stdin() {
    let program = Program::with_database();
    let payload = "line 1\nline 2 \u{1f980}\n";
    program.write("payload.txt", payload);
    let from_file = id(&enqueue(&program, &["t", "--payload-file", "payload.txt"]));

    let mut command = program.command(&["outbox", "enqueue", "t", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
    let from_stdin = id(&Ran::of(child.wait_with_output().unwrap()).succeeded().json());

    for id in [&from_file, &from_stdin] {
        assert_eq!(program.run(&["outbox", "show", id, "--payload"]).succeeded().stdout, payload);
    }
    let empty = id(&enqueue(&program, &["t"]));
    assert_eq!(show(&program, &empty)["payload"], "");
    let text = program.run(&["outbox", "show", &from_file]).succeeded().stdout;
    assert!(text.contains("line 2") && text.contains(&from_file), "{text}");
}

#[test]
fn a_list_is_filtered_and_paged_and_holds_no_payload() {
    let program = Program::with_database();
    let first = id(&enqueue(&program, &["a", "s3cret", "--correlation-id", "c"]));
    let second = id(&enqueue(&program, &["a", "s3cret", "--header", "h=s3cret"]));
    let third = id(&enqueue(&program, &["b"]));
    let list = |arguments: &[&str]| {
        let ran = program.run(&[&["outbox", "list", "--json"], arguments].concat()).succeeded();
        assert!(!ran.stdout.contains("s3cret"));
        let rows = ran.json();
        rows.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), [third.as_str(), second.as_str(), first.as_str()]);
    assert_eq!(list(&["--topic", "a", "--limit", "1"]), [second.as_str()]);
    assert_eq!(list(&["--topic", "a", "--after", &second]), [first.as_str()]);
    assert_eq!(list(&["--topic", "a", "--before", &second]), [first.as_str()], "its name of old");
    assert_eq!(list(&["--correlation-id", "c"]), [first.as_str()]);
    assert!(list(&["--status", "failed"]).is_empty());
    program.run(&["outbox", "cancel", &third]).succeeded();
    assert_eq!(list(&["--status", "failed", "--reason", "cancelled"]), [third.as_str()]);
    let table = program.run(&["outbox", "list"]).succeeded().stdout;
    assert!(table.contains(&first) && table.contains("failed: cancelled"), "{table}");
}

#[test]
fn cancelled_messages_come_back_by_requeue() {
    let program = Program::with_database();
    let message = id(&enqueue(&program, &["t"]));
    let cancelled = program.run(&["outbox", "cancel", &message, "--json"]).succeeded().json();
    assert_eq!(cancelled[0]["changed"], true);
    assert_eq!(show(&program, &message)["reason"], "cancelled");

    let requeued = program.run(&["outbox", "requeue", &message]).succeeded();
    assert_eq!(requeued.stdout, format!("{message} requeued\n"));
    assert_eq!(show(&program, &message)["status"], "ready");
    program.run(&["outbox", "requeue", &message]).failed(1, &[&message, "it is ready"]);
}

#[test]
fn requeue_takes_a_filter_and_a_limit() {
    let program = Program::with_database();
    let ids: Vec<_> = ["a", "a", "a", "b", "c"].map(|topic| id(&enqueue(&program, &[topic]))).into();
    let cancel: Vec<_> = ["outbox", "cancel"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    program.run(&cancel).succeeded();
    let requeued = |arguments: &[&str]| {
        let ran = program.run(&[&["outbox", "requeue", "--json"], arguments].concat()).succeeded();
        ran.json()["requeued"].as_u64().unwrap()
    };
    assert_eq!(requeued(&["--topic", "a", "--reason", "expired"]), 0);
    assert_eq!(requeued(&["--topic", "a", "--reason", "cancelled", "--limit", "2"]), 2);
    assert_eq!(requeued(&["--topic", "b"]), 1);
    assert_eq!(requeued(&["--all-failed"]), 2);
    assert_eq!(program.run(&["outbox", "stats", "--json"]).succeeded().json()["ready"], 5);
}

#[test]
fn ids_that_are_not_there_are_told_one_by_one() {
    let program = Program::with_database();
    let message = id(&enqueue(&program, &["t"]));
    let ran = program.run(&["outbox", "cancel", NOBODY, &message]);
    let ran = ran.failed(1, &[&format!("{NOBODY} not cancelled: there is no such message")]);
    assert_eq!(ran.stdout, format!("{message} cancelled\n"));
    let ran = program.run(&["outbox", "requeue", NOBODY, &message, "--json"]).ended(1);
    assert_eq!(ran.json()[0]["changed"], false);
    assert_eq!(ran.json()[1]["changed"], true);
    program.run(&["outbox", "show", NOBODY]).failed(1, &["there is no message", NOBODY]);
}

#[test]
fn stats_count_by_where_messages_stand() {
    let program = Program::with_database();
    enqueue(&program, &["a"]);
    enqueue(&program, &["a", "--due-at", "2999-01-01T00:00:00Z"]);
    let cancelled = id(&enqueue(&program, &["b"]));
    program.run(&["outbox", "cancel", &cancelled]).succeeded();
    let stats = program.run(&["outbox", "stats", "--json"]).succeeded().json();
    assert_eq!((&stats["ready"], &stats["scheduled"]), (&1.into(), &1.into()));
    assert_eq!((&stats["failed"], &stats["in_progress"]), (&1.into(), &0.into()));
    assert_eq!(stats["topics"].as_array().unwrap().len(), 2);
    let table = program.run(&["outbox", "stats"]).succeeded().stdout;
    assert!(table.contains("scheduled") && table.contains("oldest ready"), "{table}");
}

/// Claims what is due, as a worker would, and fails it.
async fn fail_all(program: &Program) {
    let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
    let outbox = Outbox::new(sqlite.outbox());
    let owner = OwnerToken::new();
    let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
    outbox.fail(owner, &claimed.handles(), Some("no".to_owned())).await.unwrap();
    sqlite.close().await;
}

#[tokio::test]
async fn a_held_key_is_released() {
    let program = Program::with_database();
    let message = id(&enqueue(&program, &["t", "--ordering-key", "k", "--hold-on-failure"]));
    let release = || program.run(&["outbox", "release-key", "k", "--json"]);
    assert_eq!(release().ended(1).json()["released"], false);
    fail_all(&program).await;
    let shown = show(&program, &message);
    assert_eq!((&shown["reason"], &shown["last_error"]), (&"handler".into(), &"no".into()));
    assert_eq!(program.run(&["outbox", "stats", "--json"]).succeeded().json()["held_keys"], 1);
    assert_eq!(release().succeeded().json()["released"], true);
    program.run(&["outbox", "release-key", "k"]).failed(1, &["k not released", "not held"]);
    program.run(&["outbox", "release-key", ""]).failed(2, &["ordering_key must be 1 to 255"]);
}
