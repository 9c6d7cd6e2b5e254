//! `mainstay fanout`: each command there and back on a SQLite file.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;

use std::sync::Arc;
use std::time::Duration;

use mainstay::fanout::{Fanout, FanoutDefinition, FanoutKey, FanoutSlice, KnownShards};
use mainstay::lease::{Acquired, Leases};
use mainstay::sqlite::Sqlite;
use mainstay::store::Provider;
use program::Program;
use serde_json::{Value, json};

/// What a program of the application does, beside the one that is tried.
fn beside<Fut: Future<Output = ()>>(program: &Program, work: impl FnOnce(Arc<Sqlite>) -> Fut) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sqlite = Arc::new(Sqlite::open(program.folder().join("shop.db")).await.unwrap());
        work(Arc::clone(&sqlite)).await;
        sqlite.close().await;
    });
}

/// One with a fan-out of three shards.
fn with_fanout() -> Program {
    let program = Program::with_database();
    beside(&program, async |sqlite| {
        let fanout = Fanout::new(sqlite.as_ref());
        let every = Duration::from_secs(600);
        fanout.register(FanoutDefinition::new("etl", "payments").every(every)).await.unwrap();
        fanout.add_shards("etl", "payments", ["a", "b", "c"]).await.unwrap();
    });
    program
}

fn json_of(program: &Program, arguments: &[&str]) -> Value {
    program.run(&[&["fanout"], arguments, &["--json"]].concat()).succeeded().json()
}

#[test]
fn fan_outs_are_listed_and_shown() {
    let empty = Program::with_database();
    assert_eq!(empty.run(&["fanout", "list"]).succeeded().stdout, "no fan-outs\n");
    assert_eq!(json_of(&empty, &["list"]), json!([]));

    let program = with_fanout();
    let listed = json_of(&program, &["list"]);
    assert_eq!((&listed[0]["topic"], &listed[0]["work_key"]), (&json!("etl"), &json!("payments")));
    assert_eq!(listed[0]["every_seconds"], 600);
    let told = program.run(&["fanout", "list"]).succeeded().stdout;
    assert!(told.contains("etl") && told.contains("payments") && told.contains(" 10m "), "{told}");

    let shown = json_of(&program, &["show", "etl", "payments"]);
    assert_eq!((&shown["enabled"], &shown["coordinator"]), (&json!(true), &Value::Null));
    let told = program.run(&["fanout", "show", "etl", "payments"]).succeeded().stdout;
    assert!(told.contains("fanout:etl:payments") && told.contains("nobody"), "{told}");
    for command in ["show", "run", "cursors"] {
        program
            .run(&["fanout", command, "etl", "vendors"])
            .failed(1, &["no fan-out etl:vendors", "fanout list"]);
    }
    program.run(&["fanout", "set", "etl", "vendors", "--enable"]).failed(1, &["no fan-out etl:vendors"]);
}

#[test]
fn a_policy_is_changed_by_what_is_named() {
    let program = with_fanout();
    let before = json_of(&program, &["show", "etl", "payments"]);
    let told = program.run(&["fanout", "set", "etl", "payments", "--every=5m", "--jitter=30s"]).succeeded();
    assert_eq!(told.stdout, "etl:payments changed, version 3\n");
    let told = program.run(&["fanout", "set", "etl", "payments", "--every=300s"]).succeeded();
    assert_eq!(told.stdout, "etl:payments unchanged, version 3\n");
    let daily = ["set", "etl", "payments", "--cron=0 2 * * *", "--tz=Europe/Berlin", "--disable"];
    let changed = json_of(&program, &daily);
    for (field, value) in [
        ("every_seconds", json!(300)),
        ("jitter_seconds", json!(30)),
        ("cron", json!("0 2 * * *")),
        ("time_zone", json!("Europe/Berlin")),
        ("enabled", json!(false)),
        ("version", json!(4)),
        ("created_at", before["created_at"].clone()),
    ] {
        assert_eq!(changed[field], value, "{field}");
    }
    let told = program.run(&["fanout", "list"]).succeeded().stdout;
    assert!(told.contains("disabled") && told.contains("0 2 * * *"), "{told}");
    let back = json_of(&program, &["set", "etl", "payments", "--no-cron", "--enable"]);
    assert_eq!((&back["cron"], &back["enabled"]), (&Value::Null, &json!(true)));
    // What is wrong changes nothing.
    program.run(&["fanout", "set", "etl", "payments"]).failed(2, &["--every", "--disable"]);
    program.run(&["fanout", "set", "etl", "payments", "--cron=nonsense"]).failed(2, &["cron"]);
    program.run(&["fanout", "set", "etl", "payments", "--every=0s"]).failed(2, &["every", "above zero"]);
    program.run(&["fanout", "set", "etl", "payments", "--tz=Nowhere"]).failed(2, &["time_zone"]);
    program.run(&["fanout", "set", "etl", "payments", "--every=1500ms"]).failed(2, &["whole seconds"]);
    program.run(&["fanout", "set", "etl", "payments", "--enable", "--disable"]).failed(2, &["--disable"]);
    assert_eq!(json_of(&program, &["show", "etl", "payments"])["version"], back["version"]);
}

