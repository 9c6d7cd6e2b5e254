//! What stores do in a transaction of the application's own driver: it has happened if and only if that commits.
//!
//! An adapter neither commits nor rolls back. It knows the names of the tables from the store, and nothing else of it:
//! which database the transaction is on is the application's business.

mod rusqlite;
#[cfg(feature = "sqlx")]
mod sqlx;

use std::sync::Arc;

use mainstay_core::store::{OutboxStore, StoreCall};
use mainstay_core::{Error, Result};

use crate::database::Database;
use crate::queue::SqliteQueue;

/// Marks the implementations of `EnqueueIn`, `CallIn` and their like of this crate. It is inferred; nobody has to name it.
#[derive(Debug, Clone, Copy)]
pub struct InSqlite;

fn database_of(store: &dyn OutboxStore) -> Result<&Arc<Database>> {
    let outbox = store.as_any().downcast_ref::<SqliteQueue>().ok_or_else(|| {
        let reason = format_args!(
            "must be of SQLite to enqueue in a transaction of SQLite, got {}",
            store.identifier()
        );
        Error::invalid("outbox.enqueue_in", "store", reason)
    })?;
    Ok(outbox.database())
}

/// The database that a call is of.
fn database_of_call(call: &StoreCall) -> Result<&Database> {
    call.origin.downcast_ref().ok_or_else(|| {
        let reason =
            format_args!("must be of SQLite to be used in a transaction of SQLite, got {}", call.store);
        Error::invalid(call.operation, "store", reason)
    })
}
