//! tokio-postgres: its transactions, and its client within a transaction begun by hand.

use mainstay_core::Result;
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::OutboxStore;
use tokio_postgres::{Client, Transaction};

use crate::addition::Addition;
use crate::queue::PostgresQueue;
use crate::session::Session;
use crate::statements::QueueStatements;

/// Marks the types of tokio-postgres.
#[derive(Debug)]
pub struct TokioPostgres;

impl EnqueueIn<TokioPostgres> for Transaction<'_> {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(Session::Unnamed(self.client()), PostgresQueue::of(store)?.statements(), messages).await
    }
}

impl EnqueueIn<TokioPostgres> for Client {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(Session::Unnamed(self), PostgresQueue::of(store)?.statements(), messages).await
    }
}

/// Enqueues in whatever transaction the connection is in.
pub(crate) async fn enqueue_on(
    session: Session<'_>,
    statements: &QueueStatements,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>> {
    match messages {
        [] => Ok(Vec::new()),
        messages => Addition::new(messages).on(session, statements).await,
    }
}
