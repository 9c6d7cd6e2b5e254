//! The history of a run: what each process called, what was answered, and which faults there were.
//!
//! Every process has a file of its own, `<process>.ndjson`, with one JSON object a line. A line
//! is one `write(2)`, so that a SIGKILL loses nothing that was written; only the last line of a
//! file can be torn, by a power loss or a full disk.

mod answer;
mod call;
mod fault;
mod read;
mod record;
mod state;

pub use answer::{Answer, Item, Rejection};
pub use call::{Call, Claim, Ending, MARKER, Outcome, QueueName, Sent, Within};
pub use fault::{CLOCK_STEP, Fault, LOST_TAIL, Phase};
pub use read::{History, Placed};
pub use record::{Invoked, Recorder, Strike, now};
pub use state::{Action, Condition, MessageState, Sample};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One line of a history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// `CLOCK_MONOTONIC` in nanoseconds: one clock for all processes of a machine, which no fault steps.
    pub at: u64,
    /// The process: the child's name and how often it was started, as `worker-2.17`.
    pub process: String,
    /// What kind of process it is.
    pub kind: Kind,
    /// The number of the call within the process: its invocation and its answer share it.
    pub call: u64,
    /// What happened.
    pub event: Event,
}

/// The kinds of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Starts the children and injects the faults.
    Controller,
    /// Enqueues messages, in transactions that commit and that roll back too.
    Producer,
    /// A worker of the library.
    Worker,
    /// A worker that calls the SQL functions, as other languages do.
    SqlWorker,
    /// A worker over HTTP, of `mainstay serve`.
    HttpWorker,
    /// Promotes timers and runs of jobs, and adds both.
    Scheduler,
    /// Acquires leases, and writes under their guard.
    LeaseHolder,
    /// A node that shares buckets with others.
    FleetNode,
    /// Repairs by hand: requeue, cancel, purge, pause.
    Operator,
    /// Receives messages through the inbox's ledger.
    Receiver,
}

impl Kind {
    /// Its name, as histories and the processes have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Producer => "producer",
            Self::Worker => "worker",
            Self::SqlWorker => "sql-worker",
            Self::HttpWorker => "http-worker",
            Self::Scheduler => "scheduler",
            Self::LeaseHolder => "lease-holder",
            Self::FleetNode => "fleet-node",
            Self::Operator => "operator",
            Self::Receiver => "receiver",
        }
    }
}

/// What a line tells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The process runs. Its system process id.
    Started(u32),
    /// A call is about to be made.
    Invoke(Box<Call>),
    /// The call was answered.
    Ok(Box<Answer>),
    /// The call failed, and had no effect for certain.
    Fail(Trouble),
    /// The call failed, and its effect may have happened or may happen yet. A call whose process died before the
    /// answer is as unknown as this.
    Unknown(Trouble),
    /// The process ends by itself, with nothing under way.
    Stopped,
    /// The controller's first line.
    Run(Run),
    /// The controller injects or ends a fault.
    Fault(Fault),
    /// The controller has ended all faults; from here on all work must end.
    Quiet,
    /// All work has ended, or the time for it is over.
    Settled {
        /// Open items that are left.
        open: u64,
    },
    /// What the controller measured.
    Sample(Sample),
    /// What stands in the database at the end, or what a check at the end found.
    End(Box<Condition>),
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The kind of the error, as the library names it (`ClaimLost`, `LeaseLost`, …), or a SQLSTATE.
    pub kind: String,
    /// The error's text.
    pub text: String,
}

/// What a run was started with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The seed of the schedule.
    pub seed: u64,
    /// The day it began, in UTC, as `2026-11-19`.
    #[serde(default)]
    pub date: String,
    /// The commit that was built.
    pub git: String,
    /// `postgres`, `pgbouncer`, `failover`, `sqlite` or `sqlserver`.
    pub provider: String,
    /// The lease of a claim.
    pub lease_ms: u64,
    /// Deliveries before a message fails.
    pub delivery_limit: u32,
    /// The connections that a process may have open at once.
    pub connections: u32,
    /// The command that repeats the schedule.
    pub command: String,
    /// How long faults were to be injected.
    pub minutes: f64,
    /// How many faults of each kind were planned.
    pub planned: BTreeMap<String, u64>,
    /// Whether the run can lose what was acknowledged: a failover to an asynchronous replica.
    pub loses_tail: bool,
}
