//! `mainstay serve`: one message's way through it, on each database, and what a stop and a crash do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod served;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mainstay_tests::{OwnCluster, TestDatabase};
use program::Program;
use serde_json::{Value, json};
use served::{Answer, Served};

/// Nothing takes that long; it only keeps a test from waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

fn claim(served: &Served) -> Value {
    served.post("/v1/outbox/claims", json!({"wait_seconds": 30})).json(200)
}

/// Enqueue, claim, settle, look.
fn a_message_goes_all_the_way(served: &Served) {
    let message =
        r#"{"topic": "order.paid", "payload_json": {"order":7,"sum":1.10}, "correlation_id": "r-1"}"#;
    let added = served.ask("POST", "/v1/outbox/messages", &[], Some(message));
    let enqueued = added.json(201);
    let id = enqueued["id"].as_str().unwrap();
    assert_eq!(added.header("location"), Some(format!("messages/{id}").as_str()));

    let claimed = claim(served);
    let item = &claimed["items"][0];
    assert_eq!(item["id"], id, "{claimed}");
    assert_eq!(item["payload"], r#"{"order":7,"sum":1.10}"#, "as it was written");
    assert_eq!((&item["attempt"], &item["correlation_id"]), (&json!(1), &json!("r-1")));
    let claims = json!({"claims": [item["claim"]]});
    assert_eq!(served.post("/v1/outbox/claims/renew", claims.clone()).json(200)["changed"], json!([id]));
    assert_eq!(served.post("/v1/outbox/claims/ack", claims.clone()).json(200)["changed"], json!([id]));
    let lost = served.post("/v1/outbox/claims/ack", claims).problem(409, "claim-lost");
    assert_eq!(lost["stale"], json!([id]));
    assert_eq!(served.get(&format!("/v1/outbox/messages/{id}")).json(200)["status"], "done");
    assert_eq!(served.get("/health").json(200)["status"], "healthy");
    assert_eq!(served.get("/health/ready").json(200)["stores"][0]["startup"]["state"], "running");
}

#[test]
fn nothing_but_the_program_is_needed() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    a_message_goes_all_the_way(&served);
    assert!(program.folder().join("mainstay.db").exists());
    served.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_too() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    tokio::task::spawn_blocking(move || {
        let program = Program::new();
        program.run(&["serve", "--listen=127.0.0.1:0", &url]).failed(1, &["schema", "--deploy"]);
        let served = Served::start(&program, &[&url, "--deploy"]);
        a_message_goes_all_the_way(&served);
        served.stop();
    })
    .await
    .unwrap();
}