#[test]
fn a_run_is_asked_for_and_its_slices_are_seen() {
    let program = with_fanout();
    let cursors = json_of(&program, &["cursors", "etl", "payments"]);
    assert_eq!(cursors.as_array().unwrap().len(), 3);
    assert_eq!((&cursors[0]["shard_key"], &cursors[0]["slice_id"]), (&json!("a"), &Value::Null));

    let told = program.run(&["fanout", "run", "etl", "payments"]).succeeded().stdout;
    assert!(told.starts_with("a run of etl:payments is asked for"), "{told}");
    assert!(program.run(&["fanout", "list"]).succeeded().stdout.contains("a run is asked for"));
    assert_eq!(json_of(&program, &["run", "etl", "payments"])["requested"], true);
    assert!(json_of(&program, &["show", "etl", "payments"])["run_requested_at"].is_string());

    beside(&program, async |sqlite| {
        let (fanout, key) = (Fanout::new(sqlite.as_ref()), FanoutKey::new("etl", "payments").unwrap());
        let leases = Leases::new(sqlite.leases());
        let Acquired::Lease(lease) = leases.acquire(&key.lease_name()).await.unwrap() else {
            panic!("somebody else coordinates");
        };
        let pass = fanout.coordinate(&key, &KnownShards::new(sqlite.fanout()), &lease).await.unwrap();
        assert_eq!(pass.dispatched.len(), 3);
        let done = FanoutSlice::new(&key, "b", pass.dispatched[1].due_at);
        fanout.complete(&done, done.due_at).await.unwrap();
        let coordinator = json_of(&program, &["show", "etl", "payments"]);
        assert!(coordinator["coordinator"].is_string(), "{coordinator}");
        assert_eq!(coordinator["run_requested_at"], Value::Null, "the run is made");
        lease.close().await.unwrap();
    });

    let cursors = json_of(&program, &["cursors", "etl", "payments", "--after=a", "--limit=1"]);
    assert_eq!(cursors.as_array().unwrap().len(), 1);
    assert_eq!((&cursors[0]["shard_key"], &cursors[0]["in_flight"]), (&json!("b"), &json!(true)));
    assert_eq!(cursors[0]["last_completed_at"], cursors[0]["slice_due_at"]);
    let slice = cursors[0]["slice_id"].as_str().unwrap();
    let message = program.run(&["outbox", "show", slice, "--json"]).succeeded().json();
    assert_eq!(message["topic"], "fanout:etl:payments");
    let page = program.run(&["fanout", "cursors", "etl", "payments", "--limit=2"]).succeeded();
    assert!(page.stdout.contains("under way") && page.stderr.contains("--after b"), "{}", page.stderr);
}

