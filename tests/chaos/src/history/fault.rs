//! The faults.

use serde::{Deserialize, Serialize};

/// Where in its course a fault is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It happens at once, or begins.
    Begin,
    /// It is over.
    End,
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