#[test]
fn who_waits_for_work_is_told_of_it() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let mut waiting =
        served.send("POST", "/v1/outbox/claims", &[], Some(r#"{"topics":["wanted"],"wait_seconds":50}"#));
    served.post("/v1/outbox/messages", json!({"topic": "other"})).json(201);
    let wanted = served.post("/v1/outbox/messages", json!({"topic": "wanted"})).json(201);
    let claimed = Answer::read(&mut waiting).json(200);
    assert_eq!(claimed["items"][0]["id"], wanted["id"]);
    assert_eq!(claimed["items"].as_array().unwrap().len(), 1);
}

/// Nobody is told of new work through a pooler: it has to be looked for. It waits longer than a test does for an answer.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_behind_a_pooler_is_told_of_work_too() {
    let database = TestDatabase::create(None).await;
    let (direct, pooled) = (database.url(), format!("--database={}", database.bouncer_url()));
    tokio::task::spawn_blocking(move || {
        let program = Program::new();
        program.write("mainstay.toml", "[serve]\nmax_wait_seconds = 600\n");
        program.run(&["--database", &direct, "migrate"]).succeeded();
        let served = Served::start(&program, &[&pooled]);
        let mut waiting = served.send("POST", "/v1/outbox/claims", &[], Some(r#"{"wait_seconds":600}"#));
        served.running(2);
        program.run(&["--database", &direct, "outbox", "enqueue", "t"]).succeeded();
        assert_eq!(Answer::read(&mut waiting).json(200)["items"][0]["topic"], "t");
        served.stop();
    })
    .await
    .unwrap();
}

#[test]
fn a_stop_ends_who_waits_with_an_answer() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let mut waiting = served.send("POST", "/v1/outbox/claims", &[], Some(r#"{"wait_seconds":50}"#));
    // This one, and the one that waits.
    served.running(2);
    served.signal("-TERM");
    assert_eq!(Answer::read(&mut waiting).json(200)["items"], json!([]));
    served.ended();
}

#[test]
fn what_was_accepted_outlives_a_kill() {
    outlives_a_kill(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_outlives_a_kill_on_postgres() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    tokio::task::spawn_blocking(move || outlives_a_kill(&[&url, "--deploy"])).await.unwrap();
}

fn outlives_a_kill(arguments: &[&str]) {
    let program = Program::new();
    let served = Served::start(&program, arguments);
    let ids: Vec<_> = (0..20)
        .map(|n| {
            served.post("/v1/outbox/messages", json!({"topic": "t", "payload": n.to_string()})).json(201)
        })
        .map(|enqueued| enqueued["id"].clone())
        .collect();
    let held = served.post("/v1/outbox/claims", json!({"batch": 5, "lease_seconds": 0.5})).json(200);
    served.kill();
    let served = Served::start(&program, arguments);
    let (mut done, begun) = (Vec::new(), Instant::now());
    while done.len() < ids.len() {
        assert!(begun.elapsed() < PATIENCE, "{} of {} are done", done.len(), ids.len());
        for item in claim(&served)["items"].as_array().unwrap() {
            let ack = json!({"claims": [item["claim"]]});
            if served.post("/v1/outbox/claims/ack", ack).status == 200 {
                done.push(item["id"].clone());
            }
        }
    }
    let mut wanted = ids;
    wanted.sort_by_key(Value::to_string);
    done.sort_by_key(Value::to_string);
    assert_eq!(done, wanted, "each once");
    let late = json!({"claims": [held["items"][0]["claim"]]});
    served.post("/v1/outbox/claims/ack", late).problem(409, "claim-lost");
}

/// Whoever was told that a message is accepted finds it done, and nobody is told twice that it was he who ended it.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_postgres_loses_nothing_and_doubles_nothing() {
    const EACH: usize = 60;
    let cluster = OwnCluster::create().await;
    let url = format!("--database={}", cluster.url());
    let (accepted, acked) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let (sent, done) = (Arc::clone(&accepted), Arc::clone(&acked));
    let load = tokio::task::spawn_blocking(move || {
        let program = Program::new();
        let served = Served::start(&program, &[&url, "--deploy"]);
        let (served, sent, done, begun) = (&served, &*sent, &*done, Instant::now());
        let all = || done.lock().unwrap().len() >= 3 * EACH || begun.elapsed() > 2 * PATIENCE;
        std::thread::scope(|scope| {
            for sender in 0..3 {
                scope.spawn(move || {
                    for number in 0..EACH {
                        let key = format!("{sender}-{number}");
                        let message = json!({"topic": "t", "payload": key, "idempotency_key": key});
                        // Sent again until it is accepted; the key keeps it from being there twice.
                        mainstay_tests::eventually_blocking(2 * PATIENCE, "it is accepted", || {
                            let answer = served.post("/v1/outbox/messages", message.clone());
                            let accepted = answer.status / 100 == 2;
                            assert!(accepted || answer.status == 503, "{answer:?}");
                            if accepted {
                                sent.lock().unwrap().push(answer.json(answer.status)["id"].to_string());
                            }
                            accepted
                        });
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(move || {
                    while !all() {
                        let body = json!({"wait_seconds": 1, "lease_seconds": 2, "batch": 5});
                        let mut claimed = Value::Null;
                        mainstay_tests::eventually_blocking(2 * PATIENCE, "a claim is answered", || {
                            let answer = served.post("/v1/outbox/claims", body.clone());
                            assert!([200, 503].contains(&answer.status), "{answer:?}");
                            if answer.status == 200 {
                                claimed = answer.json(200);
                            }
                            answer.status == 200
                        });
                        for item in claimed["items"].as_array().unwrap() {
                            let ack = json!({"claims": [item["claim"]]});
                            // What is not acknowledged comes again.
                            if served.post("/v1/outbox/claims/ack", ack).status == 200 {
                                done.lock().unwrap().push(item["id"].to_string());
                            }
                        }
                        // An answer that was lost with the database: the message is done, and nobody was told.
                        let stats = served.get("/v1/stats");
                        if stats.status == 200 && stats.json(200)["outbox"]["done"] == 3 * EACH {
                            return;
                        }
                    }
                });
            }
        });
        // Counts are shared for a moment.
        mainstay_tests::eventually_blocking(PATIENCE, "all are done", || {
            served.get("/v1/stats").json(200)["outbox"]["done"] == 3 * EACH
        });
    });
    mainstay_tests::eventually(2 * PATIENCE, "some are accepted, and done", async || {
        accepted.lock().unwrap().len() > EACH / 2 && !acked.lock().unwrap().is_empty()
    })
    .await;
    cluster.kill().await;
    cluster.start().await;
    load.await.unwrap();
    let (accepted, acked) = (accepted.lock().unwrap(), acked.lock().unwrap());
    let distinct = |ids: &[String]| ids.iter().collect::<BTreeSet<_>>().len();
    assert_eq!((accepted.len(), distinct(&accepted)), (3 * EACH, 3 * EACH));
    assert_eq!(distinct(&acked), acked.len(), "none twice");
}

/// A probe gets its answers from the first moment on, whatever the database does.
#[test]
fn it_answers_while_the_database_is_away() {
    let program = Program::new();
    let served = Served::begin(&program, &["--database=postgres://nobody@127.0.0.1:1/none"]);
    served.get("/health/live").json(200);
    // It answers before its work has so much as begun to start.
    mainstay_tests::eventually_blocking(PATIENCE, "it says that it is starting", || {
        let ready = served.get("/health/ready").json(503);
        assert_eq!(ready["status"], "unhealthy");
        ready["stores"][0]["startup"]["state"] == "starting"
    });
    let refused = served.post("/v1/outbox/messages", json!({"topic": "t"}));
    assert_eq!(refused.problem(503, "unavailable")["retryable"], true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    program.run(&["health", "ready", "--url", &served.url()]).ended(3);
    served.stop();
}

/// `Type=notify` of systemd.
#[cfg(target_os = "linux")]
#[test]
fn systemd_is_told_when_it_is_ready_and_when_it_stops() {
    let program = Program::new();
    let path = program.folder().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let mut command = program.command(&["serve", "--listen=127.0.0.1:0"]);
    let mut child = command.env("NOTIFY_SOCKET", &path).stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut told = [0; 64];
    let read = socket.recv(&mut told).unwrap();
    assert_eq!(&told[..read], b"READY=1");
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let read = socket.recv(&mut told).unwrap();
    assert_eq!(&told[..read], b"STOPPING=1");
    assert!(child.wait().unwrap().success());
}
