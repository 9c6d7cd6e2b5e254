//! Mainstay on Microsoft SQL Server and Azure SQL.
//!
//! [`SqlServer`] is the provider. Everything it does goes through the procedures of its schema, one round trip each, so an application's login
//! needs no right but to execute them. A [`tiberius`] client can be enqueued in within its own transaction.

mod adapter;
mod agenda;
mod audit;
mod diagnosis;
mod driver;
mod error;
mod export;
mod fanout;
mod fleet;
mod health;
mod inbox;
mod jobs;
mod joins;
mod lease;
mod operations;
mod options;
mod parameters;
mod pool;
mod procedures;
mod provider;
mod queue;
mod reach;
mod rows;
mod schema;
mod texts;
mod timer;
mod token;
mod transaction;
mod url;
mod waiting;
#[cfg(test)]
mod wire;

pub use audit::SqlServerAudit;
pub use driver::{Client, Tiberius};
pub use fanout::SqlServerFanout;
pub use fleet::{SqlServerConnector, SqlServerDiscovery};
pub use inbox::SqlServerInbox;
pub use jobs::SqlServerJobs;
pub use joins::SqlServerJoins;
pub use lease::SqlServerLeases;
pub use operations::SqlServerOperations;
pub use options::SqlServerBuilder;
pub use provider::SqlServer;
pub use queue::SqlServerQueue;
pub use schema::{MIGRATIONS, SqlServerSchema};
pub use transaction::SqlServerTransaction;

/// The driver: what an application needs of it to run statements of its own.
pub use tiberius;
