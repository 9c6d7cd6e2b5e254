//! `pause` and `resume` of outbox and inbox, as a person uses them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::queue::ClaimRequest;
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use program::Program;
use serde_json::json;

/// How many a worker gets.
async fn claimed(program: &Program) -> usize {
    let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
    let outbox = Outbox::new(sqlite.outbox());
    let claimed = outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap();
    sqlite.close().await;
    claimed.items.len()
}

#[tokio::test]
async fn a_topic_is_paused_and_resumed() {
    let program = Program::with_database();
    let enqueue = ["outbox", "enqueue", "mail.send", "--json"];
    let id = program.run(&enqueue).succeeded().json()["work_item"].as_str().unwrap().to_owned();
    let pause = ["--actor", "alice", "outbox", "pause", "mail.send", "--reason", "INC-17"];
    assert_eq!(program.run(&pause).succeeded().stdout, "mail.send paused\n");
    assert_eq!(program.run(&pause).succeeded().stdout, "mail.send paused already\n");
    assert_eq!(claimed(&program).await, 0);

    let stats = program.run(&["outbox", "stats", "--json"]).succeeded().json();
    assert_eq!(
        (&stats["paused"][0]["topic"], &stats["paused"][0]["by"]),
        (&json!("mail.send"), &json!("alice"))
    );
    let table = program.run(&["outbox", "stats"]).succeeded().stdout;
    assert!(table.contains("paused topic") && table.contains("INC-17"), "{table}");
    let why = program.run(&["why", &id, "--json"]).succeeded().json();
    assert_eq!(
        (&why["because"], &why["by"], &why["reason"]),
        (&json!("paused"), &json!("alice"), &json!("INC-17"))
    );
    let why = program.run(&["why", &id]).succeeded().stdout;
    assert!(why.contains("mainstay outbox resume 'mail.send'"), "{why}");
    let health = program.run(&["health"]).succeeded().stdout;
    assert!(health.contains("1 topic paused: \"mail.send\" of the outbox"), "{health}");

    let resumed = program.run(&["outbox", "resume", "mail.send", "--json"]).succeeded().json();
    assert_eq!(resumed, json!({ "topic": "mail.send", "paused": false, "changed": true }));
    assert_eq!(program.run(&["outbox", "resume", "mail.send"]).succeeded().stdout, "mail.send not paused\n");
    assert_eq!(claimed(&program).await, 1);
    let told = program.run(&["audit", "list", "--name", "outbox.", "--json"]).succeeded().json();
    let names: Vec<_> =
        told.as_array().unwrap().iter().map(|record| record["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["outbox.resume", "outbox.pause"]);
}

#[test]
fn the_inbox_has_topics_of_its_own() {
    let program = Program::with_database();
    program.run(&["inbox", "pause", "order.import"]).succeeded();
    assert_eq!(program.run(&["outbox", "stats", "--json"]).succeeded().json()["paused"], json!([]));
    let stats = program.run(&["inbox", "stats", "--json"]).succeeded().json();
    assert_eq!(stats["paused"][0]["topic"], "order.import");
    assert!(program.run(&["inbox", "stats"]).succeeded().stdout.contains("order.import"));
    assert_eq!(
        program.run(&["inbox", "resume", "order.import"]).succeeded().stdout,
        "order.import resumed\n"
    );
}

#[test]
fn what_is_no_topic_is_refused() {
    let program = Program::with_database();
    program.run(&["outbox", "pause", ""]).failed(2, &["topic must be 1 to 255"]);
    program.run(&["outbox", "pause", "t", "--reason", ""]).failed(2, &["reason must be 1 to 255"]);
    program.run(&["outbox", "pause"]).failed(2, &["<TOPIC>"]);
}
