//! Every primitive over HTTP, once from its beginning to its end.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod served;

use std::time::Duration;

use program::Program;
use serde_json::{Value, json};
use served::{Answer, Served};

fn put(served: &Served, path: &str, body: Value) -> Answer {
    served.ask("PUT", path, &[], Some(&body.to_string()))
}

fn claim(served: &Served, topic: &str) -> Value {
    let body = json!({"topics": [topic], "wait_seconds": 50});
    served.post("/v1/outbox/claims", body).json(200)["items"][0].clone()
}

#[test]
fn an_idempotency_key_adds_once() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let send =
        |body: &str| served.ask("POST", "/v1/outbox/messages", &[("Idempotency-Key", "k-1")], Some(body));
    let first = send(r#"{"topic":"t"}"#).json(201);
    let again = send(r#"{"topic":"t"}"#).json(200);
    assert_eq!((&again["id"], &again["added"]), (&first["id"], &json!(false)));
    send(r#"{"topic":"t","idempotency_key":"k-2"}"#).problem(422, "invalid-argument");
    let batch = json!({"messages": [{"topic": "t", "idempotency_key": "k-1"}, {"topic": "t"}]});
    let items = served.post("/v1/outbox/messages/batch", batch).json(200)["items"].clone();
    assert_eq!((&items[0]["id"], &items[1]["added"]), (&first["id"], &json!(true)));
    // All or none.
    let half = json!({"messages": [{"topic": "half"}, {"topic": ""}]});
    served.post("/v1/outbox/messages/batch", half).problem(422, "invalid-argument");
    assert_eq!(served.get("/v1/outbox/messages?topic=half").json(200)["items"], json!([]));
}

#[test]
fn pages_follow_each_other_without_a_gap() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let batch: Vec<_> = (0..25).map(|_| json!({"topic": "t"})).collect();
    let added = served.post("/v1/outbox/messages/batch", json!({"messages": batch})).json(200);
    let mut wanted: Vec<_> =
        added["items"].as_array().unwrap().iter().map(|one| one["id"].to_string()).collect();
    let (mut seen, mut path) = (Vec::new(), "/v1/outbox/messages?limit=10".to_owned());
    loop {
        let page = served.get(&path).json(200);
        seen.extend(page["items"].as_array().unwrap().iter().map(|one| one["id"].to_string()));
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/outbox/messages?limit=10&cursor={cursor}");
    }
    wanted.sort();
    seen.sort();
    assert_eq!(seen, wanted);
}

#[test]
fn an_id_is_used_once() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let id = "0190b2d5-0000-7000-8000-000000000001";
    let mine = |topic: &str| json!({"topic": topic, "id": id});
    assert_eq!(served.post("/v1/outbox/messages", mine("first")).json(201)["id"], id);
    let refused = |status: &str| {
        let batch = json!({"messages": [{"topic": "beside"}, mine("again")]});
        for (path, body) in [("/v1/outbox/messages", mine("again")), ("/v1/outbox/messages/batch", batch)] {
            let problem = served.post(path, body).problem(409, "already-exists");
            assert_eq!(
                (&problem["work_item_id"], &problem["work_item_status"]),
                (&json!(id), &json!(status))
            );
            assert_eq!(problem["retryable"], false, "{problem}");
        }
    };
    refused("ready");
    let claimed = claim(&served, "first");
    refused("in-progress");
    served.post("/v1/outbox/claims/ack", json!({"claims": [claimed["claim"]]})).json(200);
    refused("done");
    assert_eq!(served.get("/v1/outbox/messages").json(200)["items"].as_array().unwrap().len(), 1);

    let timer = json!({"topic": "t", "id": "0190b2d5-0000-7000-8000-000000000002", "due_in_seconds": 3600});
    served.post("/v1/timers", timer.clone()).json(201);
    served.post("/v1/timers", timer).problem(409, "already-exists");
}

#[test]
fn what_has_not_changed_is_not_sent_again() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    put(&served, "/v1/jobs/nightly", json!({"topic": "t", "cron": "@daily"})).json(200);
    let first = served.get("/v1/jobs/nightly");
    let tag = first.header("etag").unwrap().to_owned();
    let again = served.ask("GET", "/v1/jobs/nightly", &[("If-None-Match", &tag)], None);
    assert_eq!((again.status, again.body.as_str()), (304, ""));
    put(&served, "/v1/jobs/nightly", json!({"topic": "u", "cron": "@daily"})).json(200);
    let changed = served.ask("GET", "/v1/jobs/nightly", &[("If-None-Match", &tag)], None).json(200);
    assert_eq!((&changed["topic"], &changed["version"]), (&json!("u"), &json!(2)));
}

