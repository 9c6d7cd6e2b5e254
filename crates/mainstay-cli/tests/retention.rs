//! `mainstay retention run`, and `[serve.retention]`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod served;

use program::Program;
use serde_json::{Value, json};
use served::Served;

const DAY: i64 = 86_400_000_000;

/// A shop with failed messages, all of which ended so many days ago.
fn shop(messages: usize, days: i64) -> Program {
    let program = Program::with_database();
    let mut text = String::new();
    for _ in 0..messages {
        let id = mainstay::WorkItemId::new();
        text.push_str(&format!("{}\n", json!({ "id": id, "topic": "t", "payload": "" })));
    }
    program.write("in.ndjson", &text);
    program.run(&["outbox", "import", "in.ndjson"]).succeeded();
    let listed = program.run(&["outbox", "list", "--json", "--limit", "1000"]).succeeded().json();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    program.run(&[&["outbox", "cancel"], &ids[..]].concat()).succeeded();
    let database = rusqlite::Connection::open(program.folder().join("shop.db")).unwrap();
    database
        .execute("update infra_outbox_history set processed_at = processed_at - ?1", [days * DAY])
        .unwrap();
    program
}

fn result<'a>(told: &'a Value, what: &str) -> &'a Value {
    let found = told["results"].as_array().unwrap().iter().find(|result| result["what"] == what);
    found.unwrap_or_else(|| panic!("no {what} in {told}"))
}

fn failed(program: &Program) -> u64 {
    program.run(&["outbox", "stats", "--json"]).succeeded().json()["failed"].as_u64().unwrap()
}

#[test]
fn what_is_past_its_age_goes_and_leaves_a_record() {
    let program = shop(25, 40);
    // What has failed is kept unless somebody says otherwise.
    let told = program.run(&["retention", "run", "--json"]).succeeded().json();
    assert_eq!(
        result(&told, "outbox"),
        &json!({ "what": "outbox", "kept": { "done": "30d", "failed": "forever" }, "deleted": 0 })
    );
    assert_eq!((told["results"].as_array().unwrap().len(), failed(&program)), (7, 25));
    let keep = ["retention", "run", "--keep", "failed=41d", "--json"];
    assert_eq!(result(&program.run(&keep).succeeded().json(), "outbox")["deleted"], 0, "not old enough");
    let keep = ["retention", "run", "--keep", "failed=39d", "--json"];
    let dry = program.run(&[&keep[..], &["--dry-run"]].concat()).succeeded().json();
    assert_eq!((&dry["dry_run"], &result(&dry, "outbox")["would_delete"]), (&json!(true), &json!(25)));
    assert_eq!(result(&dry, "joins")["would_delete"], Value::Null, "its list does not know when it ended");
    assert_eq!(failed(&program), 25, "nothing was done");
    let listed = ["audit", "list", "--name", "outbox.purge", "--json"];
    assert_eq!(program.run(&listed).succeeded().json(), json!([]));
    let bounded = [&["--actor", "alice"], &keep[..], &["--only", "outbox", "--batch", "10"]].concat();
    let told = program.run(&bounded).succeeded().json();
    assert_eq!(told["results"].as_array().unwrap().len(), 1);
    assert_eq!((&result(&told, "outbox")["deleted"], failed(&program)), (&json!(25), 0));
    let records = program.run(&listed).succeeded().json();
    let records = records.as_array().unwrap();
    assert_eq!(records.len(), 3, "one for each batch: {records:?}");
    assert!(records.iter().all(|record| record["actor"] == "alice"), "{records:?}");
}

#[test]
fn the_configuration_says_how_long_and_flags_say_otherwise() {
    let program = shop(2, 40);
    program
        .write("mainstay.toml", "database = 'shop.db'\n[serve.retention]\nfailed = '30d'\naudit = '365d'\n");
    let dry = program.run(&["retention", "run", "--dry-run"]).succeeded().stdout;
    assert!(dry.contains("done 30d, failed 30d") && dry.contains("records 365d"), "{dry}");
    let told = program.run(&["retention", "run", "--keep", "failed=forever", "--json"]).succeeded().json();
    assert_eq!(result(&told, "outbox")["deleted"], 0);
    assert_eq!(program.run(&["retention", "run", "--json"]).succeeded().json()["results"][0]["deleted"], 2);
}

#[test]
fn what_can_not_be_meant_is_refused() {
    let program = Program::with_database();
    for (keep, says) in [
        ("failed", "KEY=AGE"),
        ("faild=3d", "there is no \"faild\""),
        ("failed=3", "a number with a unit"),
        ("failed=0s", "above zero"),
        ("inbox_done=1d", "inbox_done must be at least"),
    ] {
        program.run(&["retention", "run", "--keep", keep]).failed(2, &[says]);
    }
    program.run(&["retention", "run", "--keep", "inbox_done=1d", "--keep", "inbox_at_least=1d"]).succeeded();
    program.run(&["retention", "run", "--only", "nothing"]).failed(2, &["outbox", "audit"]);
}

/// What the server says of failed messages that are about to go, in each of its databases.
fn expiring(served: &Served) -> Vec<Value> {
    let report = served.get("/health").json(200);
    let stores = report["stores"].as_array().unwrap().clone();
    let found = stores.iter().map(|store| {
        let checks = store["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == "expiring").cloned().unwrap_or_default()
    });
    found.collect()
}

#[test]
fn a_server_keeps_to_it_and_tells_what_is_about_to_go() {
    let program = shop(2, 40);
    program.write("mainstay.toml", "database = 'shop.db'\n[serve.retention]\nfailed = '40d 1h'\n");
    let served = Served::start(&program, &[]);
    let [told] = &expiring(&served)[..] else { panic!("one database") };
    assert_eq!(told["status"], "degraded", "{told}");
    assert!(told["summary"].as_str().unwrap().starts_with("2 failed messages are deleted"), "{told}");
    served.stop();
    assert_eq!(failed(&program), 2);
    program
        .write("mainstay.toml", "database = 'shop.db'\n[serve.retention]\nfailed = '39d'\ninterval = '1s'\n");
    let served = Served::start(&program, &[]);
    let begun = std::time::Instant::now();
    while failed(&program) > 0 {
        assert!(begun.elapsed().as_secs() < 60, "they are still there");
    }
    served.stop();
}

#[test]
fn each_database_of_a_fleet_keeps_to_it() {
    let program = Program::new();
    program.write("mainstay.toml", "fleet = 'fleet.toml'\n[serve.retention]\nfailed = '90d'\n");
    program.write(
        "fleet.toml",
        "[[databases]]\nid = 'a'\nurl = 'sqlite:a.db'\n[[databases]]\nid = 'b'\nurl = 'sqlite:b.db'\n",
    );
    let served = Served::start(&program, &["--deploy"]);
    for store in ["a", "b"] {
        served.ask("POST", &format!("/v1/stores/{store}/deploy"), &[], None).json(200);
    }
    let told = expiring(&served);
    assert!(told.len() == 2 && told.iter().all(|check| check["status"] == "healthy"), "{told:?}");
    served.stop();
}
