//! SeaORM: its transactions.

use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall};
use mainstay_core::{Error, ErrorKind, Result};
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, SqlxError, Statement,
    Value,
};

use super::{ENQUEUE, GUARD, enqueued, steps};
use crate::error::from_server;
use crate::lease::PostgresLeases;
use crate::parameters::{addition_as_text, array};
use crate::queue::PostgresQueue;

/// Marks the types of SeaORM.
#[derive(Debug)]
pub struct SeaOrm;

impl EnqueueIn<SeaOrm> for DatabaseTransaction {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let outbox = PostgresQueue::of(store)?;
        let backend = postgres(self, ENQUEUE)?;
        let (sql, columns) = addition_as_text(outbox.statements(), messages);
        let values = columns.into_iter().map(|column| Value::String(array(column)));
        let statement = Statement::from_sql_and_values(backend, sql, values);
        let rows = self.query_all_raw(statement).await.map_err(|error| failed(ENQUEUE, &error))?;
        let read = |row: &QueryResult| {
            let text =
                |column| row.try_get_by_index::<String>(column).map_err(|error| failed(ENQUEUE, &error));
            enqueued(&text(0)?, &text(1)?, row.try_get_by_index(2).map_err(|error| failed(ENQUEUE, &error))?)
        };
        rows.iter().map(read).collect()
    }
}

impl GuardIn<SeaOrm> for DatabaseTransaction {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let fail = |error| failed(GUARD, &error);
        let leases = PostgresLeases::of(store)?;
        let backend = postgres(self, GUARD)?;
        let text = |text: &str| Value::String(Some(text.to_owned()));
        let mut home = leases.home().await?;
        loop {
            let values = [text(&claim.name), text(&claim.owner), text(&claim.epoch.to_string()), text(&home)];
            let statement =
                Statement::from_sql_and_values(backend, &leases.statements().guard_as_text, values);
            let guarded = self.query_one_raw(statement).await.map_err(fail)?;
            let nothing = || Error::new(ErrorKind::Internal, GUARD, "the database returned no row");
            let found: String = guarded.ok_or_else(nothing)?.try_get_by_index(0).map_err(fail)?;
            if found == home {
                return Ok(());
            }
            home = leases.moved_to(found).await?;
        }
    }
}

impl CallIn<SeaOrm> for DatabaseTransaction {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        let backend = postgres(self, call.operation)?;
        let fail = |error| failed(call.operation, &error);
        let mut answers = Vec::new();
        for (sql, arguments) in steps(call)? {
            let statement =
                Statement::from_sql_and_values(backend, sql, arguments.into_iter().map(Value::String));
            for row in self.query_all_raw(statement).await.map_err(fail)? {
                answers.push(row.try_get_by_index(0).map_err(fail)?);
            }
        }
        Ok(answers)
    }
}

/// SeaORM's transactions may be of any database.
fn postgres(transaction: &DatabaseTransaction, operation: &'static str) -> Result<DbBackend> {
    match transaction.get_database_backend() {
        DbBackend::Postgres => Ok(DbBackend::Postgres),
        backend => {
            let message =
                format!("Mainstay's tables are in PostgreSQL, but the transaction is of {backend:?}");
            Err(Error::new(ErrorKind::Unsupported, operation, message))
        }
    }
}

fn failed(operation: &'static str, error: &DbErr) -> Error {
    let (DbErr::Conn(cause) | DbErr::Exec(cause) | DbErr::Query(cause)) = error else {
        return Error::new(ErrorKind::Internal, operation, error.to_string());
    };
    match cause {
        RuntimeErr::SqlxError(driver) => match driver.as_ref() {
            SqlxError::Database(server) => {
                from_server(operation, server.code().as_deref().unwrap_or_default(), server.message())
            }
            other => {
                Error::new(ErrorKind::Unavailable, operation, format!("the connection broke off: {other}"))
            }
        },
        other => Error::new(ErrorKind::Internal, operation, other.to_string()),
    }
}
