//! Who may do what through `mainstay serve`, and what the audit trail has of it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by them")]

mod program;
mod served;

use mainstay_tests::TestDatabase;
use program::Program;
use serde_json::{Value, json};
use served::Served;

/// A token of a role, and its lines in the configuration.
fn token(program: &Program, role: &str) -> (String, String) {
    let made =
        program.run(&["token", "new", &format!("the-{role}"), "--role", role, "--json"]).succeeded().json();
    let line =
        format!("[[serve.token]]\nname = \"the-{role}\"\nrole = \"{role}\"\nhash = {}\n", made["hash"]);
    (made["token"].as_str().unwrap().to_owned(), line)
}

#[test]
fn each_role_may_do_its_own() {
    let program = Program::new();
    let (viewer, one) = token(&program, "viewer");
    let (operator, two) = token(&program, "operator");
    let (admin, three) = token(&program, "admin");
    program.write("mainstay.toml", &(one + &two + &three));
    let mut served = Served::start(&program, &[]);

    let nobody = served.get("/v1/stats");
    nobody.problem(401, "unauthenticated");
    assert!(nobody.header("www-authenticate").unwrap().starts_with("Bearer"));
    served.get("/metrics").problem(401, "unauthenticated");
    // Probes have no token, and are told no words.
    let health = served.get("/health").json(200);
    assert_eq!(
        (&health["status"], &health["stores"][0]["checks"][0]["summary"]),
        (&json!("healthy"), &Value::Null)
    );

    served.use_token(Some(&operator));
    let secret = json!({"topic": "t", "payload": "s3cret", "headers": {"authorization": "s3cret"}});
    let id = served.post("/v1/outbox/messages", secret).json(201)["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/outbox/messages/{id}");
    assert_eq!(served.get(&path).json(200)["payload"], "s3cret");
    served.ask("PUT", "/v1/jobs/j", &[], Some(r#"{"topic":"t","cron":"@daily"}"#)).problem(403, "forbidden");

    served.use_token(Some(&viewer));
    for path in [path.as_str(), "/v1/outbox/messages"] {
        let seen = served.get(path);
        assert!(seen.status == 200 && !seen.body.contains("s3cret"), "{}", seen.body);
    }
    assert_eq!(served.get(&path).json(200)["hidden"], true);
    served.post("/v1/outbox/messages", json!({"topic": "t"})).problem(403, "forbidden");
    served.post("/v1/outbox/claims", json!({})).problem(403, "forbidden");
    assert!(served.get("/metrics").body.contains("mainstay_http_requests_total"));
    assert!(served.get("/health").json(200)["stores"][0]["checks"][0]["summary"].is_string());

    served.use_token(Some(&admin));
    let put = r#"{"topic":"t","cron":"@daily","payload":"s3cret"}"#;
    served.ask("PUT", "/v1/jobs/j", &[("X-Request-Id", "r-7")], Some(put)).json(200);
    let trail = served.get("/v1/audit?actor=token:the-admin").json(200);
    assert_eq!(trail["items"][0]["correlation_id"], "r-7", "{trail}");
    assert!(!trail.to_string().contains("s3cret"));
    served.use_token(Some(&viewer));
    assert!(!served.get("/v1/jobs").body.contains("s3cret"));
}

#[test]
fn wrong_tokens_are_refused_and_after_many_told_to_wait() {
    wrong_tokens(&Program::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_refused_on_postgres_too() {
    let database = TestDatabase::create(None).await;
    let program = Program::new().with_variable("MAINSTAY_DATABASE", database.url());
    let checked = tokio::task::spawn_blocking(move || {
        program.run(&["migrate"]).succeeded();
        wrong_tokens(&program);
    });
    checked.await.unwrap();
}

fn wrong_tokens(program: &Program) {
    let (right, line) = token(program, "viewer");
    program.write("mainstay.toml", &line);
    let mut served = Served::start(program, &[]);
    served.use_token(Some("mst_wrong"));
    for _ in 0..10 {
        served.get("/v1/stats").problem(401, "unauthenticated");
    }
    let wait = served.get("/v1/stats");
    wait.problem(429, "too-many-failures");
    assert_eq!(wait.header("retry-after"), Some("60"));
    // Whoever has a right one is not made to pay for others behind the same address.
    served.use_token(Some(&right));
    served.get("/v1/stats").json(200);
}

#[test]
fn it_does_not_listen_for_everybody_without_authentication() {
    let program = Program::new();
    program.run(&["serve", "--listen=0.0.0.0:0"]).failed(2, &["without authentication", "token new"]);
    program.write("mainstay.toml", "[serve]\nlisten = \"[::]:0\"\n");
    program.run(&["serve"]).failed(2, &["without authentication"]);
    program
        .write("mainstay.toml", "[[serve.token]]\nname = \"x\"\nrole = \"admin\"\nhash = \"mst_s3cret\"\n");
    let told = program.run(&["serve"]).failed(2, &["hash", "token new"]);
    assert!(!told.stderr.contains("s3cret"), "{}", told.stderr);
}

#[test]
fn a_proxy_names_people() {
    let program = Program::new();
    let proxy = "[serve.proxy]\naddresses = [\"127.0.0.1\"]\nheader = \"X-User\"\nothers = \"viewer\"\nroles = { alice = \"admin\" }\n";
    program.write("mainstay.toml", proxy);
    let served = Served::start(&program, &[]);
    let put = Some(r#"{"topic":"t","cron":"@daily"}"#);
    served.ask("PUT", "/v1/jobs/j", &[("X-User", "alice")], put).json(200);
    served.ask("PUT", "/v1/jobs/j", &[("X-User", "bob")], put).problem(403, "forbidden");
    served.ask("GET", "/v1/jobs/j", &[("X-User", "bob")], None).json(200);
    served.get("/v1/jobs/j").problem(401, "unauthenticated");
    let trail = served.ask("GET", "/v1/audit?actor=user:alice", &[("X-User", "bob")], None).json(200);
    assert_eq!(trail["items"].as_array().unwrap().len(), 1, "{trail}");
}

#[test]
fn it_speaks_tls() {
    let program = Program::new();
    program.make_certificate();
    let served = Served::start(&program, &["--tls-certificate=certificate.pem", "--tls-key=key.pem"]);
    let port = served.address().rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{port}");
    let mut probe = program.command(&["health", "--url", &url, "--json"]);
    let report = program::Ran::of(probe.env("SSL_CERT_FILE", "certificate.pem").output().unwrap());
    assert_eq!(report.succeeded().json()["status"], "healthy");
    let trusting = ["health", "--url", &url, "--ca-file", "certificate.pem", "--json"];
    assert_eq!(program.run(&trusting).succeeded().json()["status"], "healthy");
    program.run(&["health", "--url", &url, "--ca-file", "key.pem"]).failed(2, &["ca_file", "key.pem"]);
    program.run(&["health", "--ca-file", "certificate.pem"]).failed(2, &["--url"]);
    program.run(&["health", "--url", &url]).failed(3, &["can't be asked"]);
    program.run(&["health", "--url", &served.url()]).failed(3, &["can't be asked"]);
    served.stop();
    let missing = ["serve", "--tls-certificate=nowhere.pem", "--tls-key=key.pem"];
    program.run(&missing).failed(2, &["nowhere.pem"]);
    program.run(&["serve", "--tls-certificate=key.pem", "--tls-key=key.pem"]).failed(2, &["no certificate"]);
}
