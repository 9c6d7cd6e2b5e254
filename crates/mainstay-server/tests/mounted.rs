//! The router within an application's own.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::{Application, ask, post};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use axum::routing::get;
use mainstay_core::runtime::Mainstay;
use mainstay_server::{Access, Interface, NewToken, Role, Token};
use mainstay_sqlite::Sqlite;
use serde_json::{Value, json};

async fn application(access: Access) -> Router {
    let router = Application::new(access).await.router;
    Router::new().route("/", get(|| async { "the shop" })).nest("/mainstay", router)
}

fn enqueue(token: Option<&str>) -> Request<Body> {
    let mut request =
        Request::post("/mainstay/v1/outbox/messages").header(header::CONTENT_TYPE, "application/json");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    request.body(r#"{"topic":"t"}"#.into()).unwrap()
}

#[tokio::test]
async fn it_answers_below_its_own_path_and_nowhere_else() {
    let application = application(Access::anyone()).await;
    let (answer, body) = ask(&application, enqueue(None)).await;
    assert_eq!(answer.status(), StatusCode::CREATED, "{body}");
    // Relative, so that it leads to the message wherever the router is mounted.
    let id = serde_json::from_str::<Value>(&body).unwrap()["id"].as_str().unwrap().to_owned();
    assert_eq!(answer.headers()[header::LOCATION], format!("messages/{id}"));
    let look = Request::get(format!("/mainstay/v1/outbox/messages/{id}")).body(Body::empty()).unwrap();
    assert_eq!(ask(&application, look).await.0.status(), StatusCode::OK);
    let (answer, body) = ask(&application, Request::get("/").body(Body::empty()).unwrap()).await;
    assert_eq!((answer.status(), body.as_str()), (StatusCode::OK, "the shop"));
    let (answer, body) =
        ask(&application, Request::get("/mainstay/nothing").body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert!(body.contains("urn:mainstay:problem:not-found"), "{body}");
    // The application publishes its own.
    let metrics = Request::get("/mainstay/metrics").body(Body::empty()).unwrap();
    assert_eq!(ask(&application, metrics).await.0.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn its_tokens_hold_there_too() {
    let token = NewToken::generate().unwrap();
    let access = Access::nobody().token(Token::new("shop", Role::Operator, token.hash()).unwrap());
    let application = application(access).await;
    assert_eq!(ask(&application, enqueue(None)).await.0.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(&application, enqueue(Some("mst_wrong"))).await.0.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(ask(&application, enqueue(Some(token.reveal()))).await.0.status(), StatusCode::CREATED);
}

#[tokio::test]
async fn nobody_in_particular_is_refused_when_it_is_built() {
    let mainstay = Mainstay::builder(Sqlite::memory().await.unwrap()).build().unwrap();
    assert!(Interface::builder(mainstay, Access::nobody()).build().is_err());
}

/// Whoever gives a key relies on it.
#[tokio::test]
async fn an_idempotency_key_has_an_effect_or_is_refused() {
    let application = Application::new(Access::anyone()).await;
    let keyed = |path: &str, body: &Value| {
        let mut request = post(path, body);
        request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        request
    };
    let message = json!({"topic": "t"});
    for (path, body) in [
        ("/v1/outbox/messages/batch", json!({"messages": [message]})),
        ("/v1/jobs/nightly/trigger", json!({})),
        ("/v1/joins", json!({"expected": 1, "on_completed": message})),
        ("/v1/operations", json!({"name": "o"})),
        ("/v1/inbox/messages", json!({"source": "s", "message_id": "1", "topic": "t"})),
    ] {
        let (answer, body) = application.ask(keyed(path, &body)).await;
        assert_eq!(answer.status(), StatusCode::UNPROCESSABLE_ENTITY, "{path}: {body}");
        assert!(body.contains("Idempotency-Key must not be given here"), "{path}: {body}");
    }
    let mut statuses = Vec::new();
    for _ in 0..2 {
        statuses.push(application.ask(keyed("/v1/outbox/messages", &message)).await.0.status());
    }
    assert_eq!(statuses, [StatusCode::CREATED, StatusCode::OK]);
}
