//! The topic `join.wait`, for programs that were written for it.

use std::time::Duration;

use mainstay_core::join::{JOIN_WAIT, JoinState, NewJoin, Step, WaitOptions};
use mainstay_core::outbox::Message;
use mainstay_core::queue::{FailureReason, Status};
use mainstay_core::runtime::{Mainstay, RunningMainstay};
use mainstay_core::{JoinId, WorkItemId};

use super::joins::{of, of_topic};
use crate::case::cases;
use crate::fixture::Fixture;
use crate::world::World;

cases! { $ join_wait_cases:
    join_050_a_wait_for_an_unknown_join_fails_the_message ["JOIN-050"],
    join_051_an_unfinished_join_puts_the_message_back ["JOIN-051", "JOIN-052", "JOIN-053", "JOIN-056"],
    join_054_a_failed_join_enqueues_the_failure_continuation ["JOIN-054", "JOIN-053", "JOIN-055"],
    join_055_many_waits_for_one_join_continue_once_each ["JOIN-055", "JOIN-056"],
    join_057_a_wait_without_a_continuation_is_acked_alone ["JOIN-057"],
    join_050_a_payload_that_can_t_be_read_fails_the_message ["JOIN-050"],
}

/// A worker that handles `join.wait`, with short pauses.
async fn waiting(world: &World<'_>) -> RunningMainstay {
    let mut options = WaitOptions::default();
    options.pause = Duration::from_millis(20);
    let mainstay = Mainstay::builder_over(world.provider.clone())
        .outbox(|outbox| {
            outbox
                .retention(None)
                .reap_every(None)
                .gauges_every(None)
                .options(|options| {
                    options.poll_min = Duration::from_millis(10);
                    options.poll_max = Duration::from_millis(50);
                })
                // Somewhere for this process to begin; nothing is sent there.
                .raw_handler("unused", |_| async {})
        })
        .inbox(|inbox| inbox.retention(None).reap_every(None).gauges_every(None))
        .joins(|joins| joins.wait(Some(options)).retention(None).gauges_every(None))
        .build();
    mainstay.unwrap().start().await.unwrap()
}

async fn until_settled(world: &World<'_>, id: WorkItemId) {
    world
        .until("the waiting message has ended", async |world: &World<'_>| {
            matches!(world.row(id).await.status, Status::Done | Status::Failed)
        })
        .await;
}

/// A join of one step that has ended so.
async fn ended(world: &World<'_>, step: Step) -> JoinId {
    let joins = world.joins();
    let id = joins.start(NewJoin::new(1)).await.unwrap();
    let item = WorkItemId::new();
    joins.attach(id, &[item]).await.unwrap();
    joins.report(id, item, step).await.unwrap();
    id
}

async fn join_050_a_wait_for_an_unknown_join_fails_the_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let running = waiting(&world).await;
    let unknown = JoinId::new();
    let id = world
        .enqueue(Message::new(JOIN_WAIT, format!(r#"{{"joinId":"{unknown}","onFailTopic":"x"}}"#)))
        .await;
    until_settled(&world, id).await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.reason, row.attempts), (Status::Failed, Some(FailureReason::Handler), 1));
    assert!(row.last_error.unwrap().contains(&unknown.to_string()));
    assert_eq!(of_topic(&world, "x").await.len(), 0);
}

