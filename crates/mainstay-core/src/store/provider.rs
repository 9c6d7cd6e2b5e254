//! A database as a whole.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use crate::audit::Actor;
use crate::error::{Error, ErrorKind, Result};

use super::{
    Agenda, AuditStore, Capabilities, DiagnosisStore, FanoutStore, HealthStore, InboxStore, JobStore,
    JoinStore, LeaseStore, OperationStore, OutboxStore, Queue, SchemaStatus, TimerStore,
};

/// A database with Mainstay's tables in it.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// `sqlite`, `postgres`, …
    fn kind(&self) -> &'static str;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// A work queue. The engine is the same over each.
    fn queue(&self, queue: Queue) -> Arc<dyn OutboxStore>;

    /// The outbox.
    fn outbox(&self) -> Arc<dyn OutboxStore> {
        self.queue(Queue::Outbox)
    }

    /// The leases.
    fn leases(&self) -> Arc<dyn LeaseStore>;

    /// What timers have of their own.
    fn timers(&self) -> Arc<dyn TimerStore>;

    /// The jobs.
    fn jobs(&self) -> Arc<dyn JobStore>;

    /// The joins.
    fn joins(&self) -> Arc<dyn JoinStore>;

    /// The fan-outs.
    fn fanout(&self) -> Arc<dyn FanoutStore>;

    /// The ledger of received messages.
    fn inbox(&self) -> Arc<dyn InboxStore>;

    /// The audit trail.
    fn audit(&self) -> Arc<dyn AuditStore>;

    /// The operations.
    fn operations(&self) -> Arc<dyn OperationStore>;

    /// What the health checks look at.
    fn health(&self) -> Arc<dyn HealthStore>;

    /// What a doctor looks at. Defaults to nothing.
    fn diagnosis(&self) -> Option<Arc<dyn DiagnosisStore>> {
        None
    }

    /// The schema.
    fn schema(&self) -> Arc<dyn SchemaStore>;

    /// The database's clock. Also the cheapest way to see whether the database answers.
    async fn now(&self) -> Result<Timestamp>;

    /// What there is to do, and when. Asks as little of the database as it can, and opens no more than one connection.
    async fn agenda(&self) -> Result<Agenda>;

    /// How many connections it may have open from now on, if it was made with a [`ConnectionGate`](super::ConnectionGate). With none
    /// it lets go of those that are not in use, and calls wait until some are allowed. Returns once no more are open than that.
    async fn allow_connections(&self, connections: usize);

    /// How many connections are open that [`Self::allow_connections`] decides about, of all kinds. While none is allowed, it only ever gets
    /// less.
    fn open_connections(&self) -> usize;

    /// Allows none and closes all that are open at once, where it can: what is under way on them fails. For a database that does not answer,
    /// whose connections others can use. Returns once none is open. Defaults to waiting until nobody uses them.
    async fn sever_connections(&self) {
        self.allow_connections(0).await;
    }

    /// Lets go of all connections. Later calls fail with `Closed`.
    async fn close(&self);
}

/// The deployment of Mainstay's tables and functions (R28).
#[async_trait]
pub trait SchemaStore: Send + Sync + 'static {
    /// What is there. Read-only.
    async fn status(&self) -> Result<SchemaStatus>;

    /// Brings the schema up to date: idempotent, and safe when many instances do it at once. What it changed is recorded as `by`'s.
    async fn deploy_by(&self, by: &Actor) -> Result<SchemaStatus>;

    /// The same by this program.
    async fn deploy(&self) -> Result<SchemaStatus> {
        self.deploy_by(&Actor::library()).await
    }

    /// All of it as one script that a person can read and run.
    fn script(&self) -> String;

    /// Refuses a schema that this program cannot use, and says what to do about it. Creates nothing.
    async fn require(&self) -> Result<()> {
        match self.status().await? {
            status if status.is_usable() => Ok(()),
            other => Err(Error::new(ErrorKind::Schema, "schema.require", other.to_string())),
        }
    }
}
