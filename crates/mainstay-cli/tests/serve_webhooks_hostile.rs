//! Receivers of webhooks that hang, lie, or are where nothing may be delivered to.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod receiver;
mod served;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use mainstay_tests::TestDatabase;
use program::Program;
use receiver::{Receiver, SECRET, answer, enqueue, start, until};
use serde_json::{Value, json};
use served::Served;

/// What is said of a message once it has an error, or has ended.
#[track_caller]
fn sent(served: &Served, topic: &str) -> Value {
    let id = enqueue(served, topic, "s3cret payload");
    until(served, &id, |message| message["status"] == "done" || message["last_error"].is_string())
}

/// Whatever a receiver does, the attempt ends, counts as failed, and the next one is made.
#[track_caller]
fn is_tried_again(told: &str, misbehave: impl Fn(&mut TcpStream) + Send + Sync + 'static) {
    is_tried_again_on(&Program::new(), told, misbehave);
}

#[track_caller]
fn is_tried_again_on(
    program: &Program,
    told: &str,
    misbehave: impl Fn(&mut TcpStream) + Send + Sync + 'static,
) {
    let receiver = Receiver::start(move |before, _, stream| match before {
        0 => misbehave(stream),
        _ => answer(stream, "200 OK", ""),
    });
    program.write("mainstay.toml", &receiver.route("r", "topic = 't'\ntimeout_seconds = 1"));
    let served = Served::start(program, &[]);
    let found = sent(&served, "t");
    // It may have been delivered by the second attempt already; what was wrong with the first is kept all the same.
    assert!(found["last_error"].as_str().unwrap_or_default().contains(told), "{told:?} is not in {found}");
    let (first, second) = (receiver.next(), receiver.next());
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    assert_eq!(second.header("mainstay-attempt"), "2");
    served.stop();
}

/// Holds the connection until the other side has had enough of it.
fn hold(stream: &mut TcpStream) {
    let _ended = std::io::copy(stream, &mut std::io::sink());
}

#[test]
fn one_that_hangs_is_given_up() {
    is_tried_again("no complete answer within 1s", hold);
}

#[test]
fn one_that_hangs_up_has_not_answered() {
    is_tried_again("broke off", |stream| stream.shutdown(std::net::Shutdown::Both).unwrap());
}

#[test]
fn one_that_speaks_no_http_has_not_answered() {
    is_tried_again("broke off", |stream| stream.write_all(b"220 mail.example ESMTP\r\n").unwrap());
}

#[test]
fn an_answer_that_breaks_off_was_not_given() {
    is_tried_again("broke off", |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nwell").unwrap();
    });
}

#[test]
fn a_chunk_that_never_ends_was_not_given() {
    is_tried_again("broke off", |stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nwe").unwrap();
    });
}

#[test]
fn an_answer_that_drips_is_given_up() {
    is_tried_again("no complete answer within 1s", |stream| {
        let drops =
            b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".iter().chain(std::iter::repeat(&b'x'));
        for (at, byte) in drops.enumerate() {
            // The rest comes slowly, but never stops.
            if at > 45 {
                std::thread::sleep(Duration::from_millis(50));
            }
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
        }
    });
}

#[test]
fn a_head_without_end_is_given_up() {
    is_tried_again("broke off", |stream| {
        let _refused = stream.write_all(b"HTTP/1.1 200 OK\r\n");
        while stream.write_all(b"x-more: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n").is_ok()
        {
        }
    });
}

