//! Timers: messages for later. A timer that is due becomes a message in the outbox, under the same ids, exactly once.
//!
//! They are items of the engine's queue, so that whoever wants to work on them without the outbox can claim and settle them
//! like any others.

mod client;
mod new;
mod options;
mod record;
mod service;
mod stats;

pub use client::Timers;
pub use new::{NewTimer, take_ordering_key};
pub use options::TimerOptions;
pub use record::Timer;
pub use service::TimerService;
pub use stats::TimerStats;