#[test]
fn a_fan_out_is_registered_and_deleted() {
    let program = Program::with_database();
    let register = ["fanout", "register", "etl", "payments", "--every=10m", "--jitter=1m"];
    assert_eq!(program.run(&register).succeeded().stdout, "etl:payments registered, version 1\n");
    assert_eq!(program.run(&register).succeeded().stdout, "etl:payments unchanged, version 1\n");
    // What was changed by hand since stays, as at the start of a program.
    program.run(&["fanout", "set", "etl", "payments", "--every=5m"]).succeeded();
    assert_eq!(program.run(&register).succeeded().stdout, "etl:payments unchanged, version 2\n");
    let cron = ["register", "etl", "payments", "--cron=0 2 * * *", "--tz=Europe/Berlin", "--disabled"];
    let changed = json_of(&program, &cron);
    for (field, value) in [
        ("every_seconds", json!(0)),
        ("cron", json!("0 2 * * *")),
        ("time_zone", json!("Europe/Berlin")),
        ("enabled", json!(false)),
        ("version", json!(3)),
    ] {
        assert_eq!(changed[field], value, "{field}");
    }
    for (wrong, why) in [
        (vec!["etl", "a"], "--every"),
        (vec!["etl", "a", "--every=0s"], "above zero"),
        (vec!["etl", "a", "--cron=nonsense"], "cron"),
        (vec!["e:tl", "a", "--every=1m"], "colon"),
        (vec!["etl", "a", "--every=1m", "--jitter=25h"], "jitter"),
    ] {
        program.run(&[&["fanout", "register"], wrong.as_slice()].concat()).failed(2, &[why]);
    }
    assert_eq!(json_of(&program, &["list"]).as_array().unwrap().len(), 1);

    program.run(&["fanout", "add-shards", "etl", "payments", "a", "b"]).succeeded();
    let told = program.run(&["fanout", "delete", "etl", "payments"]).succeeded().stdout;
    assert_eq!(told, "etl:payments deleted, 2 shards forgotten\n");
    assert_eq!(json_of(&program, &["list"]), json!([]));
    program.run(&["fanout", "delete", "etl", "payments"]).failed(1, &["no fan-out", "fanout register"]);
    program.run(&register).succeeded();
    let deleted = json_of(&program, &["delete", "etl", "payments"]);
    assert_eq!(deleted, json!({ "topic": "etl", "work_key": "payments", "forgotten_shards": 0 }));
}

#[test]
fn shards_are_added_listed_and_forgotten() {
    let program = with_fanout();
    let told =
        program.run(&["fanout", "add-shards", "etl", "payments", "b", "e", "d", "d"]).succeeded().stdout;
    assert_eq!(told, "2 shards added to etl:payments\n");
    let added = json_of(&program, &["add-shards", "etl", "payments", "e"]);
    assert_eq!(added, json!({ "topic": "etl", "work_key": "payments", "added": 0 }));
    let shards = || {
        let listed = json_of(&program, &["cursors", "etl", "payments"]);
        let keys =
            listed.as_array().unwrap().iter().map(|cursor| cursor["shard_key"].as_str().unwrap().to_owned());
        keys.collect::<String>()
    };
    assert_eq!(shards(), "abcde");

    let forgotten = program.run(&["fanout", "forget-shards", "etl", "payments", "a", "nobody", "e"]);
    assert_eq!((forgotten.code, forgotten.stdout.as_str()), (1, "a forgotten\ne forgotten\n"));
    assert_eq!(forgotten.stderr, "nobody not forgotten: it is not known\n");
    assert_eq!(shards(), "bcd");
    let told = json_of(&program, &["forget-shards", "etl", "payments", "d"]);
    assert_eq!(told, json!([{ "id": "d", "changed": true }]));

    // One with a slice under way stays, and keeps no other from being forgotten.
    beside(&program, async |sqlite| {
        let (fanout, key) = (Fanout::new(sqlite.as_ref()), FanoutKey::new("etl", "payments").unwrap());
        let leases = Leases::new(sqlite.leases());
        let lease = leases.acquire(&key.lease_name()).await.unwrap().lease().unwrap();
        let pass = fanout.coordinate(&key, &KnownShards::new(sqlite.fanout()), &lease).await.unwrap();
        assert_eq!(pass.dispatched.len(), 2);
        lease.close().await.unwrap();
    });
    program.run(&["fanout", "add-shards", "etl", "payments", "z"]).succeeded();
    let forgotten = program.run(&["fanout", "forget-shards", "etl", "payments", "b", "z"]);
    assert_eq!((forgotten.code, forgotten.stdout.as_str()), (1, "z forgotten\n"));
    assert!(
        forgotten.stderr.contains("b not forgotten") && forgotten.stderr.contains("in flight"),
        "{}",
        forgotten.stderr
    );
    program.run(&["fanout", "delete", "etl", "payments"]).failed(1, &["in flight", "--disable"]);
    assert_eq!(shards(), "bc");

    for command in ["add-shards", "forget-shards"] {
        program.run(&["fanout", command, "etl", "vendors", "a"]).failed(1, &["no fan-out etl:vendors"]);
        program.run(&["fanout", command, "etl", "payments"]).failed(2, &["SHARD"]);
        program.run(&["fanout", command, "etl", "payments", ""]).failed(2, &["shard_key"]);
    }
}
