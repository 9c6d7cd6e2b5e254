//! What the parts of a database share: the connections, the statements and the signal.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::store::{Capabilities, Names, Queue};
use mainstay_core::{Error, Result};
use rusqlite::Connection;

use crate::connection::Location;
use crate::error::Fault;
use crate::link::{InUse, Link};
use crate::statements::{AuditStatements, Statements};
use crate::wake::Signal;
use crate::writer::Ticket;

/// A database under one set of names. Several may share the connections.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) identifier: String,
    pub(crate) names: Names,
    pub(crate) statements: Arc<Statements>,
    /// Of the audit trail, where what is done by hand is recorded.
    pub(crate) audit: Arc<AuditStatements>,
    pub(crate) link: Arc<Link>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) keep_done_payloads: bool,
    pub(crate) transaction_limit: Duration,
    pub(crate) location: Location,
    /// Whether any operation makes the file where there is none. Otherwise only a deployment does.
    pub(crate) creates: bool,
}

impl Database {
    /// The same connections, and other tables.
    pub(crate) fn with_names(&self, names: Names) -> Self {
        let identifier = identifier(&self.location, &names);
        let statements = Statements::shared(&names);
        let audit = AuditStatements::shared(&names);
        Self { identifier, statements, audit, names, ..self.clone() }
    }

    /// The same connections and names, for another queue.
    pub(crate) fn of(&self, queue: Queue) -> Self {
        self.with_names(self.names.of(queue))
    }

    /// Runs an operation in a transaction that is durable when this returns.
    pub(crate) async fn write<T, F>(&self, ticket: impl Into<Ticket>, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Statements) -> Result<T, Fault> + Send + 'static,
    {
        self.write_and_wake(ticket, work, |_| false).await
    }

    /// The same, and then tells those who wait for work, if `wakes` says so.
    pub(crate) async fn write_and_wake<T, F>(
        &self,
        ticket: impl Into<Ticket>,
        mut work: F,
        wakes: fn(&T) -> bool,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Statements) -> Result<T, Fault> + Send + 'static,
    {
        let sql = Arc::clone(&self.statements);
        let ticket = ticket.into();
        let in_use = self.open(ticket.operation()).await?;
        let writer = &in_use.get(ticket.operation())?.writer;
        writer.run(ticket, move |connection| work(connection, &sql), wakes).await
    }

    /// Runs a look at one snapshot.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Statements) -> Result<T, Fault> + Send + 'static,
    {
        let sql = Arc::clone(&self.statements);
        let work = move |connection: &Connection| work(connection, &sql);
        let in_use = self.open(operation).await?;
        let open = in_use.get(operation)?;
        match &open.readers {
            Some(readers) => readers.run(operation, work).await,
            None => open.writer.run(operation.into(), work, |_| false).await,
        }
    }

    /// The connections, for as long as the answer lives. Opens them if need be.
    pub(crate) async fn open(&self, operation: &'static str) -> Result<InUse> {
        self.link.open(operation, self.creates).await
    }

    /// Makes the file where there is none, before anything else opens it.
    pub(crate) async fn create(&self, operation: &'static str) -> Result<()> {
        self.link.open(operation, true).await.map(drop)
    }

    pub(crate) fn closed(&self, operation: &'static str) -> Error {
        self.location.place().closed(operation)
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::none();
        capabilities.nul_in_payload = true;
        capabilities.shared = !self.location.is_memory();
        capabilities
    }
}

/// Names the leases in logs and metrics.
pub(crate) fn lease_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.lease())
}

/// Names the audit trail in logs and metrics.
pub(crate) fn audit_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.audit())
}

/// Names the operations in logs and metrics.
pub(crate) fn operations_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.operations())
}

/// Names the jobs in logs and metrics.
pub(crate) fn jobs_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.jobs())
}

/// Names the fan-outs in logs and metrics.
pub(crate) fn fanout_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.fanout())
}

/// Names the queue in logs and metrics.
pub(crate) fn identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.queue())
}
