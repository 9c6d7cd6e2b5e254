//! Lists of messages do not carry their payloads, unless somebody asks for a few.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::Application;
use mainstay_server::Access;
use serde_json::{Value, json};

#[tokio::test]
async fn payloads_are_told_by_id_or_few_at_a_time() {
    let application = Application::new(Access::anyone()).await;
    let message = json!({"topic": "t", "payload": "large", "due_in_seconds": 600});
    let id = application.post("/v1/outbox/messages", message.clone()).await.1["id"].clone();
    assert_eq!(application.post("/v1/timers", message).await.0, 201);
    let path = format!("/v1/outbox/messages/{}", id.as_str().unwrap());
    assert_eq!(application.get(&path).await.1["payload"], "large");
    for list in ["/v1/outbox/messages", "/v1/timers"] {
        assert_eq!(application.get(list).await.1["items"][0]["payload"], Value::Null, "{list}");
        let with = application.get(&format!("{list}?payload=true")).await.1;
        assert_eq!(with["items"][0]["payload"], "large", "{list}");
        let (status, problem) = application.get(&format!("{list}?payload=true&limit=21")).await;
        assert_eq!((status, &problem["errors"][0]["field"]), (422, &json!("limit")), "{problem}");
    }
}
