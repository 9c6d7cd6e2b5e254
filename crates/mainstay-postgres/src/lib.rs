//! Mainstay on PostgreSQL.
//!
//! [`Postgres`] is the provider. Everything it does goes through the public SQL functions of its schema, one round
//! trip each, without prepared statements or any other session state, so it works through a pooler in transaction
//! mode. Transactions of tokio-postgres and deadpool-postgres can be enqueued in, and with the features `sqlx`, `diesel` and
//! `sea-orm` those of sqlx, diesel-async and SeaORM.

pub mod adapter;
mod addition;
mod agenda;
mod audit;
mod cancel;
mod closing;
mod contention;
mod cursor;
mod diagnosis;
mod error;
mod export;
mod fanout;
mod fleet;
mod gathering;
mod health;
mod inbox;
mod jobs;
mod joins;
mod lease;
mod lending;
mod listener;
mod moment;
mod operations;
mod options;
mod parameters;
mod place;
mod pool;
mod provider;
mod queue;
mod rows;
mod schema;
mod session;
mod statements;
mod texts;
mod timer;
mod tls;
mod transaction;
mod url;
mod waiting;
mod watch;

pub use audit::PostgresAudit;
pub use fanout::PostgresFanout;
pub use fleet::{PostgresConnector, PostgresDiscovery};
pub use inbox::PostgresInbox;
pub use jobs::PostgresJobs;
pub use joins::PostgresJoins;
pub use lease::PostgresLeases;
pub use operations::PostgresOperations;
pub use options::PostgresBuilder;
pub use provider::Postgres;
pub use queue::PostgresQueue;
pub use schema::PostgresSchema;
pub use transaction::PostgresTransaction;