#[test]
fn a_job_is_only_changed_as_it_was_read() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let job =
        |topic: &str, version: i64| json!({"topic": topic, "cron": "@daily", "expected_version": version});
    assert_eq!(put(&served, "/v1/jobs/nightly", job("t", 0)).json(200)["version"], 1);
    put(&served, "/v1/jobs/nightly", job("t", 0)).problem(409, "mismatch");
    assert_eq!(put(&served, "/v1/jobs/nightly", job("u", 1)).json(200)["version"], 2);
    put(&served, "/v1/jobs/nightly", job("v", 1)).problem(409, "mismatch");
    put(&served, "/v1/jobs/other", job("v", 1)).problem(409, "mismatch");
    assert_eq!(served.get("/v1/jobs/nightly").json(200)["topic"], "u");
    served.get("/v1/jobs/other").problem(404, "not-found");
}

#[test]
fn claims_end_in_every_way() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    for topic in ["ack", "abandon", "fail", "release"] {
        served.post("/v1/outbox/messages", json!({"topic": topic, "ordering_key": topic})).json(201);
    }
    let mut settlements = Vec::new();
    for outcome in ["ack", "abandon", "fail", "release"] {
        settlements.push(json!({"claim": claim(&served, outcome)["claim"], "outcome": outcome}));
    }
    settlements[1]["delay_seconds"] = json!(0.001);
    settlements[2]["error"] = json!("it is broken");
    let settled = served.post("/v1/outbox/claims/settle", json!({"settlements": settlements})).json(200);
    assert_eq!(settled["changed"].as_array().unwrap().len(), 4, "{settled}");
    assert_eq!(claim(&served, "abandon")["attempt"], 2);
    assert_eq!(claim(&served, "release")["attempt"], 1);
    let failed = served.get("/v1/outbox/messages?status=failed").json(200)["items"][0].clone();
    assert_eq!((&failed["topic"], &failed["last_error"]), (&json!("fail"), &json!("it is broken")));
    let requeued = served.post("/v1/outbox/messages/requeue", json!({"filter": {"topic": "fail"}})).json(200);
    assert_eq!(requeued["changed"], json!([failed["id"]]));
    let why = served.get(&format!("/v1/why/{}", failed["id"].as_str().unwrap())).json(200);
    assert_eq!(why["why"]["because"], "unclaimed", "{why}");
    let cancelled = served.post("/v1/outbox/messages/cancel", json!({"ids": [failed["id"]]})).json(200);
    assert_eq!(cancelled["changed"], json!([failed["id"]]));
    assert_eq!(served.get("/v1/stats").json(200)["outbox"]["failed"], 1);
}

#[test]
fn a_received_message_is_handled_once() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let begin =
        || served.post("/v1/inbox/reservations", json!({"source": "s/1", "message_id": "m"})).json(200);
    let mine = begin();
    assert_eq!((&mine["outcome"], &begin()["outcome"]), (&json!("new"), &json!("busy")));
    let reservation = json!({"reservation": mine["reservation"]});
    served.post("/v1/inbox/reservations/renew", reservation.clone()).json(200);
    assert_eq!(served.post("/v1/inbox/reservations/complete", reservation.clone()).status, 204);
    served.post("/v1/inbox/reservations/complete", reservation).problem(409, "claim-lost");
    assert_eq!(begin()["outcome"], "done");
    assert_eq!(served.get("/v1/inbox/messages/s%2F1/m").json(200)["state"], "done");

    let incoming = json!({"source": "s", "message_id": "q", "message": {"topic": "t", "payload": "x"}});
    served.post("/v1/inbox/messages", incoming.clone()).json(201);
    let item = served.post("/v1/inbox/claims", json!({"wait_seconds": 50})).json(200)["items"][0].clone();
    assert_eq!(item["headers"]["mainstay-source"], "s");
    // A claim of one queue is none of the other's.
    served.post("/v1/outbox/claims/ack", json!({"claims": [item["claim"]]})).problem(422, "invalid-argument");
    served.post("/v1/inbox/claims/fail", json!({"claims": [item["claim"]], "error": "no"})).json(200);
    assert_eq!(served.get("/v1/inbox/messages?state=dead").json(200)["items"][0]["message_id"], "q");
    let revived = served.post("/v1/inbox/messages/revive", json!({"filter": {"source": "s"}})).json(200);
    assert_eq!(revived["changed"][0]["message_id"], "q");
    let item = served.post("/v1/inbox/claims", json!({"wait_seconds": 50})).json(200)["items"][0].clone();
    served.post("/v1/inbox/claims/ack", json!({"claims": [item["claim"]]})).json(200);
    assert_eq!(served.post("/v1/inbox/messages", incoming).json(200)["outcome"], "done");
}

