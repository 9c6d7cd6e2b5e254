//! What happens when a job is due while an earlier run of it is not over.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// What happens when a job is due while an earlier run of it is not over. The numbers are those in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overlap {
    /// The runs go on beside each other.
    #[default]
    Allow = 0,
    /// The new run is recorded as skipped.
    Skip = 1,
    /// The new run waits until the earlier ones are over.
    Queue = 2,
}

impl Overlap {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Skip, Self::Queue];

    /// The number in the tables.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The one with this number.
    pub fn from_code(code: i16) -> Result<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.code() == code).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "job.overlap", format!("{code} is no overlap policy (0 to 2)"))
        })
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Skip => "skip",
            Self::Queue => "queue",
        }
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Overlap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|overlap| overlap.as_str() == text).ok_or_else(|| {
            Error::invalid(
                "job.overlap",
                "overlap",
                format_args!("must be allow, skip or queue, got {text:?}"),
            )
        })
    }
}
