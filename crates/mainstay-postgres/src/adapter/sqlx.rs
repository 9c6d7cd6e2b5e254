//! sqlx: its transactions, and its connections within a transaction begun by hand.

use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::OutboxStore;
use mainstay_core::{Error, ErrorKind, Result};
use sqlx::{AssertSqlSafe, PgConnection, Row, Transaction};

use super::{ENQUEUE, enqueued};
use crate::error::from_server;
use crate::parameters::many_as_text;
use crate::queue::PostgresQueue;

/// Marks the types of sqlx.
#[derive(Debug)]
pub struct Sqlx;

impl EnqueueIn<Sqlx> for Transaction<'_, sqlx::Postgres> {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(self, store, messages).await
    }
}

impl EnqueueIn<Sqlx> for PgConnection {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        enqueue_on(self, store, messages).await
    }
}

async fn enqueue_on(
    connection: &mut PgConnection,
    store: &dyn OutboxStore,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>> {
    let outbox = PostgresQueue::of(store)?;
    // The statement is the crate's own, with quoted names; all data is bound.
    let statement = AssertSqlSafe(outbox.statements().enqueue_many_as_text.clone());
    let mut query = sqlx::query(statement);
    for column in many_as_text(messages) {
        query = query.bind(column);
    }
    // A named statement would outlive the transaction, which a pooler does not allow.
    let rows = query.persistent(false).fetch_all(connection).await.map_err(|error| failed(&error))?;
    let read = |row: &sqlx::postgres::PgRow| {
        let text = |column| row.try_get::<&str, _>(column).map_err(|error| failed(&error));
        enqueued(text(0)?, text(1)?, row.try_get(2).map_err(|error| failed(&error))?)
    };
    rows.iter().map(read).collect()
}

fn failed(error: &sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(server) => {
            from_server(ENQUEUE, server.code().as_deref().unwrap_or_default(), server.message())
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            Error::new(ErrorKind::Internal, ENQUEUE, error.to_string())
        }
        other => Error::new(ErrorKind::Unavailable, ENQUEUE, format!("the connection broke off: {other}")),
    }
}
