//! What clients get wrong, by accident or not, is told as a problem and is never the server's fault.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod served;

use std::io::{ErrorKind, Read, Write};

use mainstay_tests::TestDatabase;
use program::Program;
use serde_json::json;
use served::{Answer, Served};

const MESSAGES: &str = "/v1/outbox/messages";

/// What holds on SQLite, on a database of a server.
async fn on_postgres(check: fn(&Program)) {
    let database = TestDatabase::create(None).await;
    let program = Program::new().with_variable("MAINSTAY_DATABASE", database.url());
    let checked = tokio::task::spawn_blocking(move || {
        program.run(&["migrate"]).succeeded();
        check(&program);
    });
    checked.await.unwrap();
}

fn send(served: &Served, body: &str) -> Answer {
    served.ask("POST", MESSAGES, &[], Some(body))
}

#[test]
fn a_body_that_can_not_be_read_is_told_by_its_field() {
    unreadable_bodies(&Program::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_can_not_be_read_is_told_by_its_field_on_postgres() {
    on_postgres(unreadable_bodies).await;
}

fn unreadable_bodies(program: &Program) {
    let served = Served::start(program, &[]);
    for body in ["", "{", "nonsense", "{\"topic\":\"t\"} x", "\u{feff}{}"] {
        send(&served, body).problem(400, "malformed");
    }
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(send(&served, &deep).status / 100, 4);
    for (body, field) in [
        (json!({}), "body"),
        (json!({"topic": 7}), "topic"),
        (json!({"topic": ""}), "topic"),
        (json!({"topic": "t".repeat(256)}), "topic"),
        (json!({"topic": "t", "tpoic": "t"}), "tpoic"),
        (json!({"topic": "t", "payload": "", "payload_json": 1}), "payload"),
        (json!({"topic": "t", "priority": 10}), "priority"),
        (json!({"topic": "t", "priority": 70_000}), "priority"),
        (json!({"topic": "t", "due_at": "tomorrow"}), "due_at"),
        (json!({"topic": "t", "due_in_seconds": -1}), "due_in_seconds"),
        (json!({"topic": "t", "due_in_seconds": 1e300}), "due_in_seconds"),
        (json!({"topic": "t", "due_at": "2030-01-01T00:00:00Z", "due_in_seconds": 1}), "due_at"),
        (json!({"topic": "t", "headers": {"mainstay-x": "y"}}), "headers (a name)"),
        (json!({"topic": "t", "idempotency_key": ""}), "idempotency_key"),
    ] {
        let problem = send(&served, &body.to_string()).problem(422, "invalid-argument");
        assert_eq!(problem["errors"][0]["field"], field, "{problem}");
    }
    served.get("/v1/outbox/messages?limit=0").problem(422, "invalid-argument");
    served.get("/v1/outbox/messages?limit=x").problem(422, "invalid-argument");
    served.get("/v1/outbox/messages?colour=red").problem(422, "invalid-argument");
    served.get("/v1/outbox/messages?cursor=bm8").problem(422, "invalid-argument");
    served.get("/v1/outbox/messages?status=happy").problem(422, "invalid-argument");
    served.get("/v1/outbox/messages?store=other").problem(404, "not-found");
    served.get("/v1/outbox/messages/no-id").problem(400, "malformed");
    served.get("/v1/jobs/%FF").problem(400, "malformed");
    served.get("/v1/jobs/%00").problem(422, "invalid-argument");
    for path in
        ["/v1/audit?name=%00", "/v1/operations?name=%00", "/v1/inbox/messages?source=%00", "/v1/runs?job=%00"]
    {
        served.get(path).problem(422, "invalid-argument");
    }
    served.post("/v1/outbox/claims/ack", json!({"claims": ["nonsense"]})).problem(422, "invalid-argument");
    served.post("/v1/outbox/claims/ack", json!({"claims": []})).problem(422, "invalid-argument");
    let nil = json!({"owner": "00000000-0000-0000-0000-000000000000"});
    served.post("/v1/outbox/claims", nil).problem(422, "invalid-argument");
    served.get("/health").json(200);
}

#[test]
fn http_itself_can_be_wrong_too() {
    wrong_http(&Program::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn http_itself_can_be_wrong_too_on_postgres() {
    on_postgres(wrong_http).await;
}

fn wrong_http(program: &Program) {
    let served = Served::start(program, &[]);
    served.get("/v1/nothing").problem(404, "not-found");
    let wrong = served.ask("DELETE", MESSAGES, &[], None);
    wrong.problem(405, "method-not-allowed");
    assert_eq!(wrong.header("allow"), Some("POST,GET,HEAD"));
    served.ask("BREW", MESSAGES, &[], None).problem(405, "method-not-allowed");
    let text = served.ask("POST", MESSAGES, &[("Content-Type", "text/plain")], Some("{}"));
    text.problem(415, "unsupported-media-type");
    served.raw(b"POST /v1/outbox/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999\r\nContent-Type: application/json\r\n\r\n{}").problem(413, "too-large");
    let chunks = "ffff\r\n".to_owned() + &"x".repeat(0xffff) + "\r\n";
    let mut endless = b"POST /v1/outbox/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n".to_vec();
    endless.extend(chunks.repeat(140).into_bytes());
    served.raw(&endless).problem(413, "too-large");
    for nonsense in [
        &b"nonsense\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ] {
        assert_eq!(served.raw(nonsense).status, 400);
    }
    // In two different lengths, of which a proxy in front might believe the other.
    let smuggled = b"POST /v1/outbox/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}";
    assert_eq!(served.raw(smuggled).status, 400);
    served.get("/health").json(200);
}

/// Those who hang up midway leave nothing behind, and nobody has to wait for those who are slow.
#[test]
fn slow_clients_and_those_that_hang_up_harm_nobody() {
    slow_clients(&Program::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_and_those_that_hang_up_harm_nobody_on_postgres() {
    on_postgres(slow_clients).await;
}

fn slow_clients(program: &Program) {
    let served = Served::start(program, &[]);
    let head = b"POST /v1/outbox/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\nContent-Type: application/json\r\n\r\n{\"to";
    let slow: Vec<_> = (0..50)
        .map(|index| {
            let mut stream = served.connect();
            stream.write_all(&head[..head.len() - index]).unwrap();
            stream
        })
        .collect();
    served.post(MESSAGES, json!({"topic": "t"})).json(201);
    drop(slow);
    // Work that was claimed for somebody who has hung up is there for the next one, and none of it counts as a delivery.
    let ask =
        |_| served.send("POST", "/v1/outbox/claims", &[], Some(r#"{"topics":["u"],"wait_seconds":50}"#));
    let waiting: Vec<_> = (0..20).map(ask).collect();
    served.running(21);
    drop(waiting);
    served.running(1);
    let id = served.post(MESSAGES, json!({"topic": "u"})).json(201)["id"].clone();
    let claimed = served.post("/v1/outbox/claims", json!({"topics": ["u"], "wait_seconds": 50})).json(200);
    assert_eq!(claimed["items"][0]["id"], id, "{claimed}");
    assert_eq!(claimed["items"][0]["attempt"], 1, "{claimed}");
}

/// Against pages in a browser that have a name of their own point to loopback.
#[test]
fn without_authentication_other_hosts_are_not_answered() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    let answer = served.raw(b"GET /v1/stats HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n");
    answer.problem(421, "misdirected");
    let answer = served.raw(b"GET /v1/stats HTTP/1.0\r\n\r\n");
    answer.problem(421, "misdirected");
    // Whichever of two counts.
    for two in [
        "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n",
        "GET http://evil.example/v1/stats HTTP/1.1\r\nHost: localhost\r\n",
    ] {
        served.raw(format!("{two}Connection: close\r\n\r\n").as_bytes()).problem(421, "misdirected");
    }
    let keys = [("Idempotency-Key", "a"), ("Idempotency-Key", "b"), ("Content-Type", "application/json")];
    served.ask("POST", MESSAGES, &keys, Some("{\"topic\":\"t\"}")).problem(422, "invalid-argument");
    let twice = [("Authorization", "Bearer a"), ("Authorization", "Bearer b")];
    served.ask("GET", "/v1/stats", &twice, None).problem(401, "unauthenticated");
}

#[test]
fn answers_carry_what_browsers_are_to_know() {
    let program = Program::new();
    let served = Served::start(&program, &[]);
    for path in ["/v1/stats", "/nothing", "/health", "/openapi.json", "/metrics"] {
        let answer = served.get(path);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert!(answer.header("content-security-policy").is_some(), "{path}");
        assert!(answer.header("cache-control").is_some(), "{path}");
        assert!(answer.header("access-control-allow-origin").is_none(), "{path}");
    }
    let mine = served.ask("GET", "/v1/stats", &[("X-Request-Id", "mine-7")], None);
    assert_eq!(mine.header("x-request-id"), Some("mine-7"));
    let long = "x".repeat(200);
    let replaced = served.ask("GET", "/v1/stats", &[("X-Request-Id", &long)], None);
    assert_eq!(replaced.header("x-request-id").map(str::len), Some(36));
}

/// Who sends nothing, or a part of it, is not waited for.
#[test]
fn what_does_not_arrive_is_given_up() {
    let program = Program::new();
    program.write("mainstay.toml", "[serve]\nbody_timeout_seconds = 1\nheader_timeout_seconds = 1\n");
    let served = Served::start(&program, &[]);
    let part = b"POST /v1/outbox/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\nContent-Type: application/json\r\n\r\n{";
    served.raw(part).problem(408, "timeout");
    let mut silent = served.connect();
    silent.write_all(b"GET /health HTTP/1.1\r\nHost:").unwrap();
    // It hangs up, with an answer or without: a client that gave up first would see an error.
    let mut told = Vec::new();
    let ended = silent.read_to_end(&mut told).map_err(|error| error.kind());
    assert!(matches!(ended, Ok(_) | Err(ErrorKind::ConnectionReset)), "{ended:?}");
    assert!(!told.starts_with(b"HTTP/1.1 200"), "{told:?}");
}