#[test]
fn timers_and_jobs_become_messages() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let soon = served.post("/v1/timers", json!({"topic": "soon", "due_in_seconds": 0.1})).json(201);
    assert_eq!(claim(&served, "soon")["id"], soon["id"]);
    let later = served.post("/v1/timers", json!({"topic": "later", "due_in_seconds": 3600})).json(201);
    let path = format!("/v1/timers/{}", later["id"].as_str().unwrap());
    served.ask("PATCH", &path, &[], Some(r#"{"due_in_seconds":0}"#)).json(200);
    assert_eq!(claim(&served, "later")["id"], later["id"]);
    served.ask("PATCH", &path, &[], Some(r#"{"due_in_seconds":0}"#)).problem(409, "conflict");
    served.post("/v1/timers", json!({"topic": "t"})).problem(422, "invalid-argument");

    let job = json!({"topic": "run", "cron": "0 0 1 1 *", "misfire": {"policy": "all", "cap": 3, "window_seconds": 60}});
    put(&served, "/v1/jobs/yearly", job).json(200);
    put(&served, "/v1/jobs/yearly", json!({"topic": "run", "cron": "nonsense"}))
        .problem(422, "invalid-argument");
    let run = served.post("/v1/jobs/yearly/trigger", json!({})).json(201);
    let item = claim(&served, "run");
    assert_eq!(item["id"], run["id"]);
    let path = format!("/v1/runs/{}", run["id"].as_str().unwrap());
    assert_eq!(put(&served, &format!("{path}/output"), json!({"output": "42 rows"})).status, 204);
    served.post("/v1/outbox/claims/ack", json!({"claims": [item["claim"]]})).json(200);
    let run = served.get(&path).json(200);
    assert_eq!((&run["state"], &run["output"]), (&json!("succeeded"), &json!("42 rows")));
    served.ask("POST", "/v1/jobs/yearly/disable", &[], None).json(200);
    served.ask("DELETE", "/v1/jobs/yearly", &[], None).json(200);
    served.get("/v1/jobs/yearly").problem(404, "not-found");
}

#[test]
fn a_lease_has_one_holder() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let acquire = |body: Value| served.post("/v1/leases/the%20report/acquire", body);
    let mine = acquire(json!({"owner": "a"})).json(200);
    let held = acquire(json!({"owner": "b"})).problem(409, "lease-held");
    assert_eq!((&held["owner"], &held["retryable"]), (&json!("http:anyone/a"), &json!(true)));
    let renewed = served.post("/v1/leases/the%20report/renew", json!({"lease": mine["lease"]})).json(200);
    assert!(renewed["fencing_token"].as_i64() > mine["fencing_token"].as_i64());
    served.post("/v1/leases/other/renew", json!({"lease": mine["lease"]})).problem(422, "invalid-argument");
    let release = json!({"lease": mine["lease"]});
    assert_eq!(served.post("/v1/leases/the%20report/release", release.clone()).status, 204);
    let next = acquire(json!({"owner": "b", "wait_seconds": 10})).json(200);
    assert_eq!(next["epoch"], 2);
    served.post("/v1/leases/the%20report/release", release).problem(409, "lease-lost");
    let forced = served.ask("POST", "/v1/leases/the%20report/force-release", &[], None).json(200);
    assert_eq!(forced["owner"], "http:anyone/b");
    let lost = json!({"lease": next["lease"]});
    served.post("/v1/leases/the%20report/renew", lost).problem(409, "lease-lost");
    assert_eq!(served.get("/v1/leases?held=true&prefix=the").json(200)["items"], json!([]));
}

#[test]
fn a_join_ends_with_its_last_step() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let join = json!({"expected": 2, "grouping_key": "g", "on_completed": {"topic": "ready"}});
    let id = served.post("/v1/joins", join).json(201)["id"].clone();
    served.post("/v1/outbox/messages", json!({"topic": "step", "joins": [id]})).json(201);
    let by_hand = "0190a5c4-7d5e-7b2c-8f0e-2b1f6f0f9a11";
    let path = format!("/v1/joins/{}", id.as_str().unwrap());
    served.post(&format!("{path}/members"), json!({"items": [by_hand]})).json(200);
    let reported = served.post(&format!("{path}/members/{by_hand}/report"), json!({"step": "completed"}));
    assert_eq!(reported.json(200)["counted"], true);
    let item = claim(&served, "step");
    served.post("/v1/outbox/claims/ack", json!({"claims": [item["claim"]]})).json(200);
    assert_eq!(served.get(&path).json(200)["state"], "completed");
    assert_eq!(claim(&served, "ready")["topic"], "ready");
    assert_eq!(served.get(&format!("{path}/members")).json(200)["items"].as_array().unwrap().len(), 2);
    assert_eq!(served.post(&format!("{path}/cancel"), json!({})).json(200)["changed"], false);
    served.post("/v1/joins", json!({"expected": 1, "quorum": 1})).problem(422, "invalid-argument");
}

#[test]
fn fanouts_operations_and_the_trail() {
    let program = Program::new();
    // Where a database is named nobody coordinates its fan-outs, so no slice is in flight.
    let served = Served::start(&program, &["--database=named.db"]);
    put(&served, "/v1/fanouts/etl/payments", json!({"every_seconds": 600})).json(200);
    put(&served, "/v1/fanouts/etl/other", json!({})).problem(422, "invalid-argument");
    let added = served.post("/v1/fanouts/etl/payments/shards", json!({"shards": ["a", "b"]})).json(200);
    assert_eq!(added["added"], 2);
    let changed =
        served.ask("PATCH", "/v1/fanouts/etl/payments", &[], Some(r#"{"enabled":false}"#)).json(200);
    assert_eq!((&changed["enabled"], &changed["every_seconds"]), (&json!(false), &json!(600)));
    let done = json!({"at": "2026-01-01T00:00:00Z"});
    assert_eq!(served.post("/v1/fanouts/etl/payments/shards/a/complete", done).json(200)["changed"], true);
    assert_eq!(served.ask("POST", "/v1/fanouts/etl/payments/run", &[], None).status, 202);
    assert_eq!(served.ask("DELETE", "/v1/fanouts/etl/payments/shards/b", &[], None).status, 204);
    assert_eq!(served.get("/v1/fanouts/etl/payments/shards").json(200)["items"][0]["shard"], "a");
    assert_eq!(served.ask("DELETE", "/v1/fanouts/etl/payments", &[], None).json(200)["shards"], 1);

    let id = served
        .post("/v1/operations", json!({"name": "import", "total": 9, "tags": {"k": "v"}}))
        .json(201)["id"]
        .clone();
    let path = format!("/v1/operations/{}", id.as_str().unwrap());
    assert_eq!(served.post(&format!("{path}/progress"), json!({"done": 3})).status, 204);
    served.post(&format!("{path}/events"), json!({"kind": "page", "data": {"n": 1}})).json(201);
    assert_eq!(served.get(&format!("{path}/events")).json(200)["items"][0]["data"]["n"], 1);
    assert_eq!(served.post(&format!("{path}/end"), json!({"state": "succeeded"})).json(200)["changed"], true);
    assert_eq!(
        served.post(&format!("{path}/end"), json!({"state": "cancelled"})).json(200)["state"],
        "succeeded"
    );
    assert_eq!(served.post(&format!("{path}/progress"), json!({})).status, 422);
    assert_eq!(served.get("/v1/operations?tag=k%3Dv").json(200)["items"][0]["id"], id);

    let event = json!({"name": "order.refund", "anchors": [{"kind": "order", "value": "7"}]});
    served.post("/v1/audit", event).json(201);
    let found = served.get("/v1/audit?anchor_kind=order&anchor_value=7").json(200);
    assert_eq!(
        (&found["items"][0]["name"], &found["items"][0]["actor"]),
        (&json!("order.refund"), &json!("http:anyone"))
    );
    let store = served.get("/v1/stores/default").json(200);
    assert_eq!((&store["provider"], &store["schema"]), (&json!("sqlite"), &json!("current")));
}

#[test]
fn a_fan_out_that_is_registered_here_is_coordinated_here() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    put(&served, "/v1/fanouts/etl/payments", json!({"every_seconds": 600})).json(200);
    served.post("/v1/fanouts/etl/payments/shards", json!({"shards": ["a"]})).json(200);
    let item = claim(&served, "fanout:etl:payments");
    let slice: Value = serde_json::from_str(item["payload"].as_str().unwrap()).unwrap();
    let done = json!({"at": slice["dueAt"]});
    assert_eq!(served.post("/v1/fanouts/etl/payments/shards/a/complete", done).json(200)["changed"], true);
    served.post("/v1/outbox/claims/ack", json!({"claims": [item["claim"]]})).json(200);
    served.stop();
}

#[test]
fn the_fan_outs_of_each_database_of_a_fleet_are_coordinated() {
    let program = Program::new();
    program.write("fleet.toml", "[[databases]]\nid = \"acme\"\nurl = \"sqlite:acme.db\"\n\n[[databases]]\nid = \"globex\"\nurl = \"sqlite:globex.db\"\n");
    let served = Served::start(&program, &["--fleet=fleet.toml", "--deploy", "--coordinate-fanouts"]);
    for store in ["acme", "globex"] {
        served.ask("POST", &format!("/v1/stores/{store}/deploy"), &[], None).json(200);
        let path = format!("/v1/fanouts/etl/{store}");
        put(&served, &format!("{path}?store={store}"), json!({"every_seconds": 600})).json(200);
        let shards = format!("{path}/shards?store={store}");
        served.post(&shards, json!({"shards": ["a"]})).json(200);
    }
    for store in ["acme", "globex"] {
        let asked = json!({"topics": [format!("fanout:etl:{store}")], "wait_seconds": 30});
        let claimed = served.post(&format!("/v1/outbox/claims?store={store}"), asked).json(200);
        assert_eq!(claimed["items"].as_array().unwrap().len(), 1, "{claimed}");
    }
    // One that comes later, in a database that may rest by then.
    put(&served, "/v1/fanouts/etl/late?store=acme", json!({"every_seconds": 600})).json(200);
    served.post("/v1/fanouts/etl/late/shards?store=acme", json!({"shards": ["a"]})).json(200);
    let asked = json!({"topics": ["fanout:etl:late"], "wait_seconds": 30});
    let claimed = served.post("/v1/outbox/claims?store=acme", asked).json(200);
    assert_eq!(claimed["items"].as_array().unwrap().len(), 1, "{claimed}");
    served.stop();
}

#[test]
fn the_six_gauges_are_published_for_each_store() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    served.post("/v1/outbox/messages", json!({"topic": "t"})).json(201);
    let names = [
        "outbox_pending_messages",
        "outbox_processing_messages",
        "outbox_failed_messages",
        "timers_pending",
        "timers_overdue",
        "active_leases",
    ];
    // Each is published at the start, by a service of its own.
    let mut told = String::new();
    mainstay_tests::eventually_blocking(Duration::from_secs(60), "all are published", || {
        told = served.get("/metrics").body;
        names.iter().all(|name| told.contains(&format!("\n{name}{{store=")))
    });
    assert!(told.contains("mainstay_outbox_enqueued_total{store="), "{told}");
    assert!(told.contains("mainstay_http_request_seconds_bucket{"), "{told}");
}

#[test]
fn a_probe_asks_the_server() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let url = served.url();
    let report = program.run(&["health", "--url", &url, "--json"]).succeeded().json();
    assert_eq!(report["status"], "healthy");
    let told = program.run(&["health", "ready", "--url", &url]).succeeded().stdout;
    assert!(told.contains("schema") && told.ends_with(": healthy\n"), "{told}");
    served.stop();
    program.run(&["health", "--url", &url]).failed(3, &["can't be asked"]);
    program.run(&["health", "--url", "ftp://x"]).failed(2, &["URL"]);
    program.run(&["health", "--url", "http://u:s3cret@h"]).failed(2, &["URL"]);
}

