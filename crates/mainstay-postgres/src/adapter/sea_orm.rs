//! SeaORM: its transactions.

use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::store::OutboxStore;
use mainstay_core::{Error, ErrorKind, Result};
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, SqlxError, Statement,
    Value,
};

use super::{ENQUEUE, enqueued};
use crate::error::from_server;
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
        let backend = self.get_database_backend();
        if backend != DbBackend::Postgres {
            let message = format!("the outbox is in PostgreSQL, but the transaction is of {backend:?}");
            return Err(Error::new(ErrorKind::Unsupported, ENQUEUE, message));
        }
        let sql = &outbox.statements().enqueue_many_as_text;
        let statement = Statement::from_sql_and_values(backend, sql, many_as_text(messages).map(array));
        let rows = self.query_all_raw(statement).await.map_err(|error| failed(&error))?;
        let read = |row: &QueryResult| {
            let text = |column| row.try_get_by_index::<String>(column).map_err(|error| failed(&error));
            enqueued(&text(0)?, &text(1)?, row.try_get_by_index(2).map_err(|error| failed(&error))?)
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

fn failed(error: &DbErr) -> Error {
    let (DbErr::Conn(cause) | DbErr::Exec(cause) | DbErr::Query(cause)) = error else {
        return Error::new(ErrorKind::Internal, ENQUEUE, error.to_string());
    };
    match cause {
        RuntimeErr::SqlxError(driver) => match driver.as_ref() {
            SqlxError::Database(server) => {
                from_server(ENQUEUE, server.code().as_deref().unwrap_or_default(), server.message())
            }
            other => {
                Error::new(ErrorKind::Unavailable, ENQUEUE, format!("the connection broke off: {other}"))
            }
        },
        other => Error::new(ErrorKind::Internal, ENQUEUE, other.to_string()),
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
