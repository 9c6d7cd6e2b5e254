//! The faults.

use serde::{Deserialize, Serialize};

/// The kind of a fault that steps a clock by which leases are decided.
///
/// It begins right before the step, and ends when all such clocks agree again.
pub const CLOCK_STEP: &str = "clock_step";

/// The kind of a failover that loses the last transactions of the old primary.
///
/// It begins when the replica has received everything so far and stops receiving. It ends when no client can reach
/// the old primary and the new one answers.
pub const LOST_TAIL: &str = "failover_lost_tail";

/// Where in its course a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It happens at once, or begins.
    Begin,
    /// It is over.
    End,
    /// It is over, and hit nothing: it does not count.
    Void,
}

/// A fault that the controller injects. The beginning and the end of one share the line's call number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its kind, as `verdict.json` counts it: `kill`, `pause`, `server_crash`, …
    pub kind: String,
    /// Whom it hits: a process, a connection, a table.
    pub target: String,
    /// Where in its course it is.
    pub phase: Phase,
}
