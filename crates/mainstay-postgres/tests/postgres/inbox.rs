//! Guards of the inbox while a worker takes the same message: his claim is not committed yet, so nobody sees it.

use mainstay_tests::eventually;

use crate::support::{DEADLINE, Fixture};

const GUARD: &str = "'shop', 'm', '00000000-0000-4000-8000-000000000001', 1";
const WORKER: &str = "'00000000-0000-4000-8000-000000000002'";

/// Asks something of a guard that has lapsed, while a worker is just claiming the message. True when it held.
async fn holds_while_a_worker_claims(asked: &str) -> bool {
    let fixture = Fixture::new().await;
    let (claiming, guarding) = (fixture.database.client().await, fixture.database.client().await);
    let reserve = "select infra.inbox_begin('shop', 'm', '00000000-0000-4000-8000-000000000001', 0.001)";
    guarding.batch_execute(reserve).await.unwrap();
    guarding.batch_execute("select infra.inbox_enqueue('shop', 'm', 't', 'payload')").await.unwrap();

    let claim = format!("select generation from infra.inbox_claim({WORKER}, 30, 10)");
    eventually(DEADLINE, "the reservation has lapsed, and a worker gets the message", async || {
        claiming.batch_execute("begin").await.unwrap();
        let claimed = claiming.query(&claim, &[]).await.unwrap().len() == 1;
        if !claimed {
            claiming.batch_execute("rollback").await.unwrap();
        }
        claimed
    })
    .await;
    let held = guarding.query_one(&format!("select {asked}"), &[]).await.unwrap().get(0);
    claiming.batch_execute("commit").await.unwrap();

    // Whatever the guard was told, the message is the worker's now.
    let ack = format!("select infra.inbox_ack({WORKER}, array(select id from infra.inbox))");
    assert_eq!(claiming.query(&ack, &[]).await.unwrap().len(), 1);
    let told = "select state, attempts, owner is null from infra.inbox_entry";
    let entry = claiming.query_one(told, &[]).await.unwrap();
    assert_eq!((entry.get::<_, i16>(0), entry.get::<_, i32>(1), entry.get::<_, bool>(2)), (2, 1, true));
    fixture.end().await;
    held
}

#[tokio::test]
async fn a_guard_does_not_complete_what_a_worker_is_just_claiming() {
    assert!(!holds_while_a_worker_claims(&format!("infra.inbox_guard_complete({GUARD})")).await);
}

#[tokio::test]
async fn a_guard_does_not_give_back_what_a_worker_is_just_claiming() {
    assert!(!holds_while_a_worker_claims(&format!("infra.inbox_guard_release({GUARD})")).await);
}

#[tokio::test]
async fn a_guard_does_not_renew_what_a_worker_is_just_claiming() {
    assert!(!holds_while_a_worker_claims(&format!("infra.inbox_guard_renew({GUARD}, 30) is not null")).await);
}