async fn join_051_an_unfinished_join_puts_the_message_back(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let join = joins.start(NewJoin::new(2)).await.unwrap();
    let items = [WorkItemId::new(), WorkItemId::new()];
    joins.attach(join, &items).await.unwrap();
    let running = waiting(&world).await;
    let payload = format!(
        r#"{{"JoinId":"{join}","OnCompleteTopic":"next","OnCompletePayload":{{"a":1}},"onFailTopic":"never"}}"#
    );
    let id = world.enqueue(Message::new(JOIN_WAIT, payload).correlation("request-1")).await;
    // It is looked at more often than a message may be delivered, and is still there.
    world.until("it was looked at often", async |world: &World<'_>| world.row(id).await.claims() > 12).await;
    joins.report(join, items[0], Step::Completed).await.unwrap();
    let row = world.row(id).await;
    assert!(matches!(row.status, Status::Ready | Status::InProgress), "{row:?}");
    assert!(row.attempts <= 1, "waiting uses up no attempts: {row:?}");
    joins.report(join, items[1], Step::Completed).await.unwrap();
    until_settled(&world, id).await;
    running.stop().await.unwrap();
    let row = world.row(id).await;
    assert_eq!((row.status, row.attempts), (Status::Done, 1));
    let next = of_topic(&world, "next").await;
    assert_eq!(next.len(), 1);
    assert_eq!(
        (next[0].payload.as_deref(), next[0].correlation_id.as_deref()),
        (Some(r#"{"a":1}"#), Some("request-1"))
    );
    assert_eq!(next[0].headers.get("mainstay-join"), Some(&join.to_string()));
    assert_eq!(of_topic(&world, "never").await.len(), 0);
}

async fn join_054_a_failed_join_enqueues_the_failure_continuation(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let joins = world.joins();
    let failed = ended(&world, Step::Failed).await;
    let cancelled = joins.start(NewJoin::new(1)).await.unwrap();
    joins.cancel(cancelled).await.unwrap();
    assert_eq!(of(&joins, cancelled).await.state, JoinState::Cancelled);
    let payload = |join: JoinId, mind: &str| {
        format!(
            r#"{{"joinId":"{join}"{mind},"onCompleteTopic":"well","onCompletePayload":"text","onFailTopic":"badly"}}"#
        )
    };
    let mut ids = Vec::new();
    for text in [
        payload(failed, ""),
        payload(failed, r#","failIfAnyStepFailed":true"#),
        payload(failed, r#","failIfAnyStepFailed":false"#),
        payload(cancelled, r#","failIfAnyStepFailed":false"#),
    ] {
        ids.push(world.enqueue(Message::new(JOIN_WAIT, text)).await);
    }
    let running = waiting(&world).await;
    for id in &ids {
        until_settled(&world, *id).await;
    }
    running.stop().await.unwrap();
    for id in ids {
        assert_eq!(world.row(id).await.status, Status::Done);
    }
    let well = of_topic(&world, "well").await;
    assert_eq!(
        well.iter().map(|row| row.payload.as_deref()).collect::<Vec<_>>(),
        [Some("text")],
        "told not to mind"
    );
    let badly = of_topic(&world, "badly").await;
    assert_eq!(badly.iter().map(|row| row.payload.as_deref()).collect::<Vec<_>>(), [Some(""); 3]);
}

async fn join_055_many_waits_for_one_join_continue_once_each(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let join = ended(&world, Step::Completed).await;
    let payload = format!(r#"{{"joinId":"{join}","onCompleteTopic":"next"}}"#);
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(world.enqueue(Message::new(JOIN_WAIT, payload.clone())).await);
    }
    // Two workers at once.
    let (one, other) = (waiting(&world).await, waiting(&world).await);
    for id in ids {
        until_settled(&world, id).await;
    }
    one.stop().await.unwrap();
    other.stop().await.unwrap();
    assert_eq!(of_topic(&world, "next").await.len(), 20);
}

async fn join_057_a_wait_without_a_continuation_is_acked_alone(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let (completed, failed) = (ended(&world, Step::Completed).await, ended(&world, Step::Failed).await);
    let running = waiting(&world).await;
    let one = world
        .enqueue(Message::new(JOIN_WAIT, format!(r#"{{"joinId":"{completed}","onFailTopic":"never"}}"#)))
        .await;
    let other = world
        .enqueue(Message::new(JOIN_WAIT, format!(r#"{{"joinId":"{failed}","onCompleteTopic":"never"}}"#)))
        .await;
    for id in [one, other] {
        until_settled(&world, id).await;
        assert_eq!(world.row(id).await.status, Status::Done);
    }
    running.stop().await.unwrap();
    assert_eq!((of_topic(&world, "never").await.len(), world.total().await), (0, 2));
}

async fn join_050_a_payload_that_can_t_be_read_fails_the_message(fx: &dyn Fixture) {
    let world = World::open(fx).await;
    let running = waiting(&world).await;
    for payload in ["", "{}", r#"{"joinId":"secret-word"}"#] {
        let id = world.enqueue(Message::new(JOIN_WAIT, payload)).await;
        until_settled(&world, id).await;
        let row = world.row(id).await;
        assert_eq!((row.status, row.attempts), (Status::Failed, 1));
        assert!(!row.last_error.unwrap().contains("secret"), "the payload is not quoted");
    }
    running.stop().await.unwrap();
}
