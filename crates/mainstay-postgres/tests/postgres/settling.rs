//! Batches of settlements that the server cancels again and again.

use std::sync::Arc;

use mainstay_core::outbox::Message;
use mainstay_core::queue::{Context, Status};
use mainstay_core::runtime::Mainstay;
use mainstay_tests::eventually;
use tokio::sync::Barrier;

use crate::support::{DEADLINE, Fixture};

/// Cancels each statement that ends a message with the payload `bad`, as a limit of its time does that no batch with it keeps.
const CANCEL: &str = "\
    create function infra.cancel() returns trigger language plpgsql as \
        $$ begin raise 'canceling statement due to statement timeout' using errcode = '57014'; end $$;
    create trigger cancel before delete on infra.outbox for each row when (old.payload = 'bad') execute function infra.cancel()";

#[tokio::test]
async fn an_item_whose_settle_is_cancelled_each_time_holds_up_no_other() {
    const MANY: usize = 12;
    let fixture = Fixture::new().await;
    let client = fixture.database.client().await;
    client.batch_execute(CANCEL).await.unwrap();
    for number in 0..MANY {
        fixture.enqueue(if number == 7 { "bad" } else { "good" }).await;
    }
    // All wait for the last, so that they are settled together.
    let barrier = Arc::new(Barrier::new(MANY));
    let together = move |_: Context| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
        }
    };
    let mainstay = Mainstay::builder_over(Arc::new(fixture.postgres.clone()))
        .outbox(|outbox| outbox.raw_handler("t", together).raw_handler("later", async |_: Context| {}))
        .build()
        .unwrap();
    let running = mainstay.start().await.unwrap();
    eventually(DEADLINE, "all but one are settled", async || fixture.open().await == 1).await;
    let later = fixture.outbox.enqueue(Message::new("later", "")).await.unwrap().work_item;
    eventually(DEADLINE, "a later one is settled", async || {
        fixture.outbox.get(later).await.unwrap().unwrap().status == Status::Done
    })
    .await;
    client.batch_execute("drop trigger cancel on infra.outbox").await.unwrap();
    eventually(DEADLINE, "the last is settled", async || fixture.open().await == 0).await;
    let deliveries =
        "select count(*), max(attempts) from infra.outbox_history where topic = 't' and status = 2";
    let row = client.query_one(deliveries, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i32>(1)), (MANY as i64, 1), "each was delivered once");
    running.stop().await.unwrap();
    fixture.end().await;
}