#[test]
fn a_fleet_is_asked_by_the_id_of_the_database() {
    let program = Program::new();
    program.write("fleet.toml", "[[databases]]\nid = \"acme\"\nurl = \"sqlite:acme.db\"\n\n[[databases]]\nid = \"globex\"\nurl = \"sqlite:globex.db\"\n");
    let served = Served::start(&program, &["--fleet=fleet.toml", "--deploy"]);
    served.post("/v1/outbox/messages", json!({"topic": "t"})).problem(422, "invalid-argument");
    served.post("/v1/outbox/messages?store=initech", json!({"topic": "t"})).problem(404, "not-found");
    assert_eq!(served.get("/v1/stores").json(200)["items"].as_array().unwrap().len(), 2);
    for store in ["acme", "globex"] {
        served.ask("POST", &format!("/v1/stores/{store}/deploy"), &[], None).json(200);
    }
    served.post("/v1/outbox/messages?store=acme", json!({"topic": "t"})).json(201);
    let claim = |store: &str| served.post(&format!("/v1/outbox/claims?store={store}"), json!({})).json(200);
    assert_eq!(claim("globex")["items"], json!([]));
    assert_eq!(claim("acme")["items"].as_array().unwrap().len(), 1);
    served.stop();
}

/// A restart would not heal a database, and the others' tenants are to be served.
#[test]
fn a_database_that_is_down_does_not_take_a_fleet_away() {
    let program = Program::new();
    program.write("fleet.toml", "[[databases]]\nid = \"acme\"\nurl = \"sqlite:acme.db\"\n\n[[databases]]\nid = \"down\"\nurl = \"postgres://app@127.0.0.1:1/down\"\n");
    let served = Served::start(&program, &["--fleet=fleet.toml", "--deploy"]);
    served.ask("POST", "/v1/stores/acme/deploy", &[], None).json(200);
    let live = served.get("/health/live").json(200);
    assert_eq!((&live["status"], &live["stores"]), (&json!("healthy"), &json!([])), "{live}");
    assert_eq!(live["startup"]["state"], "running");
    // It is not asked for this: the process finds out by itself.
    mainstay_tests::eventually_blocking(Duration::from_secs(60), "it is known which one is down", || {
        let ready: Value = serde_json::from_str(&served.get("/health/ready").body).unwrap();
        let states =
            [0, 1].map(|at| (ready["stores"][at]["id"].clone(), ready["stores"][at]["status"].clone()));
        ready["status"] == "degraded"
            && states == [(json!("down"), json!("unhealthy")), (json!("acme"), json!("healthy"))]
    });
    assert_eq!(served.get("/health").json(503)["status"], "unhealthy");
    program.run(&["health", "ready", "--url", &served.url()]).succeeded();
    // The watchdog looks at all of them, from the start.
    mainstay_tests::eventually_blocking(Duration::from_secs(60), "both are watched", || {
        let told = served.get("/metrics").body;
        let gauges: Vec<_> =
            told.lines().filter(|line| line.starts_with("mainstay_health_status{")).collect();
        ["acme", "down"].iter().all(|name| gauges.iter().any(|line| line.contains(name)))
    });
    program.run(&["health", "--url", &served.url()]).ended(3);
    served.stop();
}

