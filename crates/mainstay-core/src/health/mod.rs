//! Health (R25): whether the database answers, has the schema, and its work gets done.
//!
//! A report is data: checks with a status, in words, with what to do, the worst first. Looking never writes, is bounded in time, and
//! one look without an answer keeps no other from being told. Failed messages and those due later never make anything unhealthy.

mod check;
mod connectivity;
mod doctor;
mod expiring;
mod fleet;
mod fleet_watchdog;
mod leases;
mod options;
mod overdue;
mod paused;
mod probe;
mod report;
mod schema;
mod seen;
mod startup;
mod status;
mod stuck;
mod surroundings;
mod watchdog;
mod why;
mod workers;

pub use check::{Check, Finding};
pub(crate) use expiring::FailedKept;
pub use fleet::{DatabaseHealth, FleetHealth};
pub use options::HealthOptions;
pub use probe::{Health, Probe};
pub use report::HealthReport;
pub use seen::{LaneSeen, LeasesSeen, Patience, SEEN_AT_MOST, ScheduleSeen, WorkSeen};
pub use startup::Startup;
pub(crate) use startup::{StartupGuard, StartupState};
pub use status::HealthStatus;
pub use surroundings::{
    IndexSeen, OpenTransaction, RightsSeen, RunsSeen, SessionsSeen, StorageSeen, TableSeen, TransactionsSeen,
};
pub use watchdog::WatchdogOptions;
pub(crate) use watchdog::{News, Watchdog};
pub use why::{Explanation, Why};
