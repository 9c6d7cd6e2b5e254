//! `mainstay timers`, `jobs` and `fanout`: what is due later, by the clock, and for each of many.

use mainstay::fanout::{Fanout, FanoutKey, FanoutSlice, KnownShards};
use mainstay::lease::{Acquired, Leases};
use mainstay::queue::ClaimRequest;
use mainstay::sqlserver::SqlServer;
use mainstay::store::Provider;
use mainstay::{Jobs, Outbox, OwnerToken, Timers};
use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] = cases![
    timers_are_scheduled_moved_fired_and_cancelled,
    jobs_are_created_changed_and_triggered,
    fan_outs_are_registered_changed_and_run,
];

const NOBODY: &str = "00000000-0000-7000-8000-000000000000";

fn timers_are_scheduled_moved_fired_and_cancelled() {
    let database = OwnDatabase::migrated();
    let schedule = |arguments: &[&str]| {
        let scheduled = database.json(&[&["timers", "schedule"], arguments].concat());
        scheduled["work_item"].as_str().unwrap().to_owned()
    };
    let fire = || {
        database.within(async |server: &SqlServer| {
            Timers::new(server).queue().store().forward(OwnerToken::new(), 100).await.unwrap().len()
        })
    };
    let whole =
        ["reminder", "{\"user\":7}", "--due-at=2031-01-31T09:00:00Z", "--key=reminder-7", "--header=h=v"];
    let id = schedule(&whole);
    assert_eq!(schedule(&whole), id, "the key was used before");
    let shown = database.json(&["timers", "show", &id]);
    assert_eq!((&shown["due_at"], &shown["status"]), (&json!("2031-01-31T09:00:00Z"), &json!("ready")));
    assert_eq!((&shown["payload"], &shown["headers"]), (&json!("{\"user\":7}"), &json!({ "h": "v" })));
    let gone = schedule(&["t", "--due-in=1h"]);
    assert_eq!(database.told(&["timers", "cancel", &gone]), format!("{gone} cancelled\n"));
    database.run(&["timers", "cancel", &gone]).failed(1, &["not cancelled: it is cancelled"]);
    database.run(&["timers", "reschedule", NOBODY, "--due-in=1s"]).failed(1, &["there is no such timer"]);
    assert_eq!(fire(), 0);
    let moved = database.told(&["timers", "reschedule", &id, "--due-at=2020-01-01T00:00:00Z"]);
    assert_eq!(moved, format!("{id} rescheduled\n"));
    assert_eq!(database.json(&["timers", "stats"])["overdue"], 1);
    assert_eq!(fire(), 1);
    // Its message is there, under the same id.
    let message = database.json(&["outbox", "show", &id]);
    assert_eq!((&message["status"], &message["topic"]), (&json!("ready"), &json!("reminder")), "{message}");
    let stats = database.json(&["timers", "stats"]);
    let counts =
        ["pending", "overdue", "claimed", "fired", "failed"].map(|name| stats[name].as_u64().unwrap());
    assert_eq!(counts, [0, 0, 0, 1, 1], "{stats}");
    let listed = database.json(&["timers", "list", "--topic=t"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(gone)), "{listed}");
    assert!(database.told(&["timers", "list"]).contains(&gone));
}

fn jobs_are_created_changed_and_triggered() {
    let database = OwnDatabase::migrated();
    assert_eq!(database.told(&["jobs", "list"]), "no jobs\n");
    let create = ["jobs", "create", "nightly", "30 2 * * *", "--topic=report.build", "--payload=secret"];
    let more = ["--tz=Europe/Berlin", "--misfire=all", "--misfire-cap=24", "--overlap=skip", "--jitter=5m"];
    let created = database.json(&[&create[..], &more].concat());
    assert_eq!(created, database.json(&["jobs", "show", "nightly"]));
    assert_eq!((&created["cron"], &created["time_zone"]), (&json!("30 2 * * *"), &json!("Europe/Berlin")));
    assert_eq!((&created["misfire"]["cap"], &created["jitter_seconds"]), (&json!(24), &json!(300)));
    assert!(created["next_nominal_at"].is_string(), "{created}");
    database.run(&create).failed(1, &["already", "jobs update"]);
    let updated = database.told(&["jobs", "update", "nightly", "--cron=0 3 * * *", "--jitter=0s"]);
    assert!(updated.starts_with("nightly updated, next "), "{updated}");
    assert!(
        database.told(&["jobs", "update", "nightly", "--cron=0 3 * * *"]).starts_with("nightly unchanged")
    );
    let listed = database.run(&["jobs", "list", "--json"]).succeeded();
    assert!(listed.json().as_array().unwrap().len() == 1 && !listed.stdout.contains("secret"));
    assert_eq!(database.told(&["jobs", "disable", "nightly"]), "nightly disabled\n");
    assert_eq!(database.told(&["jobs", "enable", "nightly"]), "nightly enabled\n");
    assert_eq!(database.told(&["jobs", "enable", "nightly"]), "nightly enabled already\n");

    let run = database.json(&["jobs", "trigger", "nightly"]);
    let id = run["id"].as_str().unwrap();
    assert_eq!((&run["state"], &run["trigger"]), (&json!("pending"), &json!("manual")), "{run}");
    database.run(&["jobs", "trigger", "nightly"]).failed(1, &["skipped", "not over"]);
    database.within(async |server: &SqlServer| {
        let (jobs, outbox, owner) =
            (Jobs::new(server.jobs()), Outbox::new(server.outbox()), OwnerToken::new());
        jobs.dispatch(owner, 10).await.unwrap();
        let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        jobs.store().started(claimed.items[0].id()).await.unwrap();
        jobs.record_output(claimed.items[0].id(), "7 rows\nmended").await.unwrap();
        outbox.fail(owner, &claimed.handles(), Some("the disk is full".to_owned())).await.unwrap();
    });
    let told = database.told(&["jobs", "runs", "--id", id]);
    for text in ["nightly", "failed", "the disk is full", "took", "7 rows\nmended"] {
        assert!(told.contains(text), "{text}: {told}");
    }
    let failed = database.json(&["jobs", "runs", "nightly", "--state=failed"]);
    assert_eq!((failed.as_array().unwrap().len(), &failed[0]["output"]), (1, &json!("7 rows\nmended")));
    database.run(&["jobs", "trigger", "nightly"]).succeeded();
    assert_eq!(database.told(&["jobs", "delete", "nightly"]), "nightly deleted, 1 pending run cancelled\n");
    database.run(&["jobs", "show", "nightly"]).failed(1, &["no job \"nightly\"", "jobs list"]);
}

