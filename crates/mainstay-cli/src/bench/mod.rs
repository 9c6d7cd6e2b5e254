//! The benchmark: how fast this outbox is on this database, from this machine, and how fast that database is without it.
//!
//! It measures what an application would do, through the same public calls, and beside it the bare limit: plain statements
//! on plain tables of the same database in the same run. All of it happens in schemas of its own that are removed
//! afterwards. Nothing of the user's is read or written.

mod beside;
mod clock;
mod cost;
mod enqueue;
mod handle;
mod keys;
mod limits;
mod measure;
mod plan;
mod progress;
mod results;
mod schema;
mod scratch;

pub(crate) use keys::{KEYS, find};
pub(crate) use measure::measure;
pub(crate) use plan::Plan;
pub(crate) use progress::Progress;
pub(crate) use results::{Results, shown};
pub(crate) use scratch::Scratch;

/// A payload of a common size.
const PAYLOAD_BYTES: usize = 200;
/// Messages per call of the bulk enqueue, and rows per COPY.
const BULK: u64 = 5_000;
/// Messages a second when latency is measured: the dispatcher is idle between any two.
const PACE: u64 = 50;
