//! A transaction of a handler: its own statements, its messages and its ack commit together or not at all.
//!
//! The connection goes back to the pool only after a commit or a rollback that the server has confirmed. In every other case it is closed, and
//! the server rolls back. After an error of the server there is no saying whether the transaction is still there, so nothing more is done in it:
//! a statement behind it would be on its own.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use mainstay_core::join::Counted;
use mainstay_core::lease::{GuardIn, LeaseClaim};
use mainstay_core::outbox::{EnqueueIn, Enqueued, PreparedMessage};
use mainstay_core::queue::{Settled, Settlement};
use mainstay_core::store::{CallIn, LeaseStore, OutboxStore, StoreCall, StoreTransaction};
use mainstay_core::telemetry::joins_counted;
use mainstay_core::{Error, ErrorKind, OwnerToken, Result};

use crate::adapter;
use crate::driver::{Session, Tiberius};
use crate::error::Fault;
use crate::lease::SqlServerLeases;
use crate::pool::{Connections, Lease};
use crate::procedures::QueueProcedures;
use crate::queue::SqlServerQueue;
use crate::rows::{self, Row};

const COMMIT: &str = "transaction.commit";

/// A transaction on a connection of the pool. Dropping it rolls back.
pub struct SqlServerTransaction {
    lease: Lease,
    connections: Connections,
    /// Of the queue whose claims it ends.
    procedures: Arc<QueueProcedures>,
    /// Of the outbox, where its messages go.
    outbox: Arc<QueueProcedures>,
    keep_done_payloads: bool,
    /// Names the queue in logs.
    identifier: String,
    /// What was counted for joins, to be told of once it is committed.
    counted: Vec<Counted>,
    /// The server has refused something in it.
    failed: bool,
}

impl SqlServerTransaction {
    pub(crate) async fn begin(
        identifier: String,
        connections: Connections,
        procedures: Arc<QueueProcedures>,
        outbox: Arc<QueueProcedures>,
        keep_done_payloads: bool,
    ) -> Result<Self> {
        const BEGIN: &str = "transaction.begin";
        let mut lease = connections.lease_for_transaction(BEGIN).await?;
        lease.batch(BEGIN, connections.beginning()).await?;
        Ok(Self {
            lease,
            connections,
            procedures,
            outbox,
            keep_done_payloads,
            identifier,
            counted: Vec::new(),
            failed: false,
        })
    }

    /// Does something within the transaction, in a task of its own and within a time limit.
    pub(crate) async fn with<T, F>(
        &mut self,
        operation: &'static str,
        limit: Option<Duration>,
        work: F,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: for<'a> FnOnce(&'a mut Session) -> BoxFuture<'a, Result<T, Fault>> + Send + 'static,
    {
        self.check(operation)?;
        // Until it has succeeded: a call that is given up midway leaves it at that.
        self.failed = true;
        let result = self.lease.within(limit, operation, work).await?;
        self.failed = false;
        Ok(result)
    }

    fn check(&self, operation: &'static str) -> Result<()> {
        if !self.failed {
            return Ok(());
        }
        let message = "an earlier call in the transaction failed or was given up midway: roll it back";
        Err(Error::new(ErrorKind::Conflict, operation, message).with_retryable(false))
    }

    async fn run(&mut self, operation: &'static str, step: mainstay_core::store::Step) -> Result<Vec<Row>> {
        let step = adapter::within(&step);
        let limit = self.connections.call_timeout();
        self.with(operation, Some(limit), move |session| Box::pin(async move { session.query(&step).await }))
            .await
    }

    async fn enqueue_by(
        &mut self,
        outbox: &QueueProcedures,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        const ENQUEUE: &str = "transaction.enqueue";
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let rows = self.run(ENQUEUE, outbox.enqueue(messages)).await?;
        adapter::enqueued(ENQUEUE, &rows)
    }
}

#[async_trait]
impl StoreTransaction for SqlServerTransaction {
    async fn enqueue(&mut self, messages: &[PreparedMessage]) -> Result<Vec<Enqueued>> {
        let outbox = Arc::clone(&self.outbox);
        self.enqueue_by(&outbox, messages).await
    }

    async fn settle(&mut self, owner: OwnerToken, settlements: &[Settlement]) -> Result<Settled> {
        const SETTLE: &str = "queue.settle";
        let step = self.procedures.settle(owner, settlements, self.keep_done_payloads);
        let rows = self.run(SETTLE, step).await?;
        self.counted.extend(rows::counted(SETTLE, &rows)?);
        let asked = settlements.iter().map(|settlement| settlement.claim.id());
        Ok(Settled::from_changed(asked, rows::ids(SETTLE, &rows)?))
    }

    async fn guard(&mut self, leases: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        let step = SqlServerLeases::of(leases)?.guarding(claim).await?;
        self.run("lease.guard", step).await.map(drop)
    }

    async fn call(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        adapter::check(call)?;
        let mut answers = Vec::new();
        for step in &call.steps {
            let rows = self.run(call.operation, step.clone()).await?;
            answers.extend(rows.iter().map(Row::answer));
        }
        Ok(answers)
    }

    async fn commit(mut self: Box<Self>) -> Result<()> {
        self.check(COMMIT)?;
        let commit = self.connections.after_transaction("COMMIT TRANSACTION");
        self.lease.batch(COMMIT, commit).await?;
        joins_counted(&self.identifier, &self.counted);
        self.lease.give_back();
        Ok(())
    }

    async fn rollback(mut self: Box<Self>) -> Result<()> {
        let rollback = self.connections.after_transaction("IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION");
        let rolled_back = self.lease.batch("transaction.rollback", rollback).await;
        if rolled_back.is_ok() {
            self.lease.give_back();
        }
        // Otherwise the connection is gone, and the transaction with it.
        Ok(())
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl EnqueueIn<Tiberius> for SqlServerTransaction {
    async fn enqueue_in(
        &mut self,
        store: &dyn OutboxStore,
        messages: &[PreparedMessage],
    ) -> Result<Vec<Enqueued>> {
        let queue = SqlServerQueue::of(store)?;
        if !queue.connections().is(&self.connections) {
            let reason =
                format_args!("must be of the database the transaction is of, got {}", store.identifier());
            return Err(Error::invalid("outbox.enqueue_in", "store", reason));
        }
        self.enqueue_by(queue.procedures(), messages).await
    }
}

impl CallIn<Tiberius> for SqlServerTransaction {
    async fn call_in(&mut self, call: &StoreCall) -> Result<Vec<String>> {
        StoreTransaction::call(self, call).await
    }
}

impl GuardIn<Tiberius> for SqlServerTransaction {
    async fn guard_in(&mut self, store: &dyn LeaseStore, claim: &LeaseClaim) -> Result<()> {
        self.guard(store, claim).await
    }
}

impl std::fmt::Debug for SqlServerTransaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqlServerTransaction").finish_non_exhaustive()
    }
}