fn fan_outs_are_registered_changed_and_run() {
    let database = OwnDatabase::migrated();
    let fanout = |arguments: &[&str]| database.json(&[&["fanout"], arguments].concat());
    let register = ["fanout", "register", "etl", "payments", "--every=10m", "--jitter=1m"];
    assert_eq!(database.told(&register), "etl:payments registered, version 1\n");
    assert_eq!(database.told(&register), "etl:payments unchanged, version 1\n");
    let changed = fanout(&["set", "etl", "payments", "--every=5m", "--cron=0 2 * * *", "--tz=Europe/Berlin"]);
    assert_eq!((&changed["every_seconds"], &changed["version"]), (&json!(300), &json!(2)), "{changed}");
    let changed = fanout(&["set", "etl", "payments", "--no-cron"]);
    assert_eq!((&changed["cron"], &changed["enabled"]), (&Value::Null, &json!(true)), "{changed}");
    let added = database.told(&["fanout", "add-shards", "etl", "payments", "a", "b", "c", "c"]);
    assert_eq!(added, "3 shards added to etl:payments\n");
    let forgotten = database.run(&["fanout", "forget-shards", "etl", "payments", "c", "nobody"]).ended(1);
    assert_eq!(
        (forgotten.stdout.as_str(), forgotten.stderr.as_str()),
        ("c forgotten\n", "nobody not forgotten: it is not known\n")
    );
    assert_eq!(fanout(&["run", "etl", "payments"])["requested"], true);
    assert!(database.told(&["fanout", "list"]).contains("a run is asked for"));

    database.within(async |server: &SqlServer| {
        let (fanout, key) = (Fanout::new(server), FanoutKey::new("etl", "payments").unwrap());
        let leases = Leases::new(server.leases());
        let Acquired::Lease(lease) = leases.acquire(&key.lease_name()).await.unwrap() else {
            panic!("somebody else coordinates");
        };
        let pass = fanout.coordinate(&key, &KnownShards::new(server.fanout()), &lease).await.unwrap();
        assert_eq!(pass.dispatched.len(), 2);
        let done = FanoutSlice::new(&key, "b", pass.dispatched[1].due_at);
        fanout.complete(&done, done.due_at).await.unwrap();
        lease.close().await.unwrap();
    });
    let cursors = fanout(&["cursors", "etl", "payments", "--after=a"]);
    assert_eq!((cursors.as_array().unwrap().len(), &cursors[0]["shard_key"]), (1, &json!("b")), "{cursors}");
    assert_eq!(cursors[0]["last_completed_at"], cursors[0]["slice_due_at"], "{cursors}");
    let slice = cursors[0]["slice_id"].as_str().unwrap();
    assert_eq!(database.json(&["outbox", "show", slice])["topic"], "fanout:etl:payments");
    database.run(&["fanout", "delete", "etl", "payments"]).failed(1, &["in flight", "--disable"]);
    database.run(&register[..3]).ended(2);
    database.run(&["fanout", "register", "etl", "vendors", "--every=10m"]).succeeded();
    assert_eq!(
        database.told(&["fanout", "delete", "etl", "vendors"]),
        "etl:vendors deleted, 0 shards forgotten\n"
    );
    database.run(&["fanout", "show", "etl", "vendors"]).failed(1, &["no fan-out etl:vendors", "fanout list"]);
}
