//! One process over many databases: which there are, who routes to them, and how they share this process.
//!
//! Every database is an ordinary [`Mainstay`](crate::runtime::Mainstay), so every primitive works over the fleet as it does over one. What
//! is here decides only which of them run: a database with nothing to do rests without a connection and is looked at now and then; one
//! with work is *warm*, its Mainstay started. Connections are counted against a budget that is never exceeded, and what is wrong with one
//! database is nobody else's trouble.

pub mod assignment;
mod budget;
mod builder;
mod connect;
mod control;
mod deployment;
mod discovery;
mod doorbell;
mod entry;
mod file;
mod keeper;
mod options;
mod plan;
mod registry;
mod router;
mod selection;
mod status;
mod store;
mod strategy;
mod watch;

pub use crate::breaker::{BreakerOptions, BreakerState};
pub use assignment::{Assignment, AssignmentOptions, Owned};
pub use builder::FleetBuilder;
pub use connect::{Connect, ConnectTerms};
pub use control::{Fleet, RunningFleet};
pub use deployment::Deployed;
pub use discovery::{DatabaseDiscovery, DatabaseList, DiscoverWith};
pub use entry::{DatabaseEntry, StoreKey, Target};
pub use file::DatabaseFile;
pub use options::FleetOptions;
pub use registry::Refreshed;
pub use selection::Selection;
pub use status::{ConnectionStatus, FleetStatus, StoreState, StoreStatus};
pub use strategy::{DrainFirst, RoundRobin, SelectionStrategy};
pub use watch::{Mark, Watch};
