//! What the three processes say to each other: one line of JSON each, an answer for every order.

use serde::{Deserialize, Serialize};

/// The topic of all messages.
pub(crate) const TOPIC: &str = "tick";

/// What is to be done.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Say how it is.
    Report,
    /// Add one message to each of these, and wait for that.
    Touch(Vec<String>),
    Send(Load),
    /// End in good order.
    Stop,
}

/// Messages to add at a steady pace, whatever becomes of the ones before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Load {
    /// The number of the first message; the others follow.
    pub(crate) first: u64,
    pub(crate) to: Vec<String>,
    pub(crate) per_second: u32,
    pub(crate) seconds: f64,
    /// These get one now and then, which is not counted.
    pub(crate) aside: Vec<String>,
}

/// What came of an order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Report(Report),
    Sent(Vec<Shot>),
    Done,
}

/// How the node is.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) warm: usize,
    pub(crate) waiting: usize,
    pub(crate) failing: usize,
    pub(crate) budget: usize,
    pub(crate) used: usize,
    pub(crate) peak: usize,
    /// Looks since the start, by provider.
    pub(crate) looks_sqlite: u64,
    pub(crate) looks_postgres: u64,
    /// Handlers that have begun since the last report: the message's number, and when.
    pub(crate) begun: Vec<(u64, u64)>,
}

/// A message that was added.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Shot {
    pub(crate) number: u64,
    /// Which of those that were sent to.
    pub(crate) to: usize,
    pub(crate) called: u64,
    /// When the call returned; none if it failed or did not return in time.
    pub(crate) committed: Option<u64>,
}

/// Microseconds of the clock that all processes of this machine share and that nobody sets.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // It counts from the start of the machine.
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}
