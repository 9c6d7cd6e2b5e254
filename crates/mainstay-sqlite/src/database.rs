//! What the parts of an open database share: the writer, the readers, the statements and the signal.

use std::sync::Arc;
use std::time::Duration;

use mainstay_core::store::{Capabilities, Names, Queue};
use mainstay_core::{Error, Result};
use rusqlite::Connection;
use tokio::sync::OnceCell;

use crate::connection::Location;
use crate::error::Fault;
use crate::reader::Readers;
use crate::statements::Statements;
use crate::wake::Signal;
use crate::writer::{Ticket, Writer};

/// An open database under one set of names. Several may share the connections.
#[derive(Clone)]
pub(crate) struct Database {
    pub(crate) identifier: String,
    pub(crate) names: Names,
    pub(crate) statements: Arc<Statements>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) signal: Arc<Signal>,
    pub(crate) keep_done_payloads: bool,
    pub(crate) transaction_limit: Duration,
    pub(crate) location: Location,
    pub(crate) busy_timeout: Duration,
    /// None for a database in memory: there the writer reads too.
    pub(crate) readers: Option<Arc<Readers>>,
    /// The connection that watches for commits of others; opened by the first wait.
    pub(crate) watcher: Arc<OnceCell<Readers>>,
}

impl Database {
    /// The same connections, and other tables.
    pub(crate) fn with_names(&self, names: Names) -> Self {
        let identifier = identifier(&self.location, &names);
        let statements = Arc::new(Statements::new(&names));
        Self { identifier, statements, names, ..self.clone() }
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
        self.writer.run(ticket.into(), move |connection| work(connection, &sql), wakes).await
    }

    /// Runs a look at one snapshot.
    pub(crate) async fn read<T, F>(&self, operation: &'static str, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &Statements) -> Result<T, Fault> + Send + 'static,
    {
        let sql = Arc::clone(&self.statements);
        let work = move |connection: &Connection| work(connection, &sql);
        match &self.readers {
            Some(readers) => readers.run(operation, work).await,
            None => self.writer.run(operation.into(), work, |_| false).await,
        }
    }

    /// The connection that watches for commits of others. None for a database in memory, where there are no others.
    pub(crate) async fn watcher(&self, operation: &'static str) -> Result<Option<&Readers>> {
        if self.location.is_memory() {
            return Ok(None);
        }
        let watcher =
            self.watcher.get_or_try_init(|| Readers::start(&self.location, self.busy_timeout, 1)).await?;
        if self.writer.is_closed() {
            // Opened while close() was under way, which did not see it.
            watcher.close().await;
            return Err(self.closed(operation));
        }
        Ok(Some(watcher))
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

    /// Finishes what is queued and lets go of all connections.
    pub(crate) async fn close(&self) {
        self.signal.close();
        // The writer last: the last connection to go tidies the log away.
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        if let Some(watcher) = self.watcher.get() {
            watcher.close().await;
        }
        self.writer.close().await;
    }
}

/// Names the leases in logs and metrics.
pub(crate) fn lease_identifier(location: &Location, names: &Names) -> String {
    let path = location.place().path().display();
    format!("sqlite:{path}#{}_{}", names.schema(), names.lease())
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
