//! What is particular to PostgreSQL, on a real server. The contract that all providers share is the conformance suite.

// Functions beside the tests are not in a test themselves, where clippy would let them be.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod adapters;
mod audit;
mod canceling;
mod connecting;
mod contention;
mod failover;
mod faults;
mod fleet;
mod floor;
mod gathering;
mod health;
mod inbox;
mod job_races;
mod jobs;
mod joins;
mod leases;
mod operations;
mod ordering;
mod prepared;
mod schema;
mod settling;
mod silence;
mod support;
mod timers;
mod tracking;
mod waiting;
mod watch;
