//! A join as it is stored.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{JoinId, WorkItemId};

use super::JoinMode;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident ($field:literal) { $($(#[$variant_doc:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$variant_doc])* $variant),+ }

        impl $name {
            /// All of them, in the order of their codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// What it is called.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// As the databases keep it.
            pub const fn code(self) -> i16 {
                self as i16
            }

            /// The one with this code.
            pub fn from_code(code: i16) -> Result<Self> {
                Self::ALL.iter().copied().find(|one| one.code() == code).ok_or_else(|| {
                    let message = format!(concat!("there is no ", $field, " with the code {}"), code);
                    Error::new(ErrorKind::Internal, "join.read", message)
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = Error;

            fn from_str(text: &str) -> Result<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == text).ok_or_else(|| {
                    let known = Self::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ");
                    Error::invalid("join.parse", $field, format_args!("must be one of {known}, got {text:?}"))
                })
            }
        }
    };
}

named! {
    /// How a join stands. What is not Pending stays as it is.
    JoinState("state") {
        /// It waits for its steps.
        Pending = "pending",
        /// It has completed.
        Completed = "completed",
        /// It has failed; the reason says why.
        Failed = "failed",
        /// Somebody has cancelled it.
        Cancelled = "cancelled",
    }
}

named! {
    /// Why a join has failed.
    JoinReason("reason") {
        /// Steps have failed.
        Steps = "steps",
        /// Its deadline has passed.
        Deadline = "deadline",
    }
}

named! {
    /// How a member stands for its join.
    MemberState("member state") {
        /// It is not counted.
        Pending = "pending",
        /// It is counted as completed.
        Completed = "completed",
        /// It is counted as failed.
        Failed = "failed",
        /// It was cancelled with the join.
        Cancelled = "cancelled",
    }
}

/// A join.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Join {
    /// Its id.
    pub id: JoinId,
    /// What it is found by.
    pub grouping_key: Option<String>,
    /// When it has ended, and how.
    pub mode: JoinMode,
    /// How many steps it has.
    pub expected: u32,
    /// How many have completed.
    pub completed: u32,
    /// How many have failed.
    pub failed: u32,
    /// How it stands.
    pub state: JoinState,
    /// Why it has failed, if it has.
    pub reason: Option<JoinReason>,
    /// When it ends at the latest.
    pub deadline_at: Option<Timestamp>,
    /// When it was started.
    pub created_at: Timestamp,
    /// When it last changed: a step was counted, or it ended.
    pub updated_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

impl Join {
    /// How many steps are still to be counted.
    pub fn remaining(&self) -> u32 {
        self.expected.saturating_sub(self.completed.saturating_add(self.failed))
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.state != JoinState::Pending
    }
}

/// A member of a join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JoinMember {
    /// The message, or whatever else the step is.
    pub work_item: WorkItemId,
    /// How it stands.
    pub state: MemberState,
    /// When that last changed.
    pub updated_at: Timestamp,
}

impl JoinMember {
    pub(super) fn new(work_item: WorkItemId, state: MemberState, updated_at: Timestamp) -> Self {
        Self { work_item, state, updated_at }
    }
}

/// How many joins stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct JoinStats {
    /// Those that wait for their steps.
    pub pending: u64,
    /// Of these, those whose deadline has passed.
    pub overdue: u64,
}

impl JoinStats {
    pub(super) fn new(pending: u64, overdue: u64) -> Self {
        Self { pending, overdue }
    }
}
