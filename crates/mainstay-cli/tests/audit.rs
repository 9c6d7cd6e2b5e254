//! `mainstay audit`, and what the other commands leave there, on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::fanout::{Fanout, FanoutDefinition};
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{LeaseOptions, Leases, Outbox, OwnerToken};
use program::Program;
use serde_json::{Value, json};

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";
const STEP: &str = "00000000-0000-7000-8000-000000000001";

fn list(program: &Program, arguments: &[&str]) -> Vec<Value> {
    let listed = program.run(&[&["audit", "list", "--json"], arguments].concat()).succeeded().json();
    listed.as_array().unwrap().clone()
}

/// The names of those records, the oldest first.
fn names(program: &Program, arguments: &[&str]) -> Vec<String> {
    let listed = list(program, arguments);
    listed.iter().rev().map(|record| record["name"].as_str().unwrap().to_owned()).collect()
}

fn enqueue(program: &Program, arguments: &[&str]) -> String {
    let enqueued = program.run(&[&["outbox", "enqueue", "--json"], arguments].concat()).succeeded().json();
    enqueued["work_item"].as_str().unwrap().to_owned()
}

fn in_database<T>(program: &Program, work: impl AsyncFnOnce(&Sqlite) -> T) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let result = work(&sqlite).await;
        sqlite.close().await;
        result
    })
}

#[test]
fn every_administrative_command_leaves_a_record_of_its_actor() {
    let program = Program::with_database();
    enqueue(&program, &["order.paid", "{}", "--ordering-key=k", "--hold-on-failure"]);
    in_database(&program, async |sqlite: &Sqlite| {
        let (outbox, owner) = (Outbox::new(sqlite.outbox()), OwnerToken::new());
        let claimed = outbox.claim(&mainstay::queue::ClaimRequest::new(owner)).await.unwrap();
        assert_eq!(outbox.fail(owner, &claimed.handles(), None).await.unwrap().changed.len(), 1);
        Fanout::new(sqlite)
            .register(FanoutDefinition::new("etl", "payments").every(std::time::Duration::from_secs(600)))
            .await
            .unwrap();
    });
    let id = enqueue(&program, &["order.paid", "{}"]);
    let run = |arguments: &[&str]| {
        program.run(&[&["--actor", "alice", "--correlation-id", "T-1"], arguments].concat()).succeeded()
    };
    run(&["outbox", "cancel", &id]);
    run(&["outbox", "requeue", &id]);
    run(&["outbox", "release-key", "k"]);
    run(&["jobs", "create", "nightly", "0 2 * * *"]);
    run(&["jobs", "update", "nightly", "--cron", "0 3 * * *"]);
    run(&["jobs", "disable", "nightly"]);
    run(&["jobs", "enable", "nightly"]);
    run(&["jobs", "trigger", "nightly"]);
    run(&["jobs", "delete", "nightly"]);
    run(&["inbox", "enqueue", "shop", "1", "order.paid", "{}"]);
    run(&["inbox", "mark", "dead", "shop", "1"]);
    run(&["inbox", "requeue", "shop", "1"]);
    run(&["inbox", "mark", "processed", "shop", "1"]);
    let timer = run(&["timers", "schedule", "later", "{}", "--due-in", "1h", "--json"]).json();
    let timer = timer["work_item"].as_str().unwrap().to_owned();
    run(&["timers", "reschedule", &timer, "--due-in", "2h"]);
    run(&["timers", "cancel", &timer]);
    let join = run(&["joins", "start", "2", "--json"]).json();
    let join = join["id"].as_str().unwrap().to_owned();
    run(&["joins", "attach", &join, STEP]);
    run(&["joins", "report", &join, STEP, "completed"]);
    run(&["joins", "cancel", &join]);
    run(&["fanout", "set", "etl", "payments", "--every", "5m"]);
    run(&["fanout", "run", "etl", "payments"]);
    run(&["fanout", "register", "etl", "vendors", "--every", "5m"]);
    run(&["fanout", "add-shards", "etl", "vendors", "a", "b"]);
    run(&["fanout", "forget-shards", "etl", "vendors", "a"]);
    run(&["fanout", "delete", "etl", "vendors"]);

    let wanted = [
        "outbox.cancel",
        "outbox.requeue",
        "outbox.release_key",
        "job.create_or_update",
        "job.create_or_update",
        "job.disable",
        "job.enable",
        "job.trigger",
        "job.delete",
        "inbox.mark_dead",
        "inbox.requeue",
        "inbox.mark_processed",
        "timers.reschedule",
        "timers.cancel",
        "join.start",
        "join.attach",
        "join.report",
        "join.cancel",
        "fanout.set",
        "fanout.run",
        "fanout.register",
        "fanout.add_shards",
        "fanout.forget_shard",
        "fanout.delete",
    ];
    assert_eq!(names(&program, &["--actor", "alice"]), wanted);
    assert_eq!(names(&program, &["--correlation-id", "T-1"]), wanted);
    assert_eq!(names(&program, &["--outcome", "failed"]), [] as [&str; 0]);
}

