//! What would let others act for a holder is told to nobody but the holder.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use application::Application;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainstay_core::WorkItemId;
use mainstay_core::outbox::{Message, OnFailure};
use mainstay_server::Access;
use serde_json::{Value, json};
use uuid::Uuid;

async fn why(application: &Application, id: WorkItemId) -> Value {
    let (status, why) = application.get(&format!("/v1/why/{id}")).await;
    assert_eq!(status, 200, "{why}");
    why
}

/// With the owner, anybody could write a claim of his own.
#[tokio::test]
async fn why_does_not_name_the_owner_of_a_claim() {
    let application = Application::new(Access::anyone()).await;
    let message = || Message::new("t", "").ordering_key("k").on_failure(OnFailure::Hold);
    let outbox = application.mainstay.outbox();
    let (first, second) = (
        outbox.enqueue(message()).await.unwrap().work_item,
        outbox.enqueue(message()).await.unwrap().work_item,
    );
    let owner = Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0007);
    let claimed = application.post("/v1/outbox/claims", json!({"owner": owner})).await.1;
    let told = why(&application, first).await;
    assert_eq!(told["why"]["because"], "claimed", "{told}");
    assert!(!told.to_string().contains(&owner.to_string()), "{told}");
    assert!(told["summary"].as_str().unwrap().starts_with("somebody works on it"), "{told}");
    // Which item holds a key is no secret.
    let fail = json!({"claims": [claimed["items"][0]["claim"]]});
    assert_eq!(application.post("/v1/outbox/claims/fail", fail).await.0, 200);
    let told = why(&application, second).await;
    assert_eq!((&told["why"]["because"], &told["why"]["by"]), (&json!("key_held"), &json!(first)), "{told}");
}

/// What logs, the audit trail and other processes read of a lease does not let them hold it.
#[tokio::test]
async fn the_owner_in_the_database_is_no_ticket() {
    let application = Application::new(Access::anyone()).await;
    let granted = application.post("/v1/leases/l/acquire", json!({"owner": "w"})).await.1;
    assert_eq!(granted["owner"], "http:anyone/w", "{granted}");
    let record = application.mainstay.leases().get("l").await.unwrap().unwrap();
    let stored = record.owner.unwrap();
    assert!(stored.starts_with("http:anyone/w ~"), "{stored}");
    let mark = stored.rsplit_once('~').unwrap().1;
    let epoch = granted["epoch"].as_i64().unwrap();
    for forged in [
        json!(["lease", ["l", "http:anyone/w", mark, epoch]]),
        json!(["lease", ["l", stored, null, epoch]]),
        json!(["lease", ["l", "http:anyone/w", null, epoch]]),
    ] {
        let ticket = URL_SAFE_NO_PAD.encode(forged.to_string());
        let (status, problem) = application.post("/v1/leases/l/release", json!({"lease": ticket})).await;
        assert!(status == 403 || status == 409, "{status}: {problem}");
    }
    let forced = application.post("/v1/leases/l/force-release", json!(null)).await.1;
    assert_eq!(forced["owner"], "http:anyone/w", "{forced}");
}
