//! Fan-out: work that is cut into slices, one for each shard, and planned by a cadence (R23).
//!
//! A fan-out is known by a topic and a work key, and has a *policy* in the database: how often, with how much jitter, by which
//! cron expression. A [`Planner`] of the application names the shards; a *cursor* for each shard remembers how far its work has come and
//! which slice was planned last. One coordinator at a time ([`FanoutService`], by a lease) works out what is due and puts a slice for
//! each into the outbox, as a message of the topic `fanout:{topic}:{work key}`. Its handler moves the cursor on in its own
//! transaction. A run may have a [`RunContinuation`]: a message that follows when all its slices have ended.
//!
//! What is due is calculated from stored rows and the database's clock alone ([`Candidate`]), and a slice is made only if its cursor is
//! still the one it was planned with. So not even two coordinators at once make two slices of one.

pub mod answer;
mod change;
mod client;
mod continuation;
mod coordinate;
mod cursor;
mod definition;
mod due;
mod handler;
mod id;
mod jitter;
mod key;
mod known;
mod planner;
mod policy;
mod service;
mod slice;

pub use change::FanoutChange;
pub use client::Fanout;
pub use continuation::RunContinuation;
pub use coordinate::Pass;
pub use cursor::FanoutCursor;
pub use definition::{FanoutDefinition, PreparedFanout};
pub use due::{Candidate, Occasion, SliceTime};
pub use handler::Slice;
pub(crate) use handler::slice_handler;
pub use jitter::jitter;
pub use key::FanoutKey;
pub(crate) use known::KnownFanouts;
pub use planner::{KnownShards, Planner, PlannerError, ShardsFrom, shards_from};
pub use policy::FanoutPolicy;
pub use service::{FanoutOptions, FanoutService};
pub use slice::{FanoutSlice, PlannedSlice};
