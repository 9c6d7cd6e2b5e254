//! The application's own statements in a transaction of any provider.

use mainstay::postgres::PostgresTransaction;
use mainstay::sqlite::SqliteTransaction;
use mainstay::sqlserver::{SqlServerTransaction, tiberius};
use mainstay::store::StoreTransaction;
use mainstay::{Error, ErrorKind, Result};

/// Runs a statement without parameters within a transaction.
pub(super) async fn execute(tx: &mut dyn StoreTransaction, sql: String) -> Result<()> {
    let tx = tx.as_any_mut();
    if let Some(tx) = tx.downcast_mut::<PostgresTransaction>() {
        return tx.client()?.batch_execute(&sql).await.map_err(failed);
    }
    if let Some(tx) = tx.downcast_mut::<SqliteTransaction>() {
        return tx.run(move |connection| connection.execute_batch(&sql)).await;
    }
    if let Some(tx) = tx.downcast_mut::<SqlServerTransaction>() {
        return tx.query(tiberius::Query::new(sql)).await.map(drop);
    }
    Err(Error::new(ErrorKind::Unsupported, "application.execute", "a transaction of an unknown provider"))
}

fn failed(error: tokio_postgres::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "application.execute", "the application's own statement failed")
        .with_source(error)
}
