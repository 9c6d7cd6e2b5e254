//! The identifiers. Each is its own type, so that one can't be passed for another.

use crate::error::{Error, Result};

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
                Self(::uuid::Uuid::now_v7())
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