#[test]
fn a_lease_that_is_taken_away_and_a_migration_are_the_user_s_unless_told_otherwise() {
    let program = Program::with_database();
    let deployed = list(&program, &["--name", "schema."]);
    let actor = deployed[0]["actor"].as_str().unwrap();
    assert!(actor.starts_with("cli:") && actor.len() > "cli:".len(), "{actor}");
    in_database(&program, async |sqlite: &Sqlite| {
        let leases = Leases::new(sqlite.leases());
        let hour = LeaseOptions::default().duration(std::time::Duration::from_secs(3_600));
        let lease = leases.acquire_with("reports", hour).await.unwrap().lease().unwrap();
        // Whoever holds it dies.
        std::mem::forget(lease);
    });
    let mut command = program.command(&["leases", "release", "reports"]);
    program::Ran::of(command.env("MAINSTAY_ACTOR", "bob").output().unwrap()).succeeded();
    let released = list(&program, &["--about", "lease=reports"]);
    assert_eq!((&released[0]["actor"], &released[0]["name"]), (&json!("bob"), &json!("lease.force_release")));
    program.run(&["--actor", "", "migrate"]).failed(2, &["actor"]);
    program.run(&["--actor", &"x".repeat(256), "migrate"]).failed(2, &["actor"]);
    program.run(&["--correlation-id", &"x".repeat(256), "migrate"]).failed(2, &["correlation-id"]);
}

#[test]
fn what_is_refused_leaves_a_record_of_the_failure() {
    let program = Program::with_database();
    for (arguments, name, about) in [
        (vec!["outbox", "cancel", NOBODY], "outbox.cancel", format!("outbox={NOBODY}")),
        (vec!["outbox", "requeue", NOBODY], "outbox.requeue", format!("outbox={NOBODY}")),
        (vec!["outbox", "release-key", "k"], "outbox.release_key", "ordering_key=k".to_owned()),
        (vec!["jobs", "update", "x"], "job.create_or_update", "job=x".to_owned()),
        (vec!["jobs", "delete", "x"], "job.delete", "job=x".to_owned()),
        (vec!["jobs", "enable", "x"], "job.enable", "job=x".to_owned()),
        (vec!["jobs", "disable", "x"], "job.disable", "job=x".to_owned()),
        (vec!["jobs", "trigger", "x"], "job.trigger", "job=x".to_owned()),
        (vec!["inbox", "requeue", "shop", "1"], "inbox.requeue", "inbox=1".to_owned()),
        (vec!["timers", "cancel", NOBODY], "timers.cancel", format!("timers={NOBODY}")),
        (
            vec!["timers", "reschedule", NOBODY, "--due-in", "1s"],
            "timers.reschedule",
            format!("timers={NOBODY}"),
        ),
        (vec!["joins", "cancel", NOBODY], "join.cancel", format!("join={NOBODY}")),
        (vec!["joins", "report", NOBODY, STEP, "failed"], "join.report", format!("step={STEP}")),
        (vec!["fanout", "set", "a", "b", "--disable"], "fanout.set", "fanout=a:b".to_owned()),
        (vec!["fanout", "run", "a", "b"], "fanout.run", "fanout=a:b".to_owned()),
        (vec!["leases", "release", "l"], "lease.force_release", "lease=l".to_owned()),
    ] {
        let asked = [&["--actor", "mallory", "--correlation-id", "T-2"], arguments.as_slice()].concat();
        program.run(&asked).ended(1);
        let found = list(&program, &["--name", name, "--about", &about, "--outcome", "failed"]);
        assert_eq!(found.len(), 1, "{arguments:?}: {found:?}");
        assert_eq!((&found[0]["actor"], &found[0]["correlation_id"]), (&json!("mallory"), &json!("T-2")));
        let why = found[0]["data"]["error"].as_str().unwrap();
        assert!(!why.is_empty(), "{arguments:?}");
        // A reason, and not just that there is one.
        assert!(!why.contains("not all that was asked for"), "{arguments:?}: {why}");
    }
    let done = enqueue(&program, &["t"]);
    program.run(&["outbox", "cancel", &done]).succeeded();
    program
        .run(&["outbox", "cancel", &done, NOBODY])
        .failed(1, &["it is cancelled", "there is no such message"]);
    let found = list(&program, &["--about", &format!("outbox={done}"), "--outcome", "failed"]);
    let why = found[0]["data"]["error"].as_str().unwrap();
    assert!(
        why.contains(&format!("{done} not cancelled: it is cancelled")) && why.contains("no such message"),
        "{why}"
    );
    // What was never tried is no attempt: wrong usage, and what only looks.
    let before = list(&program, &[]).len();
    program.run(&["outbox", "cancel", "no-id"]).ended(2);
    program.run(&["jobs", "create", "x", "nonsense"]).ended(2);
    program.run(&["jobs", "show", "x"]).ended(1);
    assert_eq!(list(&program, &[]).len(), before);
}

