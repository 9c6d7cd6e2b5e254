//! rusqlite: a connection, or a transaction on one.

use mainstay_core::Result;
use mainstay_core::lease::{GuardInBlocking, LeaseClaim};
use mainstay_core::outbox::{EnqueueInBlocking, Enqueued, PreparedMessage};
use mainstay_core::store::{LeaseStore, OutboxStore};
use rusqlite::{Connection, Transaction};

use crate::error::Fault;
use crate::lease::{GUARD, SqliteLeases, guard, no_transaction};
use crate::queue::enqueue;
use crate::statements::Statements;

use super::{InSqlite, database_of};

/// On a connection: within the transaction that is open on it, or in one of its own if none is.
impl EnqueueInBlocking<InSqlite> for Connection {
    fn enqueue_in(&mut self, store: &dyn OutboxStore, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        add(self, store, messages)
    }
}

impl EnqueueInBlocking<InSqlite> for Transaction<'_> {
    fn enqueue_in(&mut self, store: &dyn OutboxStore, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        add(self, store, messages)
    }
}

fn add(
    connection: &Connection,
    store: &dyn OutboxStore,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>> {
    let database = database_of(store)?;
    let enqueued = within_savepoint(connection, &database.statements, messages)
        .map_err(|fault| database.location.place().error("outbox.enqueue_in", fault))?;
    // Committed already, if no transaction was open. Otherwise waiters find it when the application commits.
    database.signal.tell_if(connection.is_autocommit());
    Ok(enqueued)
}

fn within_savepoint(
    connection: &Connection,
    sql: &Statements,
    messages: &[PreparedMessage],
) -> Result<Vec<Enqueued>, Fault> {
    connection.execute_batch("SAVEPOINT mainstay_enqueue")?;
    let result = enqueue(connection, sql, messages).and_then(|enqueued| {
        connection.execute_batch("RELEASE mainstay_enqueue")?;
        Ok(enqueued)
    });
    // After some errors SQLite has rolled back the whole transaction, and the savepoint with it.
    if result.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK TO mainstay_enqueue; RELEASE mainstay_enqueue")?;
    }
    result
}

/// On a connection: within the transaction that is open on it. Without one it is refused.
impl GuardInBlocking<InSqlite> for Connection {
    fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim)
    }
}

impl GuardInBlocking<InSqlite> for Transaction<'_> {
    fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        guard_on(self, store, claim)
    }
}

fn guard_on(connection: &Connection, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
    let leases = SqliteLeases::of(store)?;
    if connection.is_autocommit() {
        return Err(no_transaction());
    }
    let database = leases.database();
    let guarded = guard(connection, &database.statements, leases.statements(), claim);
    guarded.map_err(|fault| database.location.place().error(GUARD, fault))
}
