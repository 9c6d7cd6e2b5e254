//! Requests that wait do not take the places of those that do not.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::Application;
use mainstay_server::{Access, Limits};
use serde_json::json;

#[tokio::test]
async fn one_more_than_may_wait_is_told_to_come_again() {
    let mut limits = Limits::default();
    limits.waiting = 0;
    let application = Application::with(Access::anyone(), limits).await;
    let claim = |seconds| application.post("/v1/outbox/claims", json!({"wait_seconds": seconds}));
    assert_eq!(claim(0).await.0, 200, "it does not wait");
    let (status, problem) = claim(5).await;
    assert_eq!((status, &problem["retryable"]), (503, &json!(true)), "{problem}");
    application.post("/v1/outbox/messages", json!({"topic": "t"})).await;
    assert_eq!(claim(5).await.1["items"][0]["topic"], "t", "there is no need to wait");
    let acquire = |seconds| application.post("/v1/leases/l/acquire", json!({"wait_seconds": seconds}));
    assert_eq!(acquire(5).await.0, 200);
    assert_eq!(acquire(0).await.0, 409);
    assert_eq!(acquire(5).await.0, 503);
}
