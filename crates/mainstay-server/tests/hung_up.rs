//! What is taken for a client who has hung up is there for the next one.

#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod application;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use application::{Application, PATIENCE, post};
use axum::body::to_bytes;
use mainstay_server::Access;
use mainstay_tests::eventually;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Asks once for each moment at which a client may hang up, later each time, until one stays long enough to be answered. Which that
/// was, and the answer.
async fn hang_up_at_every_moment(
    application: &Application,
    asked: impl Fn(usize) -> (String, Value),
) -> (usize, Value) {
    for moment in 0..1_000 {
        let (path, body) = asked(moment);
        let answer = application.router.clone().oneshot(post(&path, &body));
        if let Some(answer) = polled(answer, moment).await {
            let body = to_bytes(answer.unwrap().into_body(), usize::MAX).await.unwrap();
            return (moment, serde_json::from_slice(&body).unwrap());
        }
    }
    panic!("there was no answer");
}

/// Polls a future so many times, each time it is woken, and drops it when it is woken once more.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let (mut future, mut count) = (pin!(future), 0);
    poll_fn(|context| {
        if count == times {
            return Poll::Ready(None);
        }
        count += 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[tokio::test]
async fn leases_are_free_again() {
    let application = Application::new(Access::anyone()).await;
    let asked = |moment| (format!("/v1/leases/l-{moment}/acquire"), json!({"duration_seconds": 86_400}));
    let (answered, _) = hang_up_at_every_moment(&application, asked).await;
    // The last one was answered, and is held.
    let held = json!([format!("l-{answered}")]);
    eventually(PATIENCE, "only the lease of the one who was answered is held", async || {
        let (_, page) = application.get("/v1/leases?held=true").await;
        page["items"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect::<Value>() == held
    })
    .await;
    // Those that were dropped before they were asked for are none.
    assert!(answered > 1, "{answered}");
}

#[tokio::test]
async fn received_messages_are_new_again() {
    let application = Application::new(Access::anyone()).await;
    let reserve =
        |moment: usize| json!({"source": "s", "message_id": moment.to_string(), "lease_seconds": 86_400});
    let path = "/v1/inbox/reservations";
    let (answered, _) =
        hang_up_at_every_moment(&application, |moment| (path.to_owned(), reserve(moment))).await;
    for moment in 0..answered {
        let begun = std::cell::RefCell::new(Value::Null);
        eventually(PATIENCE, "a message of somebody who hung up is new", async || {
            let answer = application.post(path, reserve(moment)).await.1;
            let new = answer["outcome"] == "new";
            begun.replace(answer);
            new
        })
        .await;
        assert_eq!(begun.borrow()["attempt"], 1, "nobody has tried it");
    }
    assert_eq!(application.post(path, reserve(answered)).await.1["outcome"], "busy");
}

#[tokio::test]
async fn messages_are_claimed_again_as_if_for_the_first_time() {
    let application = Application::new(Access::anyone()).await;
    let (status, _) = application.post("/v1/outbox/messages", json!({"topic": "t"})).await;
    assert_eq!(status, 201);
    let claim = |_| ("/v1/outbox/claims".to_owned(), json!({"lease_seconds": 86_400, "wait_seconds": 50}));
    // A claim that was given back wakes the next one. What stayed claimed would keep it waiting for ever.
    let (_, claimed) = hang_up_at_every_moment(&application, claim).await;
    assert_eq!(claimed["items"][0]["attempt"], 1, "{claimed}");
}
