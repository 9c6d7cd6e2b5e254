//! `mainstay joins`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use program::{Program, Ran};
use serde_json::{Value, json};

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";
const STEP: &str = "00000000-0000-7000-8000-000000000001";
const OTHER_STEP: &str = "00000000-0000-7000-8000-000000000002";

fn start(program: &Program, arguments: &[&str]) -> String {
    let started = program.run(&[&["joins", "start", "--json"], arguments].concat()).succeeded().json();
    started["id"].as_str().unwrap().to_owned()
}

fn show(program: &Program, join: &str) -> Value {
    program.run(&["joins", "show", join, "--members", "--json"]).succeeded().json()
}

fn enqueue(program: &Program, arguments: &[&str]) -> String {
    let enqueued = program.run(&[&["outbox", "enqueue", "--json"], arguments].concat()).succeeded().json();
    enqueued["work_item"].as_str().unwrap().to_owned()
}

/// What a worker does.
fn settle_all(program: &Program) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let (outbox, owner) = (Outbox::new(sqlite.outbox()), OwnerToken::new());
        let claimed = outbox.claim(&mainstay::queue::ClaimRequest::new(owner)).await.unwrap();
        outbox.ack(owner, &claimed.handles()).await.unwrap();
        sqlite.close().await;
    });
}

