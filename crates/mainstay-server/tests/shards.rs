//! Shards of fan-outs are those that somebody planned.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::{Application, ask};
use axum::http::{Request, header};
use mainstay_server::Access;
use serde_json::json;

#[tokio::test]
async fn what_nobody_planned_is_not_completed() {
    let application = Application::new(Access::anyone()).await;
    let shards = "/v1/fanouts/etl/payments/shards";
    let complete = |shard: &str, at: &str| {
        let (path, body) = (format!("{shards}/{shard}/complete"), json!({"at": at}));
        let application = &application;
        async move { application.post(&path, body).await }
    };
    let past = "2020-01-01T00:00:00Z";
    assert_eq!(complete("a", past).await.0, 404);
    assert_eq!(application.get(shards).await.0, 404);
    let define = Request::put("/v1/fanouts/etl/payments").header(header::CONTENT_TYPE, "application/json");
    let define = define.body(r#"{"every_seconds":600}"#.into()).unwrap();
    assert_eq!(ask(&application.router, define).await.0.status().as_u16(), 200);
    assert_eq!(complete("a", past).await.0, 404);
    assert_eq!(application.get(shards).await.1["items"], json!([]), "there is none, and no cursor is left");
    assert_eq!(application.post(shards, json!({"shards": ["a"]})).await.0, 200);
    let (status, problem) = complete("a", "9998-01-01T00:00:00Z").await;
    assert_eq!((status, &problem["errors"][0]["field"]), (422, &json!("at")), "{problem}");
    assert_eq!(complete("a", past).await, (200, json!({"changed": true})));
}
