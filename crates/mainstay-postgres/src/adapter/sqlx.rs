//! sqlx: its transactions, and its connections within a transaction begun by hand.

use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall};
use mainstay_core::{Error, ErrorKind, Result};
use sqlx::{AssertSqlSafe, PgConnection, Row, Transaction};

use super::{ENQUEUE, GUARD, enqueued, steps};
use crate::error::from_server;
use crate::lease::{IN_TRANSACTION, PostgresLeases};
use crate::parameters::addition_as_text;
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
    let (statement, columns) = addition_as_text(outbox.statements(), messages);
    // The statement is the crate's own, with quoted names; all data is bound.
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for column in columns {
        query = query.bind(column);
    }
    // A named statement would outlive the transaction, which a pooler does not allow.
    let rows =
        query.persistent(false).fetch_all(connection).await.map_err(|error| failed(ENQUEUE, &error))?;
    let read = |row: &sqlx::postgres::PgRow| {
        let text = |column| row.try_get::<&str, _>(column).map_err(|error| failed(ENQUEUE, &error));
        enqueued(text(0)?, text(1)?, row.try_get(2).map_err(|error| failed(ENQUEUE, &error))?)
    };
    rows.iter().map(read).collect()
}

impl GuardIn<Sqlx> for Transaction<'_, sqlx::Postgres> {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim).await
    }
}

impl GuardIn<Sqlx> for PgConnection {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let in_transaction = sqlx::raw_sql(IN_TRANSACTION).execute(&mut *self).await;
        in_transaction.map_err(|error| failed(GUARD, &error))?;
        guard_on(self, store, claim).await
    }
}

async fn guard_on(connection: &mut PgConnection, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
    let fail = |error| failed(GUARD, &error);
    let leases = PostgresLeases::of(store)?;
    let mut home = leases.home().await?;
    loop {
        let query = sqlx::query(AssertSqlSafe(leases.statements().guard_as_text.clone()))
            .bind(&claim.name)
            .bind(&claim.owner)
            .bind(claim.epoch.to_string())
            .bind(&home);
        let guarded = query.persistent(false).fetch_one(&mut *connection).await.map_err(fail)?;
        let found: String = guarded.try_get(0).map_err(fail)?;
        if found == home {
            return Ok(());
        }
        home = leases.moved_to(found).await?;
    }
}

impl CallIn<Sqlx> for Transaction<'_, sqlx::Postgres> {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self, call).await
    }
}

impl CallIn<Sqlx> for PgConnection {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        call_on(self, call).await
    }
}

async fn call_on(connection: &mut PgConnection, call: &StoreCall) -> Result<Vec<String>> {
    let fail = |error| failed(call.operation, &error);
    let mut answers = Vec::new();
    for (sql, arguments) in steps(call)? {
        let query =
            arguments.into_iter().fold(sqlx::query(AssertSqlSafe(sql)), |query, text| query.bind(text));
        for row in query.persistent(false).fetch_all(&mut *connection).await.map_err(fail)? {
            answers.push(row.try_get(0).map_err(fail)?);
        }
    }
    Ok(answers)
}

fn failed(operation: &'static str, error: &sqlx::Error) -> Error {
    match error {
        sqlx::Error::Database(server) => {
            from_server(operation, server.code().as_deref().unwrap_or_default(), server.message())
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            Error::new(ErrorKind::Internal, operation, error.to_string())
        }
        other => Error::new(ErrorKind::Unavailable, operation, format!("the connection broke off: {other}")),
    }
}
