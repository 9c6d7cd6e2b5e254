//! `mainstay joins` and `why`: several steps and what follows, and what keeps a message from running.

use mainstay::queue::ClaimRequest;
use mainstay::sqlserver::SqlServer;
use mainstay::store::Provider;
use mainstay::{Outbox, OwnerToken};
use serde_json::{Value, json};

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;

pub(crate) const CASES: &[Case] =
    cases![messages_that_are_settled_end_their_join, joins_are_reported_and_cancelled, each_reason_is_told];

const STEP: &str = "00000000-0000-7000-8000-000000000001";
const OTHER_STEP: &str = "00000000-0000-7000-8000-000000000002";

fn start(database: &OwnDatabase, arguments: &[&str]) -> String {
    let started = database.json(&[&["joins", "start"], arguments].concat());
    started["id"].as_str().unwrap().to_owned()
}

fn show(database: &OwnDatabase, join: &str) -> Value {
    database.json(&["joins", "show", join, "--members"])
}

fn enqueue(database: &OwnDatabase, arguments: &[&str]) -> String {
    let enqueued = database.json(&[&["outbox", "enqueue"], arguments].concat());
    enqueued["work_item"].as_str().unwrap().to_owned()
}

/// What a worker does.
fn settle_all(database: &OwnDatabase) {
    database.within(async |server: &SqlServer| {
        let (outbox, owner) = (Outbox::new(server.outbox()), OwnerToken::new());
        let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        outbox.ack(owner, &claimed.handles()).await.unwrap();
    });
}

fn messages_that_are_settled_end_their_join() {
    let database = OwnDatabase::migrated();
    let arguments = ["3", "--key=order-7", "--on-completed=order.ready", "--on-completed-payload=7"];
    let join = start(&database, &[&arguments[..], &["--correlation-id=r1"]].concat());
    database.run(&["joins", "start", "1", "--id", &join]).failed(1, &["there is a join", "joins show"]);
    let first = enqueue(&database, &["a", "--join", &join]);
    let late = enqueue(&database, &["b"]);
    settle_all(&database);
    assert_eq!(show(&database, &join)["completed"], 1);
    let waiting = enqueue(&database, &["c"]);
    // One that is a member already, one that has ended, one that waits.
    let told = database.told(&["joins", "attach", &join, &first, &late, &waiting]);
    assert_eq!(told, "2 steps attached\n1 counted at once; the join is pending\n");
    settle_all(&database);
    let shown = show(&database, &join);
    assert_eq!((&shown["state"], &shown["completed"]), (&json!("completed"), &json!(3)), "{shown}");
    let ready = database.json(&["outbox", "list", "--status=ready"]);
    assert_eq!((ready.as_array().unwrap().len(), &ready[0]["topic"]), (1, &json!("order.ready")), "{ready}");
    assert_eq!(ready[0]["correlation_id"], "r1");
    database.run(&["joins", "attach", &join, STEP]).failed(1, &["nothing was attached", "ended"]);
    let listed = database.json(&["joins", "list", "--key=order-7", "--state=completed"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["id"]), (1, &json!(join)), "{listed}");
}

fn joins_are_reported_and_cancelled() {
    let database = OwnDatabase::migrated();
    let join = start(&database, &["2", "--on-failed=order.stuck", "--deadline-at=2100-01-31T09:00:00Z"]);
    let report = |item, outcome| database.run(&["joins", "report", &join, item, outcome]);
    report(STEP, "completed").failed(1, &["the step was not counted", STEP]);
    database.run(&["joins", "attach", &join, STEP, OTHER_STEP]).succeeded();
    assert_eq!(report(STEP, "completed").succeeded().stdout, "counted as completed; the join is pending\n");
    assert_eq!(report(STEP, "failed").succeeded().stdout, "counted already\n");
    let last = database.json(&["joins", "report", &join, OTHER_STEP, "failed"]);
    assert_eq!((&last["outcome"], &last["state"]), (&json!("counted"), &json!("failed")), "{last}");
    assert_eq!(database.json(&["outbox", "list"])[0]["topic"], "order.stuck");

    let (cancelled, other) = (start(&database, &["2", "--quorum=1"]), start(&database, &["1"]));
    let waiting = enqueue(&database, &["a", "--join", &cancelled, "--join", &other]);
    let told = database.json(&["joins", "cancel", &cancelled]);
    assert_eq!((&told["changed"], &told["cancelled_messages"]), (&json!(true), &json!([waiting])), "{told}");
    assert_eq!(told["counted"][0]["join"], other.as_str(), "the message's other join counts it");
    assert_eq!(
        (&show(&database, &cancelled)["state"], &show(&database, &other)["state"]),
        (&json!("cancelled"), &json!("failed"))
    );
    database.run(&["joins", "cancel", &cancelled]).failed(1, &["not cancelled: it is cancelled"]);
    let told = database.told(&["joins", "list", "--state=failed"]);
    assert!(told.contains(&join) && told.contains(&other) && !told.contains(&cancelled), "{told}");
}

fn each_reason_is_told() {
    let database = OwnDatabase::migrated();
    let because = |id: &str| database.json(&["why", id])["because"].as_str().unwrap().to_owned();
    let later = enqueue(&database, &["t", "--due-in=1h"]);
    let first = enqueue(&database, &["t", "--ordering-key=order-7", "--hold-on-failure"]);
    let second = enqueue(&database, &["t", "--ordering-key=order-7"]);
    assert_eq!([&later, &first, &second].map(|id| because(id)), ["not_due", "unclaimed", "key_behind"]);
    let told = database.told(&["why", &second]);
    assert!(told.contains("order-7") && told.contains(&format!("mainstay why {first}")), "{told}");
    database.within(async |server: &SqlServer| {
        let (outbox, owner) = (Outbox::new(server.outbox()), OwnerToken::new());
        let claimed = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        assert_eq!(because(&first), "claimed");
        outbox.fail(owner, &claimed.handles(), Some("no stock".to_owned())).await.unwrap();
    });
    assert!(database.told(&["why", &first]).contains("no stock"));
    assert_eq!(because(&second), "key_held");
    assert!(database.told(&["why", &second]).contains("release-key"));
    let timer = database.json(&["timers", "schedule", "t", "--due-in=1h"]);
    let told = database.told(&["why", timer["work_item"].as_str().unwrap()]);
    assert!(told.contains("in timers") && told.contains("not due yet"), "{told}");
    let nobody = "00000000-0000-7000-8000-000000000000";
    database.run(&["why", nobody]).failed(1, &[nobody, "outbox list"]);
}
