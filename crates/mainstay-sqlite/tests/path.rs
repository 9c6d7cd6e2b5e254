//! One message from enqueue to done.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimRequest, Status};
use mainstay_core::store::Provider;
use mainstay_sqlite::Sqlite;

#[tokio::test]
async fn a_message_goes_from_enqueue_to_done() {
    let directory = tempfile::tempdir().unwrap();
    for sqlite in
        [Sqlite::memory().await.unwrap(), Sqlite::open(directory.path().join("app.db")).await.unwrap()]
    {
        sqlite.schema().deploy().await.unwrap();
        sqlite.schema().require().await.unwrap();
        let outbox = Outbox::new(sqlite.outbox());
        let enqueued = outbox.enqueue(Message::new("t", "a\0b").header("h", "v")).await.unwrap();
        let owner = OwnerToken::new();
        let batch = outbox.claim(&ClaimRequest::new(owner)).await.unwrap();
        assert_eq!(batch.items.len(), 1);
        assert_eq!(batch.items[0].payload, "a\0b");
        assert_eq!(batch.items[0].headers["h"], "v");
        let settled = outbox.ack(owner, &batch.handles()).await.unwrap();
        assert_eq!(settled.changed, [enqueued.work_item]);
        let message = outbox.get(enqueued.work_item).await.unwrap().unwrap();
        assert_eq!(message.status, Status::Done);
        assert_eq!(outbox.stats().await.unwrap().done, 1);
        sqlite.close().await;
    }
}
