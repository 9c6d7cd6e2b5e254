//! A handler's transaction: its own writes, its messages and its ack commit together.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::join::Counted;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::queue::{Settled, Settlement};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall, StoreTransaction};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{Error, OwnerToken, Result};
use rusqlite::Connection;

use crate::adapter::InSqlite;
use crate::call::run;
use crate::database::Database;
use crate::error::Fault;
use crate::lease::{GUARD, SqliteLeases, guard};
use crate::link::InUse;
use crate::link::Link;
use crate::queue::{SqliteQueue, enqueue, settle};
use crate::statements::Statements;
use crate::writer::{Loan, Over};

const BEGIN: &str = "transaction.begin";
const RUN: &str = "transaction.run";
const COMMIT: &str = "transaction.commit";

/// A transaction on the writer's connection. Dropping it rolls back at once.
///
/// SQLite has one writer at a time, so while this lasts **every other write to the database waits**, in this process and
/// in others. Do the slow parts of a handler before it. And never wait for an operation of the store while holding one:
/// that operation waits for this transaction, and only the time limit (`transaction_limit`, 5 s unless set otherwise)
/// ends the wait, by rolling this back. What belongs to the transaction goes through its own methods.
pub struct SqliteTransaction {
    loan: Loan,
    /// The database's connections: tell which stores are of the same database.
    link: Arc<Link>,
    /// They stay open for as long as this lasts.
    _in_use: InUse,
    /// Of the queue whose claims it ends.
    statements: Arc<Statements>,
    /// Of the outbox, where its messages go.
    outbox: Arc<Statements>,
    keep_done_payloads: bool,
    /// Names the queue in logs.
    identifier: String,
    /// What was counted for joins, to be told of once it is committed.
    counted: Vec<Counted>,
    /// A call is under way, or was given up midway.
    under_way: bool,
}

impl SqliteTransaction {
    pub(crate) async fn begin(database: &Database, outbox: &Arc<Statements>) -> Result<Self> {
        let in_use = database.open(BEGIN).await?;
        let loan = in_use.get(BEGIN)?.writer.lend(BEGIN, database.transaction_limit).await?;
        Ok(Self {
            loan,
            link: Arc::clone(&database.link),
            _in_use: in_use,
            statements: Arc::clone(&database.statements),
            outbox: Arc::clone(outbox),
            keep_done_payloads: database.keep_done_payloads,
            identifier: database.identifier.clone(),
            counted: Vec::new(),
            under_way: false,
        })
    }

    /// Runs the handler's own statements within the transaction.
    ///
    /// The closure runs on the writer's thread, so it must not block on anything but SQLite. If it returns an error,
    /// its own changes are taken back and the transaction goes on. It must not end the transaction itself.
    ///
    /// At the time limit a statement that is running is interrupted, and the transaction is rolled back. A closure that
    /// is not in SQLite then can't be interrupted: all other writes wait until it returns, and then the transaction is
    /// rolled back, whatever the closure returned.
    ///
    /// When this future is dropped before it is done, nobody knows what the transaction holds; it can then only be
    /// rolled back.
    pub async fn run<T, F>(&mut self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.call(RUN, move |connection| Ok(work(connection)?)).await
    }

    async fn call<T, F>(&mut self, operation: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        self.check(operation)?;
        self.under_way = true;
        let result = self.loan.run(operation, work).await;
        self.under_way = false;
        result
    }

    async fn enqueue_by(
        &mut self,
        sql: Arc<Statements>,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let messages = messages.to_vec();
        self.call("transaction.enqueue", move |connection| enqueue(connection, &sql, &messages)).await
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        if self.under_way { Err(Over::Abandoned.error(operation)) } else { Ok(()) }
    }
}

#[async_trait]
impl StoreTransaction for SqliteTransaction {
    async fn enqueue(&mut self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let outbox = Arc::clone(&self.outbox);
        self.enqueue_by(outbox, messages).await
    }

    async fn settle(&mut self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        let (settlements, sql) = (settlements.to_vec(), Arc::clone(&self.statements));
        let keep = self.keep_done_payloads;
        let settle = move |connection: &Connection| settle(connection, &sql, owner, &settlements, keep);
        let result = self.call("transaction.settle", settle).await?;
        self.counted.extend(result.counted);
        Ok(result.settled)
    }

    async fn guard(&mut self, leases: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let own = SqliteLeases::of(leases)?;
        if !own.database().location.place().is(self.loan.place()) {
            let reason = format_args!("must be of the transaction's database, got {}", leases.identifier());
            return Err(Error::invalid(GUARD, "store", reason));
        }
        let (sql, claim) = (Arc::clone(own.statements()), claim.clone());
        let all = Arc::clone(&own.database().statements);
        self.call(GUARD, move |connection| guard(connection, &all, &sql, &claim)).await
    }

    async fn call(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        let own = call.origin.downcast_ref::<Database>();
        if !own.is_some_and(|database| Arc::ptr_eq(&database.link, &self.link)) {
            let reason = format_args!("must be of the database the transaction is of, got {}", call.store);
            return Err(Error::invalid(call.operation, "store", reason));
        }
        let steps = call.steps.clone();
        self.call(call.operation, move |connection| run(connection, &steps)).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        self.check(COMMIT)?;
        self.loan.commit(COMMIT).await?;
        joins_counted(&self.identifier, &self.counted);
        Ok(())
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        self.loan.roll_back().await;
        Ok(())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// So that `outbox.enqueue_in(&mut tx, …)` rides on it too.
impl EnqueueIn<InSqlite> for SqliteTransaction {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let queue = store.as_any().downcast_ref::<SqliteQueue>().map(SqliteQueue::database);
        let Some(queue) = queue.filter(|queue| Arc::ptr_eq(&queue.link, &self.link)) else {
            let reason =
                format_args!("must be of the database the transaction is of, got {}", store.identifier());
            return Err(Error::invalid("outbox.enqueue_in", "store", reason));
        };
        self.enqueue_by(Arc::clone(&queue.statements), messages).await
    }
}

impl GuardIn<InSqlite> for SqliteTransaction {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.guard(store, claim).await
    }
}

impl CallIn<InSqlite> for SqliteTransaction {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        StoreTransaction::call(self, call).await
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").finish_non_exhaustive()
    }
}