#[test]
fn a_topic_is_paused_for_everybody_who_claims() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    for (queue, enqueue) in [
        ("outbox", json!({"topic": "mail", "payload": "x"})),
        ("inbox", json!({"source": "shop", "message_id": "1", "message": {"topic": "mail", "payload": "x"}})),
    ] {
        served.post(&format!("/v1/{queue}/messages"), enqueue).json(201);
        let topics = format!("/v1/{queue}/topics");
        let pause = json!({"topic": "mail", "reason": "INC-17"});
        assert_eq!(served.post(&format!("{topics}/pause"), pause.clone()).json(200)["changed"], true);
        assert_eq!(served.post(&format!("{topics}/pause"), pause).json(200)["changed"], false);
        let paused = served.get(&format!("{topics}/paused")).json(200);
        assert_eq!(
            (&paused["items"][0]["topic"], &paused["items"][0]["reason"]),
            (&json!("mail"), &json!("INC-17"))
        );
        let claims = format!("/v1/{queue}/claims");
        assert_eq!(served.post(&claims, json!({})).json(200)["items"], json!([]));
        served.post(&format!("{topics}/pause"), json!({"topic": ""})).problem(422, "invalid-argument");
        served
            .post(&format!("{topics}/resume"), json!({"topic": "mail", "why": 1}))
            .problem(422, "invalid-argument");
        assert_eq!(
            served.post(&format!("{topics}/resume"), json!({"topic": "mail"})).json(200)["changed"],
            true
        );
        assert_eq!(served.post(&claims, json!({})).json(200)["items"].as_array().unwrap().len(), 1);
        assert_eq!(served.get(&format!("{topics}/paused")).json(200)["items"], json!([]));
    }
}
