//! Webhooks of `mainstay serve`: what is sent, what answers do, and what a stop and a crash do.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod receiver;
mod served;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use mainstay_tests::TestDatabase;
use program::Program;
use receiver::{OLD_SECRET, Receiver, SECRET, answer, enqueue, start, until};
use serde_json::{Value, json};
use served::Served;

#[track_caller]
fn until_status(served: &Served, id: &str, status: &str) -> Value {
    until(served, id, |message| message["status"] == status)
}

/// Delivered as it should be, and topics without a route are left to those who claim them.
fn a_message_is_delivered(program: &Program, database: &[&str]) {
    let receiver = Receiver::answering("204 No Content");
    let routes = receiver.route("exact", "topic = 'order.paid'\nsecrets_env = 'HOOK_SECRETS'")
        + &receiver
            .route("begins", "prefix = 'mail.'\nsecrets_file = 'old.secret'\ncontent_type = 'text/x-mail'");
    program.write("mainstay.toml", &routes);
    program.write("old.secret", &format!("{OLD_SECRET}\n"));
    let served = Served::start_with(program, database, &[("HOOK_SECRETS", OLD_SECRET)]);

    let other = enqueue(&served, "other", "for a worker");
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let order = json!({
        "topic": "order.paid", "payload": "{\"order\": 7}", "correlation_id": "r-1\u{e9}",
        "headers": {"traceparent": trace, "tracestate": "vendor=1", "x-own": "stays here"},
    });
    let added = served.post("/v1/outbox/messages", order).json(201);
    let sent = receiver.next();
    assert_eq!(sent.line, "POST /hooks?key=1 HTTP/1.1");
    assert_eq!(sent.body, "{\"order\": 7}", "to the byte");
    assert_eq!(sent.header("host"), receiver.address());
    assert_eq!(sent.header("content-type"), "application/json");
    assert_eq!(sent.header("webhook-id"), added["message_id"].as_str().unwrap());
    assert_eq!((sent.header("mainstay-topic"), sent.header("mainstay-attempt")), ("order.paid", "1"));
    assert_eq!(sent.header("mainstay-correlation-id"), "r-1%C3%A9");
    assert_eq!(&sent.header("traceparent")[..36], &trace[..36], "the same trace");
    assert_ne!(sent.header("traceparent"), trace, "in a span of its own");
    assert_eq!(sent.header("tracestate"), "vendor=1");
    assert_eq!(sent.maybe("x-own"), None);
    let signatures: Vec<_> = sent.header("webhook-signature").split(' ').collect();
    assert_eq!(signatures.len(), 2, "one for each secret: {signatures:?}");
    assert!(signatures.iter().all(|one| one.starts_with("v1,") && one.len() == 47), "{signatures:?}");
    until_status(&served, added["id"].as_str().unwrap(), "done");

    let mail = enqueue(&served, "mail.welcome", "Dear reader");
    let sent = receiver.next();
    assert_eq!((sent.header("content-type"), sent.body.as_str()), ("text/x-mail", "Dear reader"));
    until_status(&served, &mail, "done");
    let claimed =
        served.post("/v1/outbox/claims", json!({"topics": ["other"], "wait_seconds": 30})).json(200);
    assert_eq!(claimed["items"][0]["id"], other.as_str(), "{claimed}");
    assert_eq!(claimed["items"][0]["attempt"], 1, "it was not spent on those that can't deliver it");
    assert_eq!(receiver.count(), 2);
    let metrics = served.get("/metrics").body;
    let counted = |route: &str| {
        metrics.lines().any(|line| {
            line.starts_with("mainstay_webhook_deliveries_total{")
                && line.contains(&format!("route=\"{route}\""))
                && line.contains("outcome=\"delivered\"")
                && line.ends_with(" 1")
        })
    };
    assert!(counted("exact") && counted("begins"), "{metrics}");
    served.stop();
}

