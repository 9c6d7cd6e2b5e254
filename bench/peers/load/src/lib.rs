//! The work, the clock and the output that all programs share, so that each program is only its calls.
//!
//! A program implements [`Peer`] and calls [`main`]. What is measured is the same for all, to the line: the messages, who
//! waits for what, when the clock starts and when it stops. Nothing here knows a database.

mod arrivals;
mod peer;
mod process;
mod report;
mod request;
mod work;

pub use arrivals::handled;
pub use peer::{Aim, Peer};
pub use process::{forget_peak_memory, peak_memory_mib};
pub use report::{Percentiles, percentiles};
pub use request::{Request, Work};
pub use work::main;

/// What all programs fail with.
pub type Result<T, E = anyhow::Error> = std::result::Result<T, E>;
