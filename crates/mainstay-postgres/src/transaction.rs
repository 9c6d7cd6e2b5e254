//! A transaction of a handler: its own statements, its messages and its ack commit together or not at all.
//!
//! The connection goes back to the pool only after a commit or a rollback that the server has confirmed. In every
//! other case it is closed, and the server rolls back.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use mainstay_core::join::Counted;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::queue::{Settled, Settlement};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall, StoreTransaction};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{OwnerToken, Result};
use tokio_postgres::Client;

use crate::adapter;
use crate::error::from_driver;
use crate::lending::Lent;
use crate::parameters::Settlements;
use crate::pool::Lease;
use crate::queue::PostgresQueue;
use crate::rows;
use crate::session::Session;
use crate::statements::QueueStatements;

/// A transaction on a connection of the pool. Dropping it rolls back.
pub struct PostgresTransaction {
    lease: Lent,
    /// Of the queue whose claims it ends.
    statements: Arc<QueueStatements>,
    /// Of the outbox, where its messages go.
    outbox: Arc<QueueStatements>,
    keep_done_payloads: bool,
    /// Names the queue in logs.
    identifier: String,
    /// What was counted for joins, to be told of once it is committed.
    counted: Vec<Counted>,
}

impl PostgresTransaction {
    pub(crate) async fn begin(
        identifier: String,
        lease: Lease,
        statements: Arc<QueueStatements>,
        outbox: Arc<QueueStatements>,
        keep_done_payloads: bool,
    ) -> Result<Self> {
        // Whatever the database's default is: settling looks again at what others have committed meanwhile.
        let begin = "begin isolation level read committed read write";
        execute("transaction.begin", &lease, begin).await?;
        Ok(Self {
            lease: lease.lend(),
            statements,
            outbox,
            keep_done_payloads,
            identifier,
            counted: Vec::new(),
        })
    }

    /// The connection, for the handler's own statements. Don't end the transaction on it: commit and rollback are
    /// the dispatcher's part, and what is done after an end of one's own is not in the transaction any more.
    ///
    /// A statement that takes longer than `call_timeout` (60 s by default) is canceled, and the transaction can only be rolled back.
    pub fn client(&self) -> Result<&Client> {
        self.lease.client()
    }

    async fn enqueue_by(
        &self,
        outbox: &QueueStatements,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let session = Session::Unnamed(self.lease.client()?);
        self.lease.bounded("transaction.enqueue", adapter::enqueue_on(session, outbox, messages)).await
    }
}

async fn execute(operation: &'static str, lease: &Lease, sql: &str) -> Result<()> {
    let client = lease.client()?;
    let executed = async { client.batch_execute(sql).await.map_err(|error| from_driver(operation, error)) };
    lease.bounded(operation, executed).await
}

#[async_trait]
impl StoreTransaction for PostgresTransaction {
    async fn enqueue(&mut self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        self.enqueue_by(&self.outbox, messages).await
    }

    async fn settle(&mut self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        const SETTLE: &str = "queue.settle";
        let arrays = Settlements::new(owner, settlements, self.keep_done_payloads);
        let client = self.lease.client()?;
        let settled = async {
            let rows = client.query_typed(&self.statements.settle, &arrays.parameters()).await;
            rows.map_err(|error| from_driver(SETTLE, error))
        };
        let rows = self.lease.bounded(SETTLE, settled).await?;
        self.counted.extend(rows::counted(SETTLE, &rows, 1)?);
        rows::settled(SETTLE, &rows, settlements)
    }

    async fn guard(&mut self, leases: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.lease.bounded("lease.guard", adapter::guard_on(self.lease.client()?, leases, claim)).await
    }

    async fn call(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        self.lease.bounded(call.operation, adapter::call_on(self.lease.client()?, call)).await
    }

    async fn commit(self: Box<Self>) -> Result<()> {
        // A commit after a failed statement is answered as if all were well, although the server rolls back. The
        // statement in front of it fails then, and the commit is never reached.
        execute("transaction.commit", &self.lease, "select 1; commit").await?;
        joins_counted(&self.identifier, &self.counted);
        self.lease.give_back().await;
        Ok(())
    }

    async fn rollback(self: Box<Self>) -> Result<()> {
        // Closing the connection rolls back as well.
        if !self.lease.is_given_up() {
            execute("transaction.rollback", &self.lease, "rollback").await?;
            self.lease.give_back().await;
        }
        Ok(())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl EnqueueIn<PostgresTransaction> for PostgresTransaction {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let outbox = PostgresQueue::of(store)?;
        self.enqueue_by(outbox.statements(), messages).await
    }
}

impl CallIn<PostgresTransaction> for PostgresTransaction {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        self.call(call).await
    }
}

impl GuardIn<PostgresTransaction> for PostgresTransaction {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.guard(store, claim).await
    }
}

impl std::fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresTransaction").finish_non_exhaustive()
    }
}
