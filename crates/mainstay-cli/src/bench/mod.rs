//! The benchmark: how fast this outbox is on this database, from this machine.
//!
//! It measures what an application would do, through the same public calls, in a schema of its own that is removed
//! afterwards. Nothing of the user's is read or written.

mod measure;
mod progress;
mod scratch;

pub(crate) use measure::{Results, measure};
pub(crate) use progress::Progress;
pub(crate) use scratch::Scratch;
