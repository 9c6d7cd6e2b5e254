//! What the tests share.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::OwnerToken;
use mainstay_core::outbox::{Message, Outbox};
use mainstay_core::queue::{ClaimBatch, ClaimRequest};
use mainstay_core::store::{OutboxStore, Provider};
use mainstay_postgres::Postgres;
use mainstay_tests::{TestDatabase, template_database};
use tokio_postgres::Client;

/// Long enough for a loaded machine; a condition that holds is seen at once.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A database with the schema in it.
pub(crate) async fn database() -> TestDatabase {
    let script = Postgres::connect("postgres://nobody@localhost").await.unwrap().schema().script();
    let template = template_database("postgres", &script, async |url: String| {
        let postgres = Postgres::connect(&url).await.unwrap();
        postgres.schema().deploy().await.unwrap();
        postgres.close().await;
    });
    TestDatabase::create(Some(&template.await)).await
}

/// A database with the schema in it, its provider and its outbox.
pub(crate) struct Fixture {
    pub(crate) postgres: Postgres,
    pub(crate) outbox: Outbox,
    pub(crate) store: Arc<dyn OutboxStore>,
    // Dropped last, when nobody uses it any more.
    pub(crate) database: TestDatabase,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = database().await;
        let postgres = Postgres::connect(&database.url()).await.unwrap();
        Self::with(database, postgres)
    }

    pub(crate) fn with(database: TestDatabase, postgres: Postgres) -> Self {
        let store = postgres.outbox();
        Self { outbox: Outbox::new(Arc::clone(&store)), store, postgres, database }
    }

    /// Lets go of all connections before the database goes: while that is dropped nothing else runs on this thread, and a
    /// connection that is just being made would keep the server waiting for its other half.
    pub(crate) async fn end(self) {
        self.postgres.close().await;
        drop(self.database);
    }

    /// Enqueues a message with this payload.
    pub(crate) async fn enqueue(&self, payload: &str) {
        self.outbox.enqueue(Message::new("t", payload)).await.unwrap();
    }

    pub(crate) async fn claim(&self) -> ClaimBatch {
        self.outbox.claim(&ClaimRequest::new(OwnerToken::new())).await.unwrap()
    }

    /// How many messages are open.
    pub(crate) async fn open(&self) -> u64 {
        self.outbox.stats().await.unwrap().open()
    }
}

/// Whether somebody waits for a lock, in this database.
pub(crate) async fn somebody_waits(client: &Client) -> bool {
    let waits = "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')";
    client.query_one(waits, &[]).await.unwrap().get(0)
}
