//! The verdict on a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What `verdict.json` holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The seed of the schedule.
    pub seed: u64,
    /// The day the run began, in UTC, as `2026-11-19`.
    pub date: String,
    /// The commit that was built.
    pub git: String,
    /// The provider.
    pub provider: String,
    /// The command that repeats the schedule.
    pub command: String,
    /// How long the run took.
    pub seconds: u64,
    /// Planned faults by kind.
    pub planned: BTreeMap<String, u64>,
    /// Faults by kind that were injected and hit something.
    pub faults: BTreeMap<String, u64>,
    /// Answered calls by kind.
    pub ops: BTreeMap<String, u64>,
    /// Calls by kind whose outcome is unknown: their process died, or their connection broke.
    pub unknown: BTreeMap<String, u64>,
    /// Calls by kind that failed, and had no effect for certain.
    pub failed: BTreeMap<String, u64>,
    /// What broke a rule.
    pub violations: Vec<Violation>,
}

impl Verdict {
    /// Whether no rule was broken.
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

/// The day, in UTC, as a verdict has it.
pub fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// A rule that was broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What happened, in a sentence.
    pub text: String,
    /// The ids concerned.
    pub ids: Vec<String>,
    /// The lines of the histories that show it, as `<file>:<line>`.
    pub lines: Vec<String>,
}

/// The rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Every message whose enqueue was answered ends, or an operator's call accounts for it.
    NothingLost,
    /// No message is claimed whose transaction was rolled back.
    NothingInvented,
    /// One claim for an id and a generation; generations grow over the id's whole life.
    OneClaim,
    /// One end for a claim; what was acked is claimed again only after a requeue.
    OneEnd,
    /// One effect for each message whose handler writes it in its transaction.
    Effects,
    /// One in-progress message of an ordering key; one holder of a lease, an inbox guard, a bucket.
    Exclusion,
    /// Messages of an ordering key are handled in order.
    Order,
    /// Ledger and queue, runs and occurrences, joins and members agree.
    Balance,
    /// No more deliveries than the limit; attempts are claims without uncounted releases.
    Deliveries,
    /// Nothing due lies below a floor, no ordering key is stuck.
    Floors,
    /// Everything ends, and due work never waits for long beside a healthy worker.
    Liveness,
    /// Connections, memory and the write-ahead log stay within their bounds.
    Resources,
    /// No payload in a log.
    Secrecy,
    /// The database's own checks find nothing.
    Integrity,
}

impl Rule {
    /// All rules, in their order.
    pub const ALL: [Self; 14] = [
        Self::NothingLost,
        Self::NothingInvented,
        Self::OneClaim,
        Self::OneEnd,
        Self::Effects,
        Self::Exclusion,
        Self::Order,
        Self::Balance,
        Self::Deliveries,
        Self::Floors,
        Self::Liveness,
        Self::Resources,
        Self::Secrecy,
        Self::Integrity,
    ];

    /// The name of the rule, as `verdict.json` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NothingLost => "nothing_lost",
            Self::NothingInvented => "nothing_invented",
            Self::OneClaim => "one_claim",
            Self::OneEnd => "one_end",
            Self::Effects => "effects",
            Self::Exclusion => "exclusion",
            Self::Order => "order",
            Self::Balance => "balance",
            Self::Deliveries => "deliveries",
            Self::Floors => "floors",
            Self::Liveness => "liveness",
            Self::Resources => "resources",
            Self::Secrecy => "secrecy",
            Self::Integrity => "integrity",
        }
    }

    /// What the rule promises, in a sentence.
    pub const fn promise(self) -> &'static str {
        match self {
            Self::NothingLost => {
                "A message whose enqueue was answered ends, or an operator's call accounts for it."
            }
            Self::NothingInvented => "No message is claimed whose transaction was rolled back.",
            Self::OneClaim => "A generation is handed out once; generations grow over an id's whole life.",
            Self::OneEnd => "A claim is ended once; an acked message is never claimed again.",
            Self::Effects => "A message that is completed in its handler's transaction has one effect.",
            Self::Exclusion => {
                "One message of an ordering key is in progress at a time; a lease, a reservation and a bucket have one holder."
            }
            Self::Order => "Messages of an ordering key are handled in order.",
            Self::Balance => {
                "Ledger and queue agree, jobs have one run for each occurrence, joins count each member once."
            }
            Self::Deliveries => "No message is delivered more often than the limit allows.",
            Self::Floors => "No due message is hidden from claims.",
            Self::Liveness => {
                "All work ends, and due work waits for at most two leases beside a healthy worker."
            }
            Self::Resources => "Connections, memory and the write-ahead log stay within their bounds.",
            Self::Secrecy => "No payload is in a log.",
            Self::Integrity => "The database's own checks find nothing.",
        }
    }
}
