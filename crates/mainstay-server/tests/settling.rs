//! Claims of several owners that are ended at once.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::Application;
use mainstay_server::Access;
use serde_json::{Value, json};
use uuid::Uuid;

/// A message that this owner has claimed: its claim and its id.
async fn claimed(application: &Application, owner: u128) -> (Value, Value) {
    application.post("/v1/outbox/messages", json!({"topic": "t"})).await;
    let owner = json!({"owner": Uuid::from_u128(owner)});
    let mut claimed = application.post("/v1/outbox/claims", owner).await.1;
    let item = claimed["items"][0].take();
    (item["claim"].clone(), item["id"].clone())
}

/// Owners come in order of their ids, so the wrong one is the last to be written.
#[tokio::test]
async fn what_is_wrong_is_told_before_anything_is_written() {
    let application = Application::new(Access::anyone()).await;
    let ((first, id), (second, _)) = (claimed(&application, 1).await, claimed(&application, 2).await);
    for (wrong, field) in [
        (json!({"claim": second, "outcome": "abandon", "delay_seconds": 0}), "settlements[1].delay_seconds"),
        (
            json!({"claim": second, "outcome": "release", "delay_seconds": 1e9}),
            "settlements[1].delay_seconds",
        ),
        (json!({"claim": second, "outcome": "ack", "error": "x"}), "settlements[1].error"),
        (json!({"claim": "nonsense", "outcome": "ack"}), "settlements[1].claim"),
    ] {
        let settle = json!({"settlements": [{"claim": first, "outcome": "ack"}, wrong]});
        let (status, problem) = application.post("/v1/outbox/claims/settle", settle).await;
        assert_eq!((status, &problem["errors"][0]["field"]), (422, &json!(field)), "{problem}");
        let path = format!("/v1/outbox/messages/{}", id.as_str().unwrap());
        assert_eq!(application.get(&path).await.1["status"], "in-progress", "{field}");
    }
    let both = json!({"settlements": [
        {"claim": first, "outcome": "ack"}, {"claim": second, "outcome": "abandon", "delay_seconds": 0.5},
    ]});
    let (status, settled) = application.post("/v1/outbox/claims/settle", both).await;
    assert_eq!((status, settled["changed"].as_array().unwrap().len()), (200, 2), "{settled}");
}
