//! What one answer may be: so many bytes, so much time, and nothing that a cache keeps.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use std::time::Duration;

use application::Application;
use axum::body::Body;
use axum::http::{Request, header};
use mainstay_server::{Access, Limits};
use serde_json::{Value, json};

/// Answers of four of these, and requests of one.
const BODY: usize = 4 << 10;

async fn small() -> Application {
    let mut limits = Limits::default();
    limits.body_bytes = BODY;
    Application::with(Access::anyone(), limits).await
}

fn payload() -> String {
    "x".repeat(3 << 10)
}

#[tokio::test]
async fn a_claim_hands_out_what_fits_and_gives_the_rest_back_uncounted() {
    let application = small().await;
    for _ in 0..8 {
        let message = json!({"topic": "t", "payload": payload()});
        assert_eq!(application.post("/v1/outbox/messages", message).await.0, 201);
    }
    let (mut handed, mut claims) = (0, 0);
    while handed < 8 {
        let (status, claimed) = application.post("/v1/outbox/claims", json!({"batch": 100})).await;
        let items = claimed["items"].as_array().unwrap();
        assert!(status == 200 && (1..=5).contains(&items.len()), "{}", items.len());
        assert!(items.iter().all(|item| item["attempt"] == 1), "what was given back was no delivery");
        (handed, claims) = (handed + items.len(), claims + 1);
    }
    assert_eq!((handed, claims), (8, 2));
}

#[tokio::test]
async fn a_page_of_jobs_ends_early_where_payloads_are_large() {
    let application = small().await;
    for number in 0..50 {
        let job = json!({"topic": "t", "cron": "0 2 * * *", "payload": payload()});
        let path = format!("/v1/jobs/j-{number:02}");
        let request = Request::put(&path).header(header::CONTENT_TYPE, "application/json");
        let (answer, body) = application.ask(request.body(job.to_string().into()).unwrap()).await;
        assert!(answer.status().is_success(), "{body}");
    }
    let (mut names, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let (status, page) = application.get(&format!("/v1/jobs?limit=1000{cursor}")).await;
        let items = page["items"].as_array().unwrap();
        assert!(status == 200 && items.len() <= 20, "{}", items.len());
        names.extend(items.iter().map(|job| job["name"].as_str().unwrap().to_owned()));
        pages += 1;
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, (0..50).map(|number| format!("j-{number:02}")).collect::<Vec<_>>());
    assert_eq!(pages, 3);
    let few = application.get("/v1/jobs?limit=2").await.1;
    assert_eq!(few["items"].as_array().unwrap().len(), 2);
    assert!(few["next_cursor"].is_string());
}

#[tokio::test]
async fn a_request_has_the_time_that_it_asks_to_wait_for_beside_its_own() {
    let mut limits = Limits::default();
    limits.request_timeout = Duration::from_millis(200);
    let application = Application::with(Access::anyone(), limits).await;
    let (status, claimed) = application.post("/v1/outbox/claims", json!({"wait_seconds": 0.5})).await;
    assert_eq!((status, &claimed["items"]), (200, &json!([])), "{claimed}");
}

#[tokio::test]
async fn no_cache_keeps_a_payload_and_who_has_it_is_not_sent_it_again() {
    let application = Application::new(Access::anyone()).await;
    let message = json!({"topic": "t", "payload_json": Value::Null});
    let id = application.post("/v1/outbox/messages", message).await.1["id"].clone();
    let path = format!("/v1/outbox/messages/{}", id.as_str().unwrap());
    for (path, caching) in [(path.as_str(), "no-store"), ("/openapi.json", "private, no-cache")] {
        let ask = |tag: Option<header::HeaderValue>| {
            let mut request = Request::get(path).body(Body::empty()).unwrap();
            request.headers_mut().extend(tag.map(|tag| (header::IF_NONE_MATCH, tag)));
            application.ask(request)
        };
        let (answer, body) = ask(None).await;
        assert_eq!(answer.headers()[header::CACHE_CONTROL], caching, "{path}");
        assert!(answer.status() == 200 && !body.is_empty());
        let (again, body) = ask(Some(answer.headers()[header::ETAG].clone())).await;
        assert_eq!((again.status().as_u16(), body.as_str()), (304, ""), "{path}");
    }
    assert_eq!(application.get(&path).await.1["payload"], "null");
}
