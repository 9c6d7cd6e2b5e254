//! Test support: databases, servers that can be crashed, connections that can be cut, and
//! logs that can be read.
//!
//! Tests that need PostgreSQL are run by `cargo xtask test`, which starts it.

// A harness reports what goes wrong in it by failing the test.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::print_stdout)]

mod cluster;
mod logs;
mod postgres;
mod proxy;
mod template;
mod url;
mod wait;

pub use cluster::{OwnCluster, OwnPooler};
pub use logs::{CapturedLogs, LogRecord};
pub use mainstay_servers::ClusterOptions;
pub use postgres::{TestDatabase, TestPostgres, connect};
pub use proxy::FaultProxy;
pub use template::template_database;
pub use url::PostgresUrl;
pub use wait::{eventually, eventually_blocking};
