//! The identifiers. Each is its own type, so that one can't be passed for another.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use uuid::{ContextV7, Timestamp, Uuid};

use crate::error::{Error, Result};

/// A new UUIDv7. Those of one process are ordered by their making.
pub(crate) fn time_ordered() -> Uuid {
    made_at(SystemTime::now())
}

/// The same at this time. Before 1970 there are none to be had; a clock that stands there, as one without a battery does until it is
/// told the time, keeps nobody from working: it counts as 1970.
fn made_at(now: SystemTime) -> Uuid {
    static ORDER: Mutex<ContextV7> = Mutex::new(ContextV7::new());
    // Not zero: that is what the context knows of no time by, and it would count without a random start.
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().max(Duration::from_millis(1));
    // What is guarded has no state between two calls that a panic could leave half done.
    let order = ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    Uuid::new_v7(Timestamp::from_unix(&*order, since.as_secs(), since.subsec_nanos()))
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(::uuid::Uuid);

        impl $name {
            /// A new identifier, ordered by the time of its making (UUIDv7).
            #[allow(clippy::new_without_default, reason = "each call gives another value")]
            pub fn new() -> Self {
                Self($crate::id::time_ordered())
            }

            /// The identifier with this value.
            pub const fn from_uuid(value: ::uuid::Uuid) -> Self {
                Self(value)
            }

            /// The bare value.
            pub const fn as_uuid(&self) -> ::uuid::Uuid {
                self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&self.0, f)
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> $crate::error::Result<Self> {
                ::uuid::Uuid::parse_str(text).map(Self).map_err(|_| {
                    $crate::error::Error::invalid("id.parse", "id", format_args!("must be a UUID, got {text:?}"))
                })
            }
        }
    };
}

pub(crate) use identifier;

identifier!(
    /// One row in a work queue: what workers claim and settle.
    WorkItemId
);
identifier!(
    /// The message itself. It stays the same over all retries, so receivers can deduplicate by it.
    MessageId
);
identifier!(
    /// A join: what waits until several steps have ended.
    JoinId
);
identifier!(
    /// A worker. Only the owner of a claim can settle it.
    OwnerToken
);

impl OwnerToken {
    /// Refuses the nil token, which the contract forbids as an owner (R10).
    pub fn validate(&self, operation: &'static str) -> Result<()> {
        if self.0.is_nil() {
            return Err(Error::invalid(
                operation,
                "owner",
                "must not be the nil UUID; make one with OwnerToken::new()",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_before_1970_makes_ids_too() {
        let long_ago = SystemTime::UNIX_EPOCH - Duration::from_secs(86_400);
        let made: std::collections::BTreeSet<Uuid> =
            [long_ago, long_ago, SystemTime::UNIX_EPOCH].into_iter().map(made_at).collect();
        assert_eq!(made.len(), 3);
        assert!(made.iter().all(|id| id.get_version_num() == 7), "{made:?}");
    }

    #[test]
    fn ids_are_ordered_by_their_making() {
        let made: Vec<WorkItemId> = (0..1_000).map(|_| WorkItemId::new()).collect();
        assert!(made.is_sorted());
    }
}
