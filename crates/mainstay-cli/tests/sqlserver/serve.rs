//! `mainstay serve`: one message's way through it.

use serde_json::json;

use crate::harness::{Case, cases};
use crate::own_database::OwnDatabase;
use crate::served::Served;

pub(crate) const CASES: &[Case] = cases![a_message_goes_all_the_way];

fn a_message_goes_all_the_way() {
    let database = OwnDatabase::new();
    database.run(&["serve", "--listen=127.0.0.1:0"]).failed(1, &["schema", "--deploy"]);
    let served = Served::start(&database.program, &["--deploy"]);
    let message =
        r#"{"topic": "order.paid", "payload_json": {"order":7,"sum":1.10}, "correlation_id": "r-1"}"#;
    let enqueued = served.ask("POST", "/v1/outbox/messages", &[], Some(message)).json(201);
    let id = enqueued["id"].as_str().unwrap();
    let claimed = served.post("/v1/outbox/claims", json!({"wait_seconds": 30})).json(200);
    let item = &claimed["items"][0];
    assert_eq!((&item["id"], &item["attempt"]), (&json!(id), &json!(1)), "{claimed}");
    assert_eq!(item["payload"], r#"{"order":7,"sum":1.10}"#, "as it was written");
    let claims = json!({"claims": [item["claim"]]});
    assert_eq!(served.post("/v1/outbox/claims/renew", claims.clone()).json(200)["changed"], json!([id]));
    assert_eq!(served.post("/v1/outbox/claims/ack", claims.clone()).json(200)["changed"], json!([id]));
    served.post("/v1/outbox/claims/ack", claims).problem(409, "claim-lost");
    assert_eq!(served.get(&format!("/v1/outbox/messages/{id}")).json(200)["status"], "done");
    assert_eq!(served.get("/health").json(200)["status"], "healthy");
    assert_eq!(served.get("/health/ready").json(200)["stores"][0]["startup"]["state"], "running");

    // A timer that is due becomes a message while it runs.
    let timer = json!({"topic": "reminder", "due_in_seconds": 0});
    let timer = served.post("/v1/timers", timer).json(201);
    let claimed = served.post("/v1/outbox/claims", json!({"wait_seconds": 50})).json(200);
    assert_eq!(claimed["items"][0]["id"], timer["id"], "{claimed}");
    let url = served.url();
    let health = database.run(&["health", "--url", &url]);
    assert_eq!(health.code, 0, "{}{}", health.stdout, health.stderr);
    served.signal("-TERM");
    let told = served.ended_saying();
    assert!(!told.contains("ERROR"), "{told}");
}