#[test]
fn a_join_keeps_all_it_was_started_with() {
    let program = Program::with_database();
    let join = start(
        &program,
        &[
            "5",
            "--quorum=3",
            "--key=order-7",
            "--deadline-at=2100-01-31T09:00:00Z",
            "--on-completed=order.ready",
            "--on-completed-payload=secret",
            "--on-failed=order.stuck",
        ],
    );
    let shown = show(&program, &join);
    for (field, value) in [
        ("id", json!(join)),
        ("grouping_key", json!("order-7")),
        ("mode", json!("quorum")),
        ("needed", json!(3)),
        ("expected", json!(5)),
        ("completed", json!(0)),
        ("failed", json!(0)),
        ("remaining", json!(5)),
        ("state", json!("pending")),
        ("reason", json!(null)),
        ("deadline_at", json!("2100-01-31T09:00:00Z")),
        ("ended_at", json!(null)),
        ("members", json!([])),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
    let told = program.run(&["joins", "show", &join]).succeeded().stdout;
    for text in ["order-7", "quorum of 3", "pending", "2100-01-31 09:00:00"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    assert!(!told.contains("secret"), "payloads are not shown: {told}");
    program.run(&["joins", "start", "1", "--id", &join]).failed(1, &["there is a join", "joins show"]);
}

#[test]
fn messages_that_are_settled_end_their_join() {
    let program = Program::with_database();
    let arguments = ["3", "--on-completed=order.ready", "--on-completed-payload=7", "--correlation-id=r1"];
    let join = start(&program, &arguments);
    let first = enqueue(&program, &["a", "--join", &join]);
    settle_all(&program);
    assert_eq!(show(&program, &join)["completed"], 1);
    let late = enqueue(&program, &["b"]);
    settle_all(&program);
    let waiting = enqueue(&program, &["c"]);
    // One that is a member already, one that has ended, one that waits.
    let told = program.run(&["joins", "attach", &join, &first, &late, &waiting]).succeeded().stdout;
    assert_eq!(told, "2 steps attached\n1 counted at once; the join is pending\n");
    let again = program.run(&["joins", "attach", &join, &late, "--json"]).succeeded().json();
    assert_eq!(again, json!({ "join": join, "added": 0, "counted": null }));
    settle_all(&program);
    let shown = show(&program, &join);
    assert_eq!((&shown["state"], &shown["completed"]), (&"completed".into(), &3.into()));
    assert!(shown["ended_at"].is_string());
    let states = shown["members"].as_array().unwrap().iter().map(|member| &member["state"]);
    assert!(states.eq(&[json!("completed"), json!("completed"), json!("completed")]), "{shown}");
    let ready = program.run(&["outbox", "list", "--status=ready", "--json"]).succeeded().json();
    assert_eq!((ready.as_array().unwrap().len(), &ready[0]["topic"]), (1, &"order.ready".into()));
    assert_eq!(ready[0]["correlation_id"], "r1");
    program.run(&["joins", "attach", &join, STEP]).failed(1, &["nothing was attached", "ended"]);
}

#[test]
fn steps_are_reported_by_hand_once() {
    let program = Program::with_database();
    let join = start(&program, &["2", "--on-failed=order.stuck"]);
    let report = |item, outcome| program.run(&["joins", "report", &join, item, outcome]);
    report(STEP, "completed").failed(1, &["the step was not counted", STEP]);
    program.run(&["joins", "attach", &join, STEP, OTHER_STEP, NOBODY]).succeeded();
    let told = report(STEP, "completed").succeeded().stdout;
    assert_eq!(told, "counted as completed; the join is pending\n");
    assert_eq!(report(STEP, "failed").succeeded().stdout, "counted already\n");
    let last = program.run(&["joins", "report", &join, OTHER_STEP, "failed", "--json"]).succeeded().json();
    assert_eq!((&last["outcome"], &last["state"]), (&"counted".into(), &"failed".into()));
    assert_eq!(report(OTHER_STEP, "failed").succeeded().stdout, "counted already\n", "the last one too");
    report(NOBODY, "failed").failed(1, &["not counted: the join is failed"]);
    let told =
        program.run(&["joins", "show", &join, "--members", "--after", NOBODY, "--limit=1"]).succeeded();
    assert!(told.stdout.contains("failed: steps") && told.stdout.contains(STEP), "{}", told.stdout);
    assert!(told.stderr.contains(&format!("there may be more: --after {STEP}")), "{}", told.stderr);
    let rest = program.run(&["joins", "show", &join, "--members", "--after", STEP, "--json"]).succeeded();
    assert_eq!(rest.json()["members"][0]["work_item"], OTHER_STEP);
    let ready = program.run(&["outbox", "list", "--json"]).succeeded().json();
    assert_eq!(ready[0]["topic"], "order.stuck");
}

#[test]
fn a_join_is_cancelled_with_what_waits() {
    let program = Program::with_database();
    let join = start(&program, &["2", "--on-completed=t", "--on-failed=t"]);
    let other = start(&program, &["1"]);
    let waiting = enqueue(&program, &["a", "--join", &join, "--join", &other]);
    let cancelled = program.run(&["joins", "cancel", &join, "--json"]).succeeded().json();
    assert_eq!((&cancelled["changed"], &cancelled["cancelled_messages"]), (&true.into(), &json!([waiting])));
    assert_eq!(cancelled["counted"][0]["join"], other.as_str(), "the message's other join counts it");
    assert_eq!(show(&program, &join)["state"], "cancelled");
    assert_eq!(show(&program, &other)["state"], "failed");
    program.run(&["joins", "cancel", &join]).failed(1, &["not cancelled: it is cancelled"]);
    let ready = program.run(&["outbox", "list", "--status=ready", "--json"]).succeeded().json();
    assert_eq!(ready, json!([]), "there is no continuation");
    let empty = start(&program, &["1"]);
    let told = program.run(&["joins", "cancel", &empty]).succeeded().stdout;
    assert_eq!(told, format!("{empty} cancelled, and 0 waiting messages of it\n"));
}

#[test]
fn joins_are_listed_by_key_and_state() {
    let program = Program::with_database();
    assert_eq!(program.run(&["joins", "list"]).succeeded().stdout, "no joins\n");
    let first = start(&program, &["1", "--key=order-7"]);
    let second = start(&program, &["1", "--mode=any", "--key=order-8"]);
    program.run(&["joins", "cancel", &first]).succeeded();
    let ids = |arguments: &[&str]| {
        let listed = program.run(&[&["joins", "list", "--json"], arguments].concat()).succeeded().json();
        let id = |join: &Value| join["id"].as_str().unwrap().to_owned();
        listed.as_array().unwrap().iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), [second.as_str(), &first]);
    assert_eq!(ids(&["--key=order-7"]), [first.as_str()]);
    assert_eq!(ids(&["--state=pending"]), [second.as_str()]);
    assert_eq!(ids(&["--after", &second]), [first.as_str()]);
    assert_eq!(ids(&["--key=order-7", "--state=failed"]), [""; 0]);
    let told = program.run(&["joins", "list", "--limit=1"]).succeeded();
    assert!(told.stdout.contains("0 of 1") && told.stdout.contains("order-8"), "{}", told.stdout);
    assert!(told.stderr.contains("there may be more: --after"), "{}", told.stderr);
}

#[test]
fn what_is_not_there_is_told() {
    let program = Program::with_database();
    program.run(&["joins", "show", NOBODY]).failed(1, &["there is no join", "joins list"]);
    program.run(&["joins", "cancel", NOBODY]).failed(1, &["was not cancelled", "joins list"]);
    program.run(&["joins", "attach", NOBODY, STEP]).failed(1, &["nothing was attached", "joins list"]);
    program.run(&["joins", "report", NOBODY, STEP, "failed"]).failed(1, &["not counted", "joins list"]);
    program.run(&["outbox", "enqueue", "t", "--join", NOBODY]).failed(1, &["was not enqueued", NOBODY]);
    assert_eq!(program.run(&["outbox", "list", "--json"]).succeeded().json(), json!([]));
}

#[test]
fn a_join_that_has_ended_and_an_id_that_is_taken_are_no_wrong_usage() {
    let program = Program::with_database();
    let join = start(&program, &["1"]);
    program.run(&["joins", "cancel", &join]).succeeded();
    let says = ["nothing was attached", "has ended (cancelled)"];
    program.run(&["joins", "attach", &join, STEP]).failed(1, &says);
    let says = ["was not enqueued", "has ended (cancelled)"];
    program.run(&["outbox", "enqueue", "t", "--join", &join]).failed(1, &says);

    let id = "0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a77";
    let all: Vec<_> = (0..4).map(|_| program.start(&["joins", "start", "1", "--id", id])).collect();
    let all = all.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap()));
    let (started, others): (Vec<_>, Vec<_>) = all.partition(|ran| ran.code == 0);
    assert_eq!((started.len(), others.len()), (1, 3));
    others.into_iter().for_each(|other| drop(other.failed(1, &["there is a join", "already", "joins show"])));
}