/// What follows a complete answer, or more of a body than anybody wants, takes nothing away from it.
#[test]
fn a_body_without_end_is_not_read() {
    let receiver = Receiver::start(|_, _, stream| {
        let _refused = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let (_program, served) = start(&receiver.route("r", "topic = 't'"));
    let found = sent(&served, "t");
    assert_eq!((&found["status"], receiver.count()), (&json!("done"), 1), "{found}");
    served.stop();
}

#[test]
fn a_body_longer_than_said_is_cut() {
    let receiver = Receiver::start(|_, _, stream| {
        let _refused = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nwell, and more");
    });
    let (_program, served) = start(&receiver.route("r", "topic = 't'"));
    assert_eq!(sent(&served, "t")["status"], "done");
    served.stop();
}

/// One route's receiver that hangs keeps no other route waiting.
#[test]
fn who_hangs_keeps_nobody_else_waiting() {
    let (hanging, working) = (Receiver::start(|_, _, stream| hold(stream)), Receiver::answering("200 OK"));
    let routes = hanging.route("hangs", "prefix = 'slow.'\nconcurrency = 1\ntimeout_seconds = 50")
        + &working.route("works", "topic = 'fast'\nconcurrency = 1");
    let (_program, served) = start(&format!("[serve]\nstop_grace_seconds = 0\n\n{routes}"));
    for n in 0..200 {
        served.post("/v1/outbox/messages", json!({"topic": format!("slow.{}", n % 7)})).json(201);
    }
    hanging.next();
    for _ in 0..5 {
        assert_eq!(sent(&served, "fast")["status"], "done");
    }
    assert_eq!(hanging.count(), 1);
    served.stop();
}

/// Those that fail, hang and lie, and one that may not be reached, on a database of a server.
#[tokio::test(flavor = "multi_thread")]
async fn bad_receivers_on_postgres() {
    let database = TestDatabase::create(None).await;
    let program = Program::new().with_variable("MAINSTAY_DATABASE", database.url());
    let checked = tokio::task::spawn_blocking(move || {
        program.run(&["migrate"]).succeeded();
        is_tried_again_on(&program, "answered 500", |stream| answer(stream, "500 Oops", ""));
        is_tried_again_on(&program, "no complete answer within 1s", hold);
        is_tried_again_on(&program, "broke off", |stream| {
            // Says that more is to come, and ends.
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nall");
        });
        is_tried_again_on(&program, "redirects are not followed", |stream| {
            answer(stream, "302 Found", "location: http://169.254.169.254/\r\n");
        });
        let receiver = Receiver::answering("200 OK");
        let (port, route) = (receiver.port(), "[[serve.webhook]]\nname = 'r'\ntopic = 't'\nsecrets = ");
        let route = format!("{route}['{SECRET}']\nurl = 'http://localhost:{port}/'\n");
        program.write("mainstay.toml", &route);
        let served = Served::start(&program, &[]);
        assert!(sent(&served, "t")["last_error"].as_str().unwrap().contains("loopback"));
        assert_eq!(receiver.count(), 0);
        served.stop();
    });
    checked.await.unwrap();
}

/// A name that leads to this machine is refused where nobody has allowed it, and no connection is made.
#[test]
fn names_that_lead_to_this_machine_are_refused() {
    let receiver = Receiver::answering("200 OK");
    let port = receiver.port();
    let route = format!(
        "[[serve.webhook]]\nname = 'r'\ntopic = 't'\nurl = 'http://localhost:{port}/'\nsecrets = ['{SECRET}']\n"
    );
    let (_program, served) = start(&route);
    let found = sent(&served, "t");
    let text = found["last_error"].as_str().unwrap();
    assert!(text.contains("loopback") && text.contains("allow_networks"), "{text}");
    assert_eq!(receiver.count(), 0);
    assert!(served.get("/metrics").body.contains("outcome=\"forbidden\""));
    served.stop();
    // Another address of this machine than the one that is allowed.
    let (_program, served) = start(&format!("{route}allow_networks = ['127.0.0.2', '::2', '10.0.0.0/8']\n"));
    assert!(sent(&served, "t")["last_error"].as_str().unwrap().contains("loopback"));
    assert_eq!(receiver.count(), 0);
    served.stop();
    let (_program, served) = start(&format!("{route}allow_networks = ['127.0.0.1', '::1']\n"));
    assert_eq!(sent(&served, "t")["status"], "done");
    served.stop();
}

#[test]
fn addresses_that_can_never_be_delivered_to_are_refused_at_the_start() {
    let program = Program::new();
    for (url, told) in [
        ("https://127.0.0.1/", "loopback"),
        ("https://10.1.2.3/", "private"),
        ("https://169.254.169.254/latest/", "link-local"),
        ("https://100.64.0.1/", "provider"),
        ("https://0.0.0.0/", "unspecified"),
        ("https://[::1]/", "loopback"),
        ("https://[::ffff:127.0.0.1]/", "loopback"),
        ("https://[::ffff:a9fe:a9fe]/", "link-local"),
        ("https://[64:ff9b::127.0.0.1]/", "loopback"),
        ("https://[2002:7f00:1::]/", "6to4"),
        ("https://[fd00:ec2::254]/", "private"),
        ("https://[fe80::1]/", "link-local"),
        ("https://[::]/", "unspecified"),
        ("https://224.0.0.1/", "multicast"),
        ("https://127.1/", "four decimal numbers"),
        ("https://2130706433/", "four decimal numbers"),
        ("https://0x7f.0.0.1/", "four decimal numbers"),
        ("https://0x7f000001/", "four decimal numbers"),
        ("http://shop.example/", "allow_http"),
        ("https://me:s3cret@shop.example/", "password"),
    ] {
        let route =
            format!("[[serve.webhook]]\nname = 'hook'\ntopic = 't'\nurl = '{url}'\nsecrets = ['{SECRET}']\n");
        program.write("mainstay.toml", &route);
        let ran = program.run(&["serve", "--listen=127.0.0.1:0"]).failed(2, &["\"hook\"", "url", told]);
        assert!(!ran.stderr.contains("s3cret") && !ran.stderr.contains(&SECRET[6..]), "{}", ran.stderr);
    }
}

/// TLS is checked: whom the route trusts is delivered to, anybody else is not.
#[test]
fn only_whom_the_route_trusts_is_delivered_to() {
    let program = Program::new();
    program.make_certificate();
    // Another server of ours is the receiver: it answers 404 to a POST of nothing it knows.
    let far = Program::new();
    for name in ["key.pem", "certificate.pem"] {
        std::fs::copy(program.folder().join(name), far.folder().join(name)).unwrap();
    }
    let receiver = Served::start(&far, &["--tls-certificate=certificate.pem", "--tls-key=key.pem"]);
    let port = receiver.address().rsplit(':').next().unwrap().to_owned();
    let route = |name: &str, host: &str, more: &str| {
        format!(
            "[[serve.webhook]]\nname = '{name}'\ntopic = '{name}'\nurl = 'https://{host}:{port}/nothing'\nallow_networks = ['127.0.0.1']\n\
             secrets = ['{SECRET}']\n{more}\n\n"
        )
    };
    let routes = route("trusted", "localhost", "ca_file = 'certificate.pem'")
        + &route("unknown", "localhost", "")
        + &route("otherwise", "127.0.0.1", "ca_file = 'certificate.pem'");
    program.write("mainstay.toml", &routes);
    let served = Served::start(&program, &[]);
    let error = |topic: &str| sent(&served, topic)["last_error"].as_str().unwrap().to_owned();
    let trusted = error("trusted");
    assert!(trusted.contains("answered 404"), "{trusted}");
    for topic in ["unknown", "otherwise"] {
        let told = error(topic);
        assert!(told.contains("no TLS that can be trusted"), "{topic}: {told}");
    }
    served.stop();
    receiver.stop();
}

/// Neither secrets nor payloads nor the path of the URL get into the log.
#[test]
fn nothing_secret_is_logged() {
    let receiver = Receiver::start(|_, _, stream| {
        let _gone = stream.write_all(b"HTTP/1.1 500 Oops\r\ncontent-length: 15\r\n\r\ns3cret response");
    });
    let program = Program::new();
    program.write(
        "mainstay.toml",
        &receiver.route("r", "topic = 't'\nattempts = 2").replace("key=1", "key=s3cret"),
    );
    let mut child = program.command(&["serve", "--listen=127.0.0.1:0", "--json", "-vvv"]);
    child
        .stdout(std::process::Stdio::piped())
        .stderr(std::fs::File::create(program.folder().join("log")).unwrap());
    let mut served = Served::of(child.spawn().unwrap());
    served.event("ready");
    let id = served.post("/v1/outbox/messages", json!({"topic": "t", "payload": "s3cret payload"})).json(201)
        ["id"]
        .clone();
    let path = format!("/v1/outbox/messages/{}", id.as_str().unwrap());
    mainstay_tests::eventually_blocking(Duration::from_secs(60), "it has failed", || {
        served.get(&path).json(200)["status"] == "failed"
    });
    served.stop();
    let log = std::fs::read_to_string(program.folder().join("log")).unwrap();
    assert!(log.contains("a delivery has ended"), "{log}");
    assert!(!log.contains("s3cret") && !log.contains(&SECRET[6..]), "{log}");
}
