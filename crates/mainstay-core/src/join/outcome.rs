//! What came of an operation on a join.

use crate::id::{JoinId, WorkItemId};

use super::{JoinReason, JoinState};

/// How a step has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Well.
    Completed,
    /// Not well.
    Failed,
}

impl Step {
    /// As the databases keep it: the state of a member, and of a join that ends so.
    pub const fn code(self) -> i16 {
        match self {
            Self::Completed => 1,
            Self::Failed => 2,
        }
    }

    /// What it is called.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Steps that were counted for a join, and how it stands since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The join.
    pub join: JoinId,
    /// How many completed steps were counted.
    pub completed: u32,
    /// How many failed ones.
    pub failed: u32,
    /// How the join stands now.
    pub state: JoinState,
    /// Why it has failed, if it has.
    pub reason: Option<JoinReason>,
}

/// What an attach has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attached {
    /// How many of the items were not members before.
    pub added: u64,
    /// What was counted at once, because it had ended already; none if nothing was.
    pub counted: Option<Counted>,
}

/// What a report has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// The step was counted.
    Counted(Counted),
    /// The step had been counted before, by whomever. Nothing has changed.
    Already,
    /// The join had ended. Nothing has changed.
    Ended(JoinState),
}

/// What a cancel has done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CancelledJoin {
    /// False when the join had ended already; nothing has changed then.
    pub changed: bool,
    /// Those of its messages that were waiting, and are cancelled now.
    pub messages: Vec<WorkItemId>,
    /// What that meant for other joins.
    pub counted: Vec<Counted>,
}
