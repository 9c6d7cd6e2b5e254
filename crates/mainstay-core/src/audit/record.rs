//! Records as they stand in the trail.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};
use crate::id::identifier;
use crate::text::validate_nul;

identifier!(
    /// One record of the audit trail.
    AuditId
);

/// What came of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditOutcome {
    /// It was done.
    #[default]
    Succeeded,
    /// It was tried and failed.
    Failed,
    /// It was not tried: it was not allowed, or made no sense.
    Refused,
}

impl AuditOutcome {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::Refused];

    /// As texts have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    /// As the tables have it.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// From a table.
    pub fn from_code(code: i16) -> Result<Self> {
        let odd = || Error::new(ErrorKind::Internal, "audit.read", format!("there is no outcome {code}"));
        Self::ALL.into_iter().find(|outcome| outcome.code() == code).ok_or_else(odd)
    }
}

impl fmt::Display for AuditOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AuditOutcome {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text).ok_or_else(|| {
            let reason = format_args!("must be succeeded, failed or refused, got {text:?}");
            Error::invalid("audit.parse", "outcome", reason)
        })
    }
}

/// What a record is about: `order` 42, `job` nightly. Records are found by it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Anchor {
    /// What kind of thing, 1 to 64 characters.
    pub kind: String,
    /// Which one, 1 to 512 characters.
    pub value: String,
}

impl Anchor {
    /// The longest kind, in characters.
    pub const KIND_MAX: usize = 64;

    /// The longest value, in characters.
    pub const VALUE_MAX: usize = 512;

    /// That thing.
    pub fn new(kind: impl Into<String>, value: impl Into<String>) -> Self {
        Self { kind: kind.into(), value: value.into() }
    }

    /// Refuses a kind or value out of bounds.
    pub fn validate(&self, operation: &'static str) -> Result<()> {
        let parts =
            [("anchor kind", &self.kind, Self::KIND_MAX), ("anchor value", &self.value, Self::VALUE_MAX)];
        for (field, text, max) in parts {
            validate_nul(operation, field, text)?;
            let got = text.chars().count();
            if !(1..=max).contains(&got) {
                let reason = format_args!("must be 1 to {max} characters, got {got}");
                return Err(Error::invalid(operation, field, reason));
            }
        }
        Ok(())
    }
}

/// One record, as it stands in the trail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AuditRecord {
    /// The record.
    pub id: AuditId,
    /// When it was written, by the database's clock.
    pub recorded_at: Timestamp,
    /// What was done: `outbox.requeue`.
    pub name: String,
    /// Who did it.
    pub actor: String,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// What it belongs to, if anything.
    pub correlation_id: Option<String>,
    /// What else there is to tell.
    pub data: Option<serde_json::Value>,
    /// What it is about, in order: the first 100.
    pub anchors: Vec<Anchor>,
}

impl AuditRecord {
    /// How many anchors are told at most. An action on very many things has more.
    pub const ANCHORS_SHOWN: usize = 100;

    /// A record; stores set the rest.
    pub fn new(id: AuditId, recorded_at: Timestamp, name: String, actor: String) -> Self {
        Self {
            id,
            recorded_at,
            name,
            actor,
            outcome: AuditOutcome::default(),
            correlation_id: None,
            data: None,
            anchors: Vec::new(),
        }
    }
}
