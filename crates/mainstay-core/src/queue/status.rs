//! Where a work item stands.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::{Error, ErrorKind, Result};

/// Where a work item stands (R1). The numbers are those in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Waiting to be claimed, now or once it is due.
    Ready = 0,
    /// Held by a worker.
    InProgress = 1,
    /// Handled.
    Done = 2,
    /// Failed for good.
    Failed = 3,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Ready, Self::InProgress, Self::Done, Self::Failed];

    /// The number in the tables.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The status with this number.
    pub fn from_code(code: i16) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "queue.status", format!("{code} is no status (0 to 3)"))
        })
    }

    /// Whether nothing changes it any more, short of a requeue.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::InProgress => "in-progress",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|status| status.name() == text).ok_or_else(|| {
            Error::invalid(
                "queue.status",
                "status",
                format_args!("must be ready, in-progress, done or failed, got {text:?}"),
            )
        })
    }
}

/// Why a work item failed for good. The texts are those in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureReason {
    /// A worker failed it.
    Handler,
    /// It was delivered as often as the limit allows (R3).
    DeliveryLimit,
    /// Its expiry passed before a handler had it (MST-042).
    Expired,
    /// It was cancelled before it started.
    Cancelled,
}

impl FailureReason {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Handler, Self::DeliveryLimit, Self::Expired, Self::Cancelled];

    /// The text in the tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Handler => "handler",
            Self::DeliveryLimit => "delivery-limit",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for FailureReason {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            Error::invalid(
                "queue.reason",
                "reason",
                format_args!("must be handler, delivery-limit, expired or cancelled, got {text:?}"),
            )
        })
    }
}
