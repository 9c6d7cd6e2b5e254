//! Temporary PostgreSQL clusters and poolers for tests.
//!
//! Process-level code only, on the standard library: `xtask` starts the servers all tests
//! share with it, and the test harness starts private ones that a test may crash.

mod account;
mod blank;
mod bouncer;
mod certificates;
mod cluster;
mod error;
mod port;
mod process;
mod programs;
mod replica;
mod secret;
mod shared;
pub mod variables;

pub use blank::Blank;
pub use bouncer::Bouncer;
pub use cluster::{Cluster, ClusterOptions};
pub use error::{Error, Result};
pub use process::Group;
pub use programs::{Programs, find_faketime, find_openssl, find_pgbouncer, find_postgres};
pub use shared::SharedServers;
