//! Statements that are prepared once per connection.

use mainstay_core::outbox::Message;
use mainstay_postgres::Postgres;

use crate::schema::all_operations;
use crate::support::{Fixture, database};

async fn fixture() -> Fixture {
    let database = database().await;
    let postgres =
        Postgres::builder(&database.url()).pool_size(1).prepared_statements(true).connect().await.unwrap();
    Fixture::with(database, postgres)
}

#[tokio::test]
async fn everything_works_with_prepared_statements() {
    let fixture = fixture().await;
    all_operations(&fixture).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_message_in_the_callers_transaction_is_prepared_once() {
    let fixture = fixture().await;
    let mut client = fixture.postgres.pool().get().await.unwrap();
    for _ in 0..3 {
        let mut tx = client.transaction().await.unwrap();
        fixture.outbox.enqueue_in(&mut tx, Message::new("t", "p")).await.unwrap();
        tx.commit().await.unwrap();
    }
    let kept = client.query_one("select count(*) from pg_prepared_statements", &[]).await.unwrap();
    // Ours, and this one.
    assert_eq!(kept.get::<_, i64>(0), 2);
    drop(client);
    assert_eq!(fixture.open().await, 3);
    fixture.end().await;
}

#[tokio::test]
async fn statements_that_the_server_has_lost_are_prepared_anew() {
    let fixture = fixture().await;
    fixture.enqueue("one").await;
    let client = fixture.postgres.pool().get().await.unwrap();
    client.batch_execute("deallocate all").await.unwrap();
    drop(client);
    fixture.enqueue("two").await;
    // A function that returns other columns: the plans that are kept no longer fit.
    let client = fixture.database.client().await;
    let stats = "alter table infra.outbox_history add column extra text; alter table infra.outbox add column extra text";
    assert_eq!(fixture.claim().await.items.len(), 2);
    client.batch_execute(stats).await.unwrap();
    drop(client);
    assert!(fixture.outbox.stats().await.unwrap().in_progress == 2);
    assert!(fixture.claim().await.items.is_empty());
    fixture.end().await;
}
