//! `mainstay jobs`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use mainstay::{Jobs, OwnerToken};
use program::{Program, Ran};
use serde_json::Value;

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

fn show(program: &Program, name: &str) -> Value {
    program.run(&["jobs", "show", name, "--json"]).succeeded().json()
}

#[test]
fn a_job_keeps_all_it_was_created_with() {
    let program = Program::with_database();
    let created = program.run(&[
        "jobs",
        "create",
        "nightly",
        "30 2 * * *",
        "--topic=report.build",
        "--payload={\"full\":true}",
        "--tz=Europe/Berlin",
        "--misfire=all",
        "--misfire-cap=24",
        "--misfire-window=2d",
        "--overlap=queue",
        "--jitter=5m",
        "--priority=-3",
        "--json",
    ]);
    let created = created.succeeded().json();
    assert_eq!(created, show(&program, "nightly"));
    for (field, value) in [
        ("topic", "report.build"),
        ("payload", "{\"full\":true}"),
        ("cron", "30 2 * * *"),
        ("time_zone", "Europe/Berlin"),
        ("overlap", "queue"),
    ] {
        assert_eq!(created[field], value, "{field}");
    }
    assert_eq!(created["misfire"]["policy"], "all");
    assert_eq!(
        (&created["misfire"]["cap"], &created["misfire"]["window_seconds"]),
        (&24.into(), &172_800.into())
    );
    assert_eq!((&created["jitter_seconds"], &created["priority"]), (&300.into(), &(-3).into()));
    assert!(created["next_nominal_at"].is_string());
    let payload = program.run(&["jobs", "show", "nightly", "--payload"]).succeeded();
    assert_eq!(payload.stdout, "{\"full\":true}");
    let told = program.run(&["jobs", "show", "nightly"]).succeeded().stdout;
    for text in ["report.build", "Europe/Berlin", "all, at most 24", "queue"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    program.run(&["jobs", "create", "nightly", "@daily"]).failed(1, &["already", "jobs update"]);
}

/// Lets these run at once, and tells what became of each.
fn at_once(program: &Program, all: &[Vec<String>]) -> Vec<Ran> {
    let start =
        |arguments: &Vec<String>| program.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let started: Vec<_> = all.iter().map(start).collect();
    started.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap())).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn of_many_who_create_a_job_at_once_one_does() {
    let program = Program::with_database();
    let create = |number: usize| words(&format!("jobs create nightly @daily --payload={number}"));
    let (created, others): (Vec<_>, Vec<_>) =
        at_once(&program, &(0..6).map(create).collect::<Vec<_>>()).into_iter().partition(|ran| ran.code == 0);
    assert_eq!((created.len(), others.len()), (1, 5));
    assert!(created[0].stdout.starts_with("nightly created, next "), "{}", created[0].stdout);
    others.into_iter().for_each(|other| drop(other.failed(1, &["there is a job \"nightly\" already"])));
}

#[test]
fn what_several_change_at_once_is_all_changed() {
    let program = Program::with_database();
    for round in 1..=3 {
        program.run(&["jobs", "create", "sync", "@hourly"]).succeeded();
        let all =
            ["update sync --priority=7", "disable sync", "update sync --jitter=9s", "update sync --topic=t"];
        let all = all.map(|one| words(&format!("jobs {one}")));
        at_once(&program, &all).into_iter().for_each(|ran| drop(ran.succeeded()));
        let job = show(&program, "sync");
        let found =
            (&job["priority"], &job["jitter_seconds"], &job["topic"], &job["enabled"], &job["version"]);
        assert_eq!(found, (&7.into(), &9.into(), &"t".into(), &false.into(), &5.into()), "round {round}");

        let all = ["update sync --priority=1", "delete sync"].map(|one| words(&format!("jobs {one}")));
        assert_eq!(at_once(&program, &all).pop().unwrap().code, 0);
        program.run(&["jobs", "show", "sync"]).failed(1, &["no job \"sync\""]);
    }
}

#[test]
fn an_update_changes_what_it_names() {
    let program = Program::with_database();
    program.run(&["jobs", "create", "sync", "*/5 * * * *", "--payload=1", "--misfire=all"]).succeeded();
    let before = show(&program, "sync");
    assert_eq!(before["topic"], "sync", "the name unless told otherwise");
    let told = program.run(&["jobs", "update", "sync", "--cron=0 3 * * *", "--misfire-cap=7"]).succeeded();
    assert!(told.stdout.starts_with("sync updated, next "), "{}", told.stdout);
    let after = show(&program, "sync");
    assert_eq!((&after["cron"], &after["payload"]), (&"0 3 * * *".into(), &"1".into()));
    assert_eq!((&after["misfire"]["cap"], &after["version"]), (&7.into(), &2.into()));
    let told = program.run(&["jobs", "update", "sync", "--cron=0 3 * * *"]).succeeded();
    assert!(told.stdout.starts_with("sync unchanged"), "{}", told.stdout);
    program.run(&["jobs", "update", "nobody", "--priority=1"]).failed(1, &["no job \"nobody\""]);
}