#[test]
fn a_message_is_delivered_on_sqlite() {
    a_message_is_delivered(&Program::new(), &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_delivered_on_postgres() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    tokio::task::spawn_blocking(move || a_message_is_delivered(&Program::new(), &[&url, "--deploy"]))
        .await
        .unwrap();
}

#[test]
fn received_messages_are_delivered_too() {
    let receiver = Receiver::answering("200 OK");
    let (_program, served) = start(&receiver.route("r", "topic = 'paid'\nqueue = 'inbox'"));
    let message =
        json!({"source": "bank", "message_id": "b-7", "message": {"topic": "paid", "payload": "7"}});
    served.post("/v1/inbox/messages", message).json(201);
    let sent = receiver.next();
    assert_eq!((sent.header("mainstay-source"), sent.header("mainstay-received-id")), ("bank", "b-7"));
    assert_eq!((sent.header("mainstay-topic"), sent.body.as_str()), ("paid", "7"));
    served.stop();
}

#[test]
fn each_database_of_a_fleet_delivers() {
    let receiver = Receiver::answering("200 OK");
    let program = Program::new();
    program.write("mainstay.toml", &receiver.route("r", "prefix = ''"));
    program.write("fleet.toml", "[[databases]]\nid = \"acme\"\nurl = \"sqlite:acme.db\"\n\n[[databases]]\nid = \"globex\"\nurl = \"sqlite:globex.db\"\n");
    let served = Served::start(&program, &["--fleet=fleet.toml", "--deploy"]);
    for store in ["acme", "globex"] {
        served.ask("POST", &format!("/v1/stores/{store}/deploy"), &[], None).json(200);
        let path = format!("/v1/outbox/messages?store={store}");
        served.post(&path, json!({"topic": "t", "payload": store})).json(201);
        assert_eq!(receiver.next().body, store);
    }
    served.stop();
}

/// Waits for joins are handled where there are handlers.
#[test]
fn messages_that_wait_for_a_join_are_handled() {
    let receiver = Receiver::answering("200 OK");
    let routes = receiver.route("step", "topic = 'step'") + &receiver.route("done", "topic = 'all.done'");
    let (_program, served) = start(&routes);
    let join = served.post("/v1/joins", json!({"expected": 1})).json(201);
    let wait = json!({"joinId": join["id"], "onCompleteTopic": "all.done", "onCompletePayload": "well"});
    enqueue(&served, "join.wait", &wait.to_string());
    let step = json!({"topic": "step", "payload": "step", "joins": [join["id"]]});
    served.post("/v1/outbox/messages", step).json(201);
    assert_eq!(receiver.next().body, "step");
    assert_eq!(receiver.next().body, "well");
    served.stop();
}

#[test]
fn what_is_not_wanted_any_more_fails_at_once() {
    let receiver = Receiver::answering("410 Gone");
    let (_program, served) = start(&receiver.route("r", "topic = 't'"));
    let failed = until_status(&served, &enqueue(&served, "t", ""), "failed");
    assert!(failed["last_error"].as_str().unwrap().contains("answered 410"), "{failed}");
    assert_eq!(receiver.count(), 1);
    served.stop();
}

#[test]
fn a_failed_delivery_is_made_again_under_the_same_id() {
    let receiver = Receiver::start(|before, _, stream| {
        answer(
            stream,
            ["500 Oops", "404 Not Found", "302 Found", "200 OK"][before.min(3)],
            "location: /elsewhere\r\n",
        );
    });
    let (_program, served) = start(&receiver.route("r", "topic = 't'"));
    let id = enqueue(&served, "t", "x");
    let sent: Vec<_> = (0..4).map(|_| receiver.next()).collect();
    until_status(&served, &id, "done");
    for (at, request) in sent.iter().enumerate() {
        assert_eq!(request.header("webhook-id"), sent[0].header("webhook-id"));
        assert_eq!(request.header("mainstay-attempt"), (at + 1).to_string());
        assert!(request.line.starts_with("POST /hooks"), "no redirect is followed: {}", request.line);
    }
    served.stop();
}

#[test]
fn what_fails_too_often_is_given_up() {
    let receiver = Receiver::answering("500 Oops");
    let (_program, served) = start(&receiver.route("r", "topic = 't'\nattempts = 3"));
    let failed = until_status(&served, &enqueue(&served, "t", ""), "failed");
    assert!(failed["last_error"].as_str().unwrap().contains("answered 500"), "{failed}");
    assert_eq!(receiver.count(), 3);
    served.stop();
}

#[test]
fn a_receiver_says_when_to_come_again() {
    let receiver = Receiver::start(|_, request, stream| match request.body.as_str() {
        "seconds" => answer(stream, "429 Too Many Requests", "retry-after: 7200\r\n"),
        "date" => answer(stream, "503 Service Unavailable", "retry-after: Tue, 31 Dec 2999 23:59:59 GMT\r\n"),
        _ => answer(stream, "503 Service Unavailable", "retry-after: soon\r\n"),
    });
    let (_program, served) = start(&receiver.route("r", "topic = 't'\nretry_after_max_seconds = 36000"));
    for (body, least, most) in [("seconds", 7_000, 7_300), ("date", 35_000, 36_100)] {
        let id = enqueue(&served, "t", body);
        let put_off = until(&served, &id, |message| message["status"] == "ready" && message["attempts"] == 1);
        let due: jiff::Timestamp = put_off["next_attempt_at"].as_str().unwrap().parse().unwrap();
        let seconds = due.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((least..most).contains(&seconds), "{seconds}: {put_off}");
    }
    let id = enqueue(&served, "t", "unreadable");
    until(&served, &id, |message| message["attempts"].as_u64() >= Some(3));
    served.stop();
}

/// A receiver that fails is left alone, its messages wait without being spent, and it gets them once it works.
#[test]
fn a_receiver_that_fails_is_left_alone() {
    let works = Arc::new(AtomicBool::new(false));
    let working = Arc::clone(&works);
    let receiver = Receiver::start(move |_, _, stream| {
        answer(stream, if working.load(Ordering::SeqCst) { "200 OK" } else { "500 Oops" }, "");
    });
    let route = receiver.route("r", "topic = 't'\nattempts = 1000\nconcurrency = 1").replace(
        "breaker_failures = 1000",
        "breaker_failures = 2\nbreaker_pause_seconds = 0.2\nbreaker_pause_max_seconds = 0.2",
    );
    let (_program, served) = start(&route);
    let ids: Vec<_> = (0..5).map(|n| enqueue(&served, "t", &n.to_string())).collect();
    let metric = |name: &str| {
        let metrics = served.get("/metrics").body;
        let line = metrics.lines().find(|line| line.starts_with(name) && line.contains("route=\"r\""));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
    };
    let soon = Duration::from_secs(60);
    mainstay_tests::eventually_blocking(soon, "the breaker is open", || {
        metric("mainstay_webhook_breaker_state{") == Some(2)
    });
    mainstay_tests::eventually_blocking(soon, "one was put off", || {
        metric("mainstay_webhook_put_off_total{").is_some()
    });
    // Why is told of those that nobody has tried.
    mainstay_tests::eventually_blocking(soon, "it is told why they wait", || {
        ids.iter().any(|id| {
            let found = served.get(&format!("/v1/outbox/messages/{id}")).json(200);
            let told = found["last_error"].as_str().unwrap_or_default();
            found["attempts"] == 0
                && told.contains("leaves its receiver alone")
                && told.contains("answered 500")
        })
    });
    works.store(true, Ordering::SeqCst);
    let attempts = ids.iter().map(|id| until_status(&served, id, "done")["attempts"].as_u64().unwrap());
    assert_eq!(attempts.sum::<u64>(), receiver.count() as u64, "whoever waits spends nothing");
    assert_eq!(metric("mainstay_webhook_breaker_state{"), Some(0));
    served.stop();
}

#[test]
fn no_more_at_once_than_the_route_says() {
    // How many are there, and how many were at most.
    let together = Arc::new((Mutex::new((0, 0)), Condvar::new()));
    let counting = Arc::clone(&together);
    let receiver = Receiver::start(move |_, _, stream| {
        let (counts, changed) = &*counting;
        let mut there = counts.lock().unwrap();
        there.0 += 1;
        there.1 = there.1.max(there.0);
        changed.notify_all();
        // Each waits for another one, so that all who may come do.
        let (mut there, _late) =
            changed.wait_timeout_while(there, Duration::from_secs(5), |there| there.1 < 2).unwrap();
        there.0 -= 1;
        drop(there);
        answer(stream, "200 OK", "");
    });
    let (_program, served) = start(&receiver.route("r", "prefix = 't.'\nconcurrency = 2"));
    let ids: Vec<_> = (0..30).map(|n| enqueue(&served, &format!("t.{}", n % 3), "")).collect();
    for id in ids {
        until_status(&served, &id, "done");
    }
    assert_eq!(together.0.lock().unwrap().1, 2);
    served.stop();
}

/// A receiver that keeps what it was sent until the test says so.
fn holding() -> (Receiver, mpsc::Sender<()>) {
    let (go, going) = mpsc::channel();
    let going = Mutex::new(going);
    let receiver = Receiver::start(move |_, _, stream| {
        let _over = going.lock().unwrap().recv();
        answer(stream, "200 OK", "");
    });
    (receiver, go)
}

/// The message is claimed by nobody who lives, and is delivered again.
fn a_kill_in_the_middle_of_a_delivery(database: &[&str]) {
    let (receiver, go) = holding();
    let program = Program::new();
    program.write("mainstay.toml", &receiver.route("r", "topic = 't'"));
    let served = Served::start(&program, database);
    let id = enqueue(&served, "t", "x");
    let first = receiver.next();
    served.kill();
    go.send(()).unwrap();
    let served = Served::start(&program, database);
    let again = receiver.next();
    assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
    assert_eq!((again.header("mainstay-attempt"), again.body.as_str()), ("2", "x"));
    go.send(()).unwrap();
    until_status(&served, &id, "done");
    served.stop();
}

#[test]
fn a_kill_in_the_middle_of_a_delivery_loses_nothing() {
    a_kill_in_the_middle_of_a_delivery(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_in_the_middle_of_a_delivery_loses_nothing_on_postgres() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    tokio::task::spawn_blocking(move || a_kill_in_the_middle_of_a_delivery(&[&url, "--deploy"]))
        .await
        .unwrap();
}

#[test]
fn a_stop_lets_deliveries_end() {
    let (receiver, go) = holding();
    let (program, served) = start(&receiver.route("r", "topic = 't'"));
    let id = enqueue(&served, "t", "x");
    receiver.next();
    served.signal("-TERM");
    // It takes no more requests, so it has begun to stop.
    mainstay_tests::eventually_blocking(Duration::from_secs(60), "it listens no more", || {
        std::net::TcpStream::connect(served.address()).is_err()
    });
    go.send(()).unwrap();
    served.ended();
    let found = program.run(&["--database=mainstay.db", "outbox", "show", &id, "--json"]).succeeded().json();
    assert_eq!(found["status"], "done", "{found}");
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let (receiver, go) = holding();
    let (program, served) =
        start(&format!("[serve]\nstop_grace_seconds = 1\n\n{}", receiver.route("r", "topic = 't'")));
    let id = enqueue(&served, "t", "x");
    let first = receiver.next();
    served.stop();
    go.send(()).unwrap();
    let served = Served::start(&program, &[]);
    let again = receiver.next();
    assert_eq!(again.header("webhook-id"), first.header("webhook-id"));
    assert_eq!(again.header("mainstay-attempt"), "1", "what was broken off was not spent");
    go.send(()).unwrap();
    until_status(&served, &id, "done");
    served.stop();
}

/// The example of the guide, as it is there. It knows nothing of how the program signs.
fn the_example_receives(program: &Program, database: &[&str]) {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/webhooks/receiver.py");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut python = Command::new("python3")
        .args([example, &port.to_string()])
        .env("WEBHOOK_SECRET", SECRET)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 runs the example of docs/guides/webhooks.md, and must be installed");
    let lines = BufReader::new(python.stdout.take().unwrap());
    let route = |name: &str, topic: &str, secret: &str| {
        format!(
            "[[serve.webhook]]\nname = '{name}'\ntopic = '{topic}'\nurl = 'http://127.0.0.1:{port}/'\nallow_networks = ['127.0.0.1']\n\
             backoff_max_seconds = 1\nbreaker_failures = 1000\nattempts = 100\nsecrets = [{secret}]\n\n"
        )
    };
    let routes = route("good", "order.paid", &format!("'{OLD_SECRET}', '{SECRET}'"))
        + &route("forged", "forged", &format!("'{OLD_SECRET}'"));
    program.write("mainstay.toml", &routes);
    let served = Served::start(program, database);
    let order = json!({"topic": "order.paid", "payload": "{\"größe\": 7}"});
    let added = served.post("/v1/outbox/messages", order).json(201);
    let line = lines.lines().next().unwrap().unwrap();
    assert_eq!(line, format!("{} order.paid {{\"größe\": 7}}", added["message_id"].as_str().unwrap()));
    until_status(&served, added["id"].as_str().unwrap(), "done");
    let forged = enqueue(&served, "forged", "x");
    until(&served, &forged, |message| {
        message["last_error"].as_str().is_some_and(|text| text.contains("answered 401"))
    });
    served.stop();
    python.kill().unwrap();
    python.wait().unwrap();
}

#[test]
fn the_example_of_the_guide_verifies_what_it_gets() {
    let (guide, example) = (
        include_str!("../../../docs/guides/webhooks.md"),
        include_str!("../../../docs/guides/webhooks/receiver.py"),
    );
    assert!(guide.contains(&format!("```python\n{example}```")), "the guide shows another receiver");
    the_example_receives(&Program::new(), &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_of_the_guide_works_with_postgres() {
    let database = TestDatabase::create(None).await;
    let url = format!("--database={}", database.url());
    tokio::task::spawn_blocking(move || the_example_receives(&Program::new(), &[&url, "--deploy"]))
        .await
        .unwrap();
}
