//! rusqlite: a connection, or a transaction on one.

use mainstay_core::lease::{GuardInBlocking, LeaseClaim};
use mainstay_core::outbox::{EnqueueInBlocking, Enqueued, PreparedMessage};
use mainstay_core::store::{CallInBlocking, LeaseStore, OutboxStore, StoreCall};
use mainstay_core::{ErrorKind, Result};
use rusqlite::{Connection, Transaction};

use crate::call::run;
use crate::error::Fault;
use crate::lease::{GUARD, SqliteLeases, guard, no_transaction};
use crate::queue::enqueue;

use super::{InSqlite, database_of, database_of_call};

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
    let enqueued = within_savepoint(connection, || enqueue(connection, &database.statements, messages))
        .map_err(|fault| database.location.place().error("outbox.enqueue_in", fault))?;
    // Committed already, if no transaction was open. Otherwise waiters find it when the application commits.
    database.signal.tell_if(connection.is_autocommit());
    Ok(enqueued)
}

impl CallInBlocking<InSqlite> for Connection {
    fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        run_call(self, call)
    }
}

impl CallInBlocking<InSqlite> for Transaction<'_> {
    fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        run_call(self, call)
    }
}

fn run_call(connection: &Connection, call: &StoreCall) -> Result<Vec<String>> {
    let database = database_of_call(call)?;
    let answers = within_savepoint(connection, || run(connection, &call.steps))
        .map_err(|fault| database.location.place().error(call.operation, fault))?;
    database.signal.tell_if(connection.is_autocommit());
    Ok(answers)
}

fn within_savepoint<T>(connection: &Connection, work: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    connection.execute_batch("SAVEPOINT mainstay_enqueue")?;
    let result = work().and_then(|done| {
        connection.execute_batch("RELEASE mainstay_enqueue")?;
        Ok(done)
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
    let fail = |fault| database.location.place().error(GUARD, fault);
    let guarded = guard(connection, &database.statements, leases.statements(), claim).map_err(fail);
    if guarded.as_ref().is_err_and(|error| error.kind() != ErrorKind::LeaseLost) {
        return guarded;
    }
    let file =
        || connection.prepare_cached(&leases.statements().home)?.query_row([], |row| row.get::<_, String>(0));
    leases.check_home(&file().map_err(|error| fail(error.into()))?)?;
    guarded
}
