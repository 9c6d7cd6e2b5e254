//! SeaORM: its transactions.

use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::{LeaseStore, OutboxStore};
use mainstay_core::{Error, ErrorKind, Result};
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, SqlxError, Statement,
    Value,
};

use super::{ENQUEUE, GUARD, enqueued};
use crate::error::from_server;
use crate::lease::PostgresLeases;
use crate::parameters::many_as_text;
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
        let sql = &outbox.statements().enqueue_many_as_text;
        let statement = Statement::from_sql_and_values(backend, sql, many_as_text(messages).map(array));
        let rows = self.query_all_raw(statement).await.map_err(|error| failed(ENQUEUE, &error))?;
        let read = |row: &QueryResult| {
            let text =
                |column| row.try_get_by_index::<String>(column).map_err(|error| failed(ENQUEUE, &error));
            enqueued(&text(0)?, &text(1)?, row.try_get_by_index(2).map_err(|error| failed(ENQUEUE, &error))?)
        };
        rows.iter().map(read).collect()
    }
}

/// The column as PostgreSQL writes arrays: an array of SeaORM's can't have nulls in it.
fn array(column: Option<Vec<Option<String>>>) -> Value {
    let element = |text: Option<String>| match text {
        None => "NULL".to_owned(),
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    let elements = |texts: Vec<_>| texts.into_iter().map(element).collect::<Vec<_>>().join(",");
    Value::String(column.map(|texts| format!("{{{}}}", elements(texts))))
}

impl GuardIn<SeaOrm> for DatabaseTransaction {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let sql = &PostgresLeases::of(store)?.statements().guard_as_text;
        let text = |text: &str| Value::String(Some(text.to_owned()));
        let values = [text(&claim.name), text(&claim.owner), text(&claim.epoch.to_string())];
        let statement = Statement::from_sql_and_values(postgres(self, GUARD)?, sql, values);
        self.query_one_raw(statement).await.map(drop).map_err(|error| failed(GUARD, &error))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_postgresql_reads_them() {
        let column = vec![Some("a,b".to_owned()), None, Some(r#"\ " NULL"#.to_owned()), Some(String::new())];
        let expected = r#"{"a,b",NULL,"\\ \" NULL",""}"#;
        assert_eq!(array(Some(column)), Value::String(Some(expected.to_owned())));
        assert_eq!(array(None), Value::String(None));
    }
}