#[test]
fn what_is_wrong_is_told_before_a_database_is_opened() {
    let program = Program::new();
    for (arguments, says) in [
        (vec!["joins"], "Usage"),
        (vec!["joins", "start"], "<EXPECTED>"),
        (vec!["joins", "start", "0"], "expected_steps must be 1 to 1,000,000,000, got 0"),
        (vec!["joins", "start", "2", "--quorum=3"], "quorum must be 1 to the expected steps (2), got 3"),
        (vec!["joins", "start", "2", "--quorum=1", "--mode=any"], "--mode"),
        (vec!["joins", "start", "2", "--mode=quorum"], "--quorum 3"),
        (vec!["joins", "start", "2", "--key="], "--key must be 1 to 255 characters, got 0"),
        (vec!["joins", "start", "2", "--mode=some"], "all, any, quorum, deadline"),
        (vec!["joins", "start", "2", "--mode=deadline"], "deadline must be given"),
        (vec!["joins", "start", "2", "--deadline-in=soon"], "--deadline-in"),
        (vec!["joins", "start", "2", "--on-failed="], "topic must be 1 to 255 characters"),
        (vec!["joins", "start", "2", "--on-failed-payload=1"], "--on-failed"),
        (vec!["joins", "list", "--state=done"], "pending, completed, failed, cancelled"),
        (vec!["joins", "show", "7"], "UUID"),
        (vec!["joins", "show", NOBODY, "--after", STEP], "--members"),
        (vec!["joins", "attach", NOBODY], "<ITEMS>"),
        (vec!["joins", "report", NOBODY, STEP, "done"], "completed, failed"),
        (vec!["outbox", "enqueue", "t", "--join=7"], "UUID"),
        (vec!["inbox", "enqueue", "s", "m", "t", "--join", NOBODY], "--join"),
        (vec!["timers", "schedule", "t", "--due-in=1s", "--join", NOBODY], "--join"),
    ] {
        program.run(&arguments).failed(2, &[says]);
    }
}
