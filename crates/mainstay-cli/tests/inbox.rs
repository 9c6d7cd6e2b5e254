//! `mainstay inbox`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::queue::ClaimRequest;
use mainstay::sqlite::Sqlite;
use mainstay::{Inbox, OwnerToken};
use program::Program;
use serde_json::Value;

fn enqueue(program: &Program, arguments: &[&str]) -> Value {
    let all = [&["inbox", "enqueue", "--json"], arguments].concat();
    program.run(&all).succeeded().json()
}

fn entry(program: &Program, id: &str) -> Value {
    program.run(&["inbox", "show", "billing", id, "--json"]).succeeded().json()["entry"].clone()
}

/// Claims all that is due and fails it.
fn fail_all(program: &Program) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let inbox = Inbox::new(&Sqlite::open(program.folder().join("shop.db")).await.unwrap());
        let owner = OwnerToken::new();
        let claimed = inbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        inbox.fail(owner, &claimed.handles(), Some("broken".to_owned())).await.unwrap();
    });
}

#[test]
fn a_message_is_received_once_and_shown() {
    let program = Program::with_database();
    let first = enqueue(
        &program,
        &["billing", "inv-17", "invoice.paid", "{\"n\":17}", "--ordering-key=c", "--header=h=v"],
    );
    assert_eq!((first["outcome"].as_str(), first["hash_mismatch"].as_bool()), (Some("added"), Some(false)));
    let again = enqueue(&program, &["billing", "inv-17", "invoice.paid", "{\"n\":18}"]);
    assert_eq!((again["outcome"].as_str(), again["hash_mismatch"].as_bool()), (Some("replaced"), Some(true)));
    assert_eq!(again["work_item"], first["work_item"]);

    let shown = program.run(&["inbox", "show", "billing", "inv-17", "--json"]).succeeded().json();
    assert_eq!(shown["entry"]["state"], "seen");
    assert_eq!(
        (shown["entry"]["source"].as_str(), shown["entry"]["message_id"].as_str()),
        (Some("billing"), Some("inv-17"))
    );
    assert_eq!(shown["message"]["payload"], "{\"n\":18}");
    let payload = program.run(&["inbox", "show", "billing", "inv-17", "--payload"]).succeeded();
    assert_eq!(payload.stdout, "{\"n\":18}");
    let told = program.run(&["inbox", "show", "billing", "inv-17"]).succeeded();
    assert!(told.stdout.contains("invoice.paid") && told.stdout.contains("first seen"), "{}", told.stdout);
    let missing = program.run(&["inbox", "show", "billing", "inv-99"]);
    assert_eq!(missing.code, 1);
    assert!(missing.stderr.contains("billing/inv-99"), "{}", missing.stderr);
}

#[test]
fn what_can_not_be_received_is_wrong_usage() {
    let program = Program::with_database();
    for arguments in [["", "m", "t"], ["s", " ", "t"], ["s", "m", ""]] {
        let refused = program.run(&[&["inbox", "enqueue"], &arguments[..]].concat());
        assert_eq!(refused.code, 2, "{}", refused.stderr);
    }
    let keyed = program.run(&["inbox", "enqueue", "s", "m", "t", "--key=k"]);
    assert_eq!(keyed.code, 2, "source and id are the key");
}

#[test]
fn dead_messages_are_listed_and_requeued() {
    let program = Program::with_database();
    for id in ["inv-1", "inv-2", "inv-3"] {
        enqueue(&program, &["billing", id, "invoice.paid"]);
    }
    fail_all(&program);
    let dead = program.run(&["inbox", "list", "--state=dead", "--json"]).succeeded().json();
    assert_eq!(dead.as_array().unwrap().len(), 3);
    assert_eq!(dead[0]["last_error"], "broken");
    assert!(dead[0].get("payload").is_none());
    let first_page = program.run(&["inbox", "list", "--limit=2", "--json"]).succeeded().json();
    let last = first_page[1]["message_id"].as_str().unwrap();
    let rest = program.run(&["inbox", "list", "--json", "--after", "billing", last]).succeeded().json();
    assert_eq!(rest.as_array().unwrap().len(), 1);

    let one = program.run(&["inbox", "requeue", "billing", "inv-1", "inv-9"]);
    assert_eq!(one.code, 1);
    assert!(one.stdout.contains("billing/inv-1 requeued"), "{}", one.stdout);
    assert!(one.stderr.contains("no such message"), "{}", one.stderr);
    assert_eq!(entry(&program, "inv-1")["state"], "seen");
    let rest = program.run(&["inbox", "requeue", "--from=billing", "--json"]).succeeded().json();
    assert_eq!(rest["requeued"], 2);
    let none = program.run(&["inbox", "requeue", "--all-dead", "--json"]).succeeded().json();
    assert_eq!(none["requeued"], 0);
    assert_eq!(program.run(&["inbox", "requeue"]).code, 2);
}

#[test]
fn messages_are_marked_and_counted() {
    let program = Program::with_database();
    enqueue(&program, &["billing", "inv-1", "invoice.paid"]);
    let marked = program.run(&["inbox", "mark", "processed", "billing", "inv-1"]).succeeded();
    assert!(marked.stdout.contains("marked as processed"), "{}", marked.stdout);
    let again = program.run(&["inbox", "mark", "processed", "billing", "inv-1"]);
    assert_eq!((again.code, again.stderr.contains("it is done")), (1, true), "{}", again.stderr);
    let steering = program.run(&["inbox", "mark", "processed", "billing", "inv-3\u{1b}[31m"]).succeeded();
    assert!(steering.stdout.contains(r"inv-3\u{1b}[31m marked"), "{}", steering.stdout);
    program.run(&["inbox", "mark", "dead", "billing", "inv-2", "--error=not ours"]).succeeded();
    assert_eq!(entry(&program, "inv-2")["last_error"], "not ours");
    let stats = program.run(&["inbox", "stats", "--json"]).succeeded().json();
    assert_eq!((stats["ledger"]["done"].as_u64(), stats["ledger"]["dead"].as_u64()), (Some(2), Some(1)));
    assert_eq!(stats["queue"]["done"], 1);
    let told = program.run(&["inbox", "stats"]).succeeded();
    assert!(told.stdout.contains("seen") && told.stdout.contains("in the queue"), "{}", told.stdout);
}
