//! `mainstay lease run`, `leases`, `operations` and `audit`: who holds what, what takes a while, and who did what.

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use mainstay::lease::{LeaseOptions, Leases};
use mainstay::operation::{NewEvent, Progress};
use mainstay::sqlserver::SqlServer;
use mainstay::store::Provider;
use mainstay::{NewOperation, Operations};
use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] = cases![
    a_command_runs_with_the_lease,
    a_lost_lease_ends_the_command,
    operations_are_listed_shown_and_given_up,
    what_is_done_by_hand_leaves_a_record,
];

fn a_command_runs_with_the_lease() {
    let database = OwnDatabase::migrated();
    assert_eq!(database.told(&["leases", "list"]), "no leases\n");
    let tell = "echo $MAINSTAY_LEASE_NAME $MAINSTAY_LEASE_EPOCH $MAINSTAY_LEASE_TOKEN $MAINSTAY_LEASE_OWNER";
    for epoch in [1, 2] {
        let told = database.told(&["lease", "run", "job", "--owner", "me", "--", "sh", "-c", tell]);
        assert_eq!(told, format!("job {epoch} {epoch} me\n"));
    }
    database.run(&["lease", "run", "job", "--", "sh", "-c", "exit 7"]).ended(7);
    let shown = database.json(&["leases", "show", "job"]);
    assert_eq!((&shown["held"], &shown["epoch"]), (&json!(false), &json!(3)), "{shown}");

    database.within(async |server: &SqlServer| {
        let options =
            LeaseOptions::default().duration(Duration::from_secs(600)).owner("somebody").context("by hand");
        let lease = Leases::new(server.leases()).acquire_with("job", options).await.unwrap().lease().unwrap();
        let ran = database.run(&["lease", "run", "job", "--", "echo", "never"]);
        assert_eq!(ran.failed(75, &["held by somebody until", "(by hand)"]).stdout, "");
        let table = database.told(&["leases", "list", "--held"]);
        assert!(table.contains("somebody") && table.contains("by hand"), "{table}");
        let waiting = database.start(&["lease", "run", "job", "--wait", "120s", "--", "echo", "at last"]);
        assert!(lease.close().await.unwrap());
        let output = waiting.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"at last\n".as_slice()));
    });
    database.run(&["leases", "show", "never"]).failed(1, &["nobody has ever held", "leases list"]);
    database.run(&["leases", "release", "job"]).failed(1, &["nobody holds it"]);
}

fn a_lost_lease_ends_the_command() {
    let database = OwnDatabase::migrated();
    let command = "echo ready; while :; do sleep 0.1; done";
    let mut child = database.start(&["lease", "run", "job", "--duration", "6s", "--", "sh", "-c", command]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let released = database.told(&["leases", "release", "job"]);
    assert!(released.starts_with("job released: ") && released.contains(" held it"), "{released}");
    let mut told = String::new();
    child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(76), "{told}");
    assert!(told.contains("the lease job was lost; the command was ended"), "{told}");
    let records = database.json(&["audit", "list", "--about", "lease=job"]);
    assert_eq!(records[0]["name"], "lease.force_release", "{records}");
}

fn operations_are_listed_shown_and_given_up() {
    let database = OwnDatabase::migrated();
    assert!(database.told(&["operations", "list"]).contains("no operations"));
    let (whole, part) = database.within(async |server: &SqlServer| {
        let operations = Operations::new(server.operations()).by("alice");
        let new = NewOperation::new("import.orders").tag("tenant", "7").total(1_200);
        let whole = operations.start(new).await.unwrap();
        operations.progress(whole, Progress::done(300).message("reading")).await.unwrap();
        operations.event(whole, NewEvent::new("page").data(json!({ "n": 3 }))).await.unwrap();
        let part = operations.start(NewOperation::new("check").parent(whole)).await.unwrap();
        let _ = operations.fail(part, "no such file").await.unwrap();
        (whole, part)
    });
    let listed = database.json(&["operations", "list"]);
    assert_eq!((&listed[0]["id"], &listed[1]["id"]), (&json!(part), &json!(whole)), "{listed}");
    for (argument, wanted) in [
        ("--state=failed".to_owned(), part),
        ("--name=import.".to_owned(), whole),
        ("--tag=tenant=7".to_owned(), whole),
        (format!("--parent={whole}"), part),
    ] {
        let listed = database.json(&["operations", "list", &argument]);
        assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(wanted)), "{argument}");
    }
    assert!(database.told(&["operations", "list"]).contains("300 of 1,200"));
    let shown = database.json(&["operations", "show", &whole.to_string()]);
    assert_eq!((&shown["actor"], &shown["tags"]), (&json!("alice"), &json!({ "tenant": "7" })), "{shown}");
    assert_eq!(shown["event_list"][0]["data"], json!({ "n": 3 }), "{shown}");
    assert_eq!(shown["parts"][0]["error"], "no such file", "{shown}");
    let marked = database.json(&["operations", "stalled", "--older-than=1ms", "--mark"]);
    assert_eq!(marked, json!({ "marked": [whole] }));
    assert_eq!(database.json(&["operations", "show", &whole.to_string()])["state"], "stalled");
}

fn what_is_done_by_hand_leaves_a_record() {
    let database = OwnDatabase::migrated();
    let list = |arguments: &[&str]| {
        let listed = database.json(&[&["audit", "list"], arguments].concat());
        listed.as_array().unwrap().clone()
    };
    let names = |records: &[Value]| {
        let name = |record: &Value| record["name"].as_str().unwrap().to_owned();
        records.iter().rev().map(name).collect::<Vec<_>>()
    };
    let deployed = list(&["--name", "schema."]);
    assert!(deployed[0]["actor"].as_str().unwrap().starts_with("cli:"), "{deployed:?}");
    let id = database.json(&["outbox", "enqueue", "t", "secret"])["work_item"].as_str().unwrap().to_owned();
    let run = |arguments: &[&str]| {
        database.run(&[&["--actor", "alice", "--correlation-id", "T-1"], arguments].concat())
    };
    run(&["outbox", "cancel", &id]).succeeded();
    run(&["outbox", "requeue", &id]).succeeded();
    run(&["jobs", "create", "nightly", "0 2 * * *"]).succeeded();
    run(&["jobs", "delete", "nightly"]).succeeded();
    run(&["jobs", "delete", "nightly"]).ended(1);
    let wanted = ["outbox.cancel", "outbox.requeue", "job.create_or_update", "job.delete", "job.delete"];
    assert_eq!(names(&list(&["--actor", "alice"])), wanted);
    assert_eq!(names(&list(&["--correlation-id", "T-1"])), wanted);
    let failed = list(&["--outcome", "failed"]);
    assert_eq!(names(&failed), ["job.delete"]);
    assert!(failed[0]["data"]["error"].as_str().unwrap().contains("no job"), "{failed:?}");

    let about = list(&["--about", &format!("outbox={id}")]);
    assert_eq!(names(&about), wanted[..2]);
    let record = about[0]["id"].as_str().unwrap();
    assert_eq!(database.json(&["audit", "show", record]), about[0]);
    let shown = database.told(&["audit", "show", record]);
    assert!(shown.contains("outbox.requeue") && shown.contains(&id) && !shown.contains("secret"), "{shown}");
    assert_eq!(list(&["--name", "outbox.", "--after", record]), about[1..]);
    assert_eq!(
        list(&["--since", "2000-01-01T00:00:00Z", "--until", "2001-01-01T00:00:00Z"]),
        [] as [Value; 0]
    );
}