#[test]
fn jobs_are_listed_switched_and_deleted() {
    let program = Program::with_database();
    assert_eq!(program.run(&["jobs", "list"]).succeeded().stdout, "no jobs\n");
    program.run(&["jobs", "create", "a", "@daily", "--payload=secret"]).succeeded();
    program.run(&["jobs", "create", "b", "@hourly", "--disabled"]).succeeded();
    let told = program.run(&["jobs", "list"]).succeeded().stdout;
    assert!(told.contains("@daily") && told.contains("disabled"), "{told}");
    let listed = program.run(&["jobs", "list", "--json"]).succeeded();
    assert!(!listed.stdout.contains("secret"), "payloads are not listed");
    assert_eq!(listed.json().as_array().unwrap().len(), 2);
    assert_eq!(program.run(&["jobs", "enable", "b"]).succeeded().stdout, "b enabled\n");
    assert_eq!(program.run(&["jobs", "enable", "b"]).succeeded().stdout, "b enabled already\n");
    assert!(show(&program, "b")["next_nominal_at"].is_string());
    let disabled = program.run(&["jobs", "disable", "b", "--json"]).succeeded().json();
    assert_eq!((&disabled["enabled"], &disabled["changed"]), (&false.into(), &true.into()));
    program.run(&["jobs", "trigger", "a"]).succeeded();
    let told = program.run(&["jobs", "delete", "a"]).succeeded().stdout;
    assert_eq!(told, "a deleted, 1 pending run cancelled\n");
    for verb in ["delete", "enable", "disable", "show", "trigger"] {
        program.run(&["jobs", verb, "a"]).failed(1, &["no job \"a\"", "jobs list"]);
    }
    let left = program.run(&["jobs", "runs", "a", "--json"]).succeeded().json();
    assert_eq!(left[0]["state"], "cancelled", "its history stays");
}

#[test]
fn a_triggered_run_is_followed_to_its_end() {
    let program = Program::with_database();
    program.run(&["jobs", "create", "single", "@yearly", "--overlap=skip"]).succeeded();
    let run = program.run(&["jobs", "trigger", "single", "--json"]).succeeded().json();
    let id = run["id"].as_str().unwrap();
    assert_eq!((&run["state"], &run["trigger"]), (&"pending".into(), &"manual".into()));
    program.run(&["jobs", "trigger", "single"]).failed(1, &["skipped", "not over"]);
    // What a scheduler and a worker do.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let sqlite = Sqlite::open(program.folder().join("shop.db")).await.unwrap();
        let (jobs, owner) = (Jobs::new(sqlite.jobs()), OwnerToken::new());
        jobs.dispatch(owner, 10).await.unwrap();
        let outbox = mainstay::Outbox::new(sqlite.outbox());
        let claimed = outbox.claim(&mainstay::queue::ClaimRequest::new(owner)).await.unwrap();
        jobs.store().started(claimed.items[0].id()).await.unwrap();
        jobs.record_output(claimed.items[0].id(), "7 rows\nmended").await.unwrap();
        outbox.fail(owner, &claimed.handles(), Some("the disk is full".to_owned())).await.unwrap();
        sqlite.close().await;
    });
    let told = program.run(&["jobs", "runs", "--id", id]).succeeded().stdout;
    for text in ["single", "failed", "the disk is full", "took", "7 rows\nmended"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    let failed = program.run(&["jobs", "runs", "single", "--state=failed", "--json"]).succeeded().json();
    assert_eq!((failed.as_array().unwrap().len(), &failed[0]["output"]), (1, &"7 rows\nmended".into()));
    assert!(failed[0]["duration_seconds"].is_f64(), "{failed}");
    let told = program.run(&["jobs", "runs", "--limit=1"]).succeeded();
    assert!(told.stderr.contains("there may be more: --after"), "{}", told.stderr);
    program.run(&["jobs", "runs", "--id", NOBODY]).failed(1, &["no run"]);
    // The message is the outbox's, under the run's id.
    program.run(&["outbox", "requeue", id]).succeeded();
    let again = program.run(&["jobs", "runs", "--id", id, "--json"]).succeeded().json();
    assert_eq!(again["state"], "dispatched");
}

#[test]
fn what_is_wrong_is_told_before_a_database_is_opened() {
    let program = Program::new();
    for (arguments, says) in [
        (vec!["jobs", "create", "n", "60 * * * *"], "minute"),
        (vec!["jobs", "create", "n", "@daily", "--tz=Europe/Berln"], "Europe/Berlin"),
        (vec!["jobs", "create", "n", "@daily", "--priority=10"], "-9 to 9"),
        (vec!["jobs", "create", "n", "@daily", "--misfire-cap=3"], "--misfire all"),
        (vec!["jobs", "create", "n", "@daily", "--misfire=sometimes"], "skip, once, all"),
        (vec!["jobs", "update", "n", "--cron=nonsense"], "cron"),
        (vec!["jobs", "runs", "--state=done"], "succeeded"),
        (vec!["jobs", "runs", "--id=7"], "UUID"),
    ] {
        program.run(&arguments).failed(2, &[says]);
    }
}
