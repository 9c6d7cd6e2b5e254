//! SIGHUP to `mainstay serve`: certificates, tokens and webhooks' secrets are read again, and what is wrong changes nothing.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod receiver;
mod served;

use std::fs;

use program::Program;
use receiver::{OLD_SECRET, Receiver, SECRET, enqueue};
use served::Served;

/// A token of that name, and its lines in the configuration.
fn token(program: &Program, name: &str) -> (String, String) {
    let made = program.run(&["token", "new", name, "--role", "operator", "--json"]).succeeded().json();
    let line = format!("[[serve.token]]\nname = \"{name}\"\nrole = \"operator\"\nhash = {}\n", made["hash"]);
    (made["token"].as_str().unwrap().to_owned(), line)
}

#[track_caller]
fn refuses(served: &mut Served, parts: &[&str]) {
    served.signal("-HUP");
    let error = served.event("not reloaded")["error"].as_str().unwrap().to_owned();
    assert!(parts.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn tokens_are_exchanged_without_a_restart() {
    let program = Program::new();
    let ((old, first), (new, second)) = (token(&program, "old"), token(&program, "new"));
    program.write("mainstay.toml", &first);
    let mut served = Served::start(&program, &[]).with_token(&old);
    served.get("/v1/stats").json(200);
    program.write("mainstay.toml", &second);
    served.get("/v1/stats").json(200);
    served.signal("-HUP");
    served.event("reloaded");
    served.get("/v1/stats").problem(401, "unauthenticated");
    served.use_token(Some(&new));
    served.get("/v1/stats").json(200);

    // What is wrong leaves everything as it was, and is told by its file without the values in it.
    program.write("mainstay.toml", "[[serve.token]]\nname = 's3cret");
    refuses(&mut served, &["mainstay.toml", "line 2"]);
    program.write("mainstay.toml", "");
    refuses(&mut served, &["authentication", "restart"]);
    served.get("/v1/stats").json(200);
    served.signal("-TERM");
    let told = served.ended_saying();
    assert!(told.contains("not reloaded") && told.contains("mainstay.toml"), "{told}");
    assert!(!told.contains("s3cret"), "{told}");
}

#[test]
fn a_certificate_is_exchanged_without_a_restart() {
    let program = Program::new();
    let file = |name: &str| program.folder().join(name);
    let copy = |from: &str, to: &str| assert!(fs::copy(file(from), file(to)).is_ok());
    program.make_certificate();
    copy("certificate.pem", "old.pem");
    let tls = ["--tls-certificate=certificate.pem", "--tls-key=key.pem"];
    let mut served = Served::start(&program, &tls);
    let port = served.address().rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{port}");
    let trusting = |ca: &str| program.run(&["health", "live", "--url", &url, "--ca-file", ca]);
    program.make_certificate();
    copy("certificate.pem", "new.pem");
    trusting("old.pem").succeeded();
    trusting("new.pem").failed(3, &["can't be asked"]);
    served.signal("-HUP");
    served.event("reloaded");
    trusting("new.pem").succeeded();
    trusting("old.pem").failed(3, &["can't be asked"]);

    program.write("certificate.pem", "not a certificate");
    refuses(&mut served, &["certificate.pem"]);
    // A key that is not this certificate's.
    copy("old.pem", "certificate.pem");
    refuses(&mut served, &["certificate"]);
    fs::remove_file(file("key.pem")).unwrap();
    refuses(&mut served, &["key.pem"]);
    trusting("new.pem").succeeded();
    served.stop();
}

#[test]
fn secrets_of_webhooks_are_exchanged_without_a_restart() {
    let program = Program::new();
    let receiver = Receiver::answering("204 No Content");
    let listed = format!("secrets = ['{SECRET}']");
    let route = receiver.route("billing", "topic = 't'").replace(&listed, "secrets_file = 'secrets'");
    program.write("secrets", SECRET);
    program.write("mainstay.toml", &route);
    let mut served = Served::start(&program, &[]);
    let signatures = |served: &Served| {
        enqueue(served, "t", "p");
        receiver.next().header("webhook-signature").split(' ').count()
    };
    assert_eq!(signatures(&served), 1);
    program.write("secrets", &format!("{SECRET}\n{OLD_SECRET}\n"));
    served.signal("-HUP");
    served.event("reloaded");
    assert_eq!(signatures(&served), 2);
    program.write("secrets", "whsec_s3cret");
    refuses(&mut served, &["billing"]);
    fs::remove_file(program.folder().join("secrets")).unwrap();
    refuses(&mut served, &["billing", "secrets_file"]);
    assert_eq!(signatures(&served), 2);
    served.signal("-TERM");
    let told = served.ended_saying();
    assert!(!told.contains("s3cret") && !told.contains("C2FV"), "{told}");
}
