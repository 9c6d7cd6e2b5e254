//! Operations as they stand in the database.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::identifier;
use crate::text::error_text;

use super::Progress;

identifier!(
    /// One operation.
    OperationId
);

/// How an operation stands. All but running are ends, and an end stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationState {
    /// It is under way, as far as anybody knows.
    #[default]
    Running,
    /// It was done.
    Succeeded,
    /// It failed, or whoever worked on it let go of it.
    Failed,
    /// It was called off.
    Cancelled,
    /// It showed no sign of life and was given up.
    Stalled,
}

impl OperationState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Stalled];

    /// As texts have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Stalled => "stalled",
        }
    }

    /// Whether it is an end.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Running)
    }

    /// As the tables have it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// From a table.
    pub fn from_code(code: i16) -> Result<Self> {
        let odd = || Error::new(ErrorKind::Internal, "operation.read", format!("there is no state {code}"));
        Self::ALL.into_iter().find(|state| state.code() == code).ok_or_else(odd)
    }
}

impl fmt::Display for OperationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OperationState {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let reason =
                format_args!("must be running, succeeded, failed, cancelled or stalled, got {text:?}");
            Error::invalid("operation.parse", "state", reason)
        })
    }
}

/// How an operation ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationEnd {
    /// It was done.
    Succeeded,
    /// It failed, and why. The text is cut to 2,048 characters.
    Failed(String),
    /// It was called off.
    Cancelled,
}

impl OperationEnd {
    /// Failed, for this reason.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// The state it has afterwards.
    pub const fn state(&self) -> OperationState {
        match self {
            Self::Succeeded => OperationState::Succeeded,
            Self::Failed(_) => OperationState::Failed,
            Self::Cancelled => OperationState::Cancelled,
        }
    }

    /// The error as it is stored.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Failed(error) => error_text(error),
            Self::Succeeded | Self::Cancelled => None,
        }
    }
}

/// What came of ending an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the operation may have had another end before"]
pub enum Ended {
    /// It ended by this.
    Now,
    /// It had ended before, in this state, and was not changed.
    Before(OperationState),
}

/// An operation, as it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// The operation.
    pub id: OperationId,
    /// What it is: `import`.
    pub name: String,
    /// What it is a part of, if anything. That may have been forgotten since.
    pub parent: Option<OperationId>,
    /// How it stands.
    pub state: OperationState,
    /// How far it has come.
    pub progress: Progress,
    /// Why it failed.
    pub error: Option<String>,
    /// Who started it.
    pub actor: String,
    /// What it belongs to, if anything.
    pub correlation_id: Option<String>,
    /// What it is found by.
    pub tags: BTreeMap<String, String>,
    /// How many events it has.
    pub events: u64,
    /// When it was started, by the database's clock.
    pub started_at: Timestamp,
    /// When it last showed a sign of life, by the database's clock.
    pub updated_at: Timestamp,
    /// When it ended, by the database's clock.
    pub ended_at: Option<Timestamp>,
}

/// Something that happened in an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OperationEvent {
    /// Its number in the operation, from 1.
    pub seq: u64,
    /// When, by the database's clock.
    pub recorded_at: Timestamp,
    /// What kind of thing.
    pub kind: String,
    /// What happened, for people.
    pub message: Option<String>,
    /// What happened, for programs.
    pub data: Option<serde_json::Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_read_as_they_are_written() {
        for state in OperationState::ALL {
            assert_eq!(OperationState::from_code(state.code()).unwrap(), state);
            assert_eq!(state.as_str().parse::<OperationState>().unwrap(), state);
            assert_eq!(state.is_terminal(), state != OperationState::Running);
        }
        assert!(OperationState::from_code(5).is_err());
        assert_eq!("done".parse::<OperationState>().unwrap_err().field(), Some("state"));
    }

    #[test]
    fn an_error_is_cut() {
        let error = OperationEnd::failed("x".repeat(5_000)).error();
        assert_eq!(error.map(|text| text.len()), Some(2_048));
        assert_eq!(OperationEnd::failed("").error(), None);
        assert_eq!(OperationEnd::Succeeded.error(), None);
    }
}