#[test]
fn records_are_listed_by_page_and_shown() {
    let program = Program::with_database();
    let ids: Vec<_> = (0..3).map(|_| enqueue(&program, &["order.paid", "secret"])).collect();
    for id in &ids {
        program.run(&["--actor", "alice", "outbox", "cancel", id]).succeeded();
    }
    let all = list(&program, &["--name", "outbox."]);
    assert_eq!(all.len(), 3);
    let first = program.run(&["audit", "list", "--name", "outbox.", "--limit", "2"]).succeeded();
    let last = all[1]["id"].as_str().unwrap();
    assert!(first.stderr.contains(&format!("--after {last}")), "{}", first.stderr);
    for text in ["outbox.cancel", "alice", "succeeded", &format!("outbox={}", ids[2])] {
        assert!(first.stdout.contains(text), "{text}: {}", first.stdout);
    }
    assert_eq!(list(&program, &["--name", "outbox.", "--after", last]), all[2..]);
    let (from, to) = ("2000-01-01T00:00:00Z", "2001-01-01T00:00:00Z");
    assert_eq!(list(&program, &["--since", from, "--until", to]), [] as [Value; 0]);
    assert_eq!(list(&program, &["--name", "outbox.", "--since", to]), all);

    assert_eq!(program.run(&["audit", "show", last, "--json"]).succeeded().json(), all[1]);
    let shown = program.run(&["audit", "show", last]).succeeded().stdout;
    for text in ["outbox.cancel", "alice", &ids[1], "\"before\"", "cancelled"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(!shown.contains("secret"), "payloads are not shown: {shown}");
    program.run(&["audit", "show", NOBODY]).failed(1, &["there is no record", "mainstay audit list"]);
    assert_eq!(program.run(&["audit", "list", "--actor", "nobody"]).succeeded().stdout.trim(), "no records");
    program.run(&["audit", "list", "--about", "job"]).failed(2, &["job=nightly"]);
    program.run(&["audit", "list", "--outcome", "odd"]).failed(2, &["succeeded, failed or refused"]);
}

#[test]
fn a_correlation_id_of_a_message_is_still_the_message_s() {
    let program = Program::with_database();
    let id = enqueue(&program, &["order.paid", "{}", "--correlation-id", "request-81"]);
    let shown = program.run(&["outbox", "show", &id, "--json"]).succeeded().json();
    assert_eq!(shown["correlation_id"], json!("request-81"));
    let other = enqueue(&program, &["order.paid", "{}"]);
    let found =
        program.run(&["outbox", "list", "--json", "--correlation-id", "request-81"]).succeeded().json();
    assert_eq!(found.as_array().unwrap().len(), 1, "{other} has none");
}
