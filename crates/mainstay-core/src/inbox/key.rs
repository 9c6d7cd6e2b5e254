//! What a received message is known by.

use std::fmt;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::{NAME_MAX, validate_nul};

/// Where a message comes from and its id there: together they are one message (R13).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct InboxKey {
    source: String,
    message_id: String,
}

impl InboxKey {
    /// The longest message id, in characters.
    pub const MESSAGE_ID_MAX: usize = 512;

    /// A message of `source`: 1 to 255 characters, and its id there: 1 to 512 characters, neither of them blank.
    pub fn new(source: impl Into<String>, message_id: impl Into<String>) -> Result<Self> {
        let key = Self { source: source.into(), message_id: message_id.into() };
        validate("source", &key.source, NAME_MAX)?;
        validate("message_id", &key.message_id, Self::MESSAGE_ID_MAX)?;
        Ok(key)
    }

    /// Where it comes from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its id there.
    pub fn message_id(&self) -> &str {
        &self.message_id
    }
}

impl fmt::Display for InboxKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.source, self.message_id)
    }
}

fn validate(field: &'static str, value: &str, most: usize) -> Result<()> {
    const KEY: &str = "inbox.key";
    validate_nul(KEY, field, value)?;
    // A byte is at most a character, so most are settled without counting.
    if value.is_empty() || (value.len() > most && value.chars().count() > most) {
        let got = value.chars().count();
        return Err(Error::invalid(KEY, field, format_args!("must be 1 to {most} characters, got {got}")));
    }
    if value.trim().is_empty() {
        return Err(Error::invalid(KEY, field, "must not be blank"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_are_bounded_and_told_apart() {
        assert!(InboxKey::new("s".repeat(255), "é".repeat(512)).is_ok());
        for (source, id, field) in [
            ("", "m", "source"),
            (" \t", "m", "source"),
            ("s\0", "m", "source"),
            ("s", "", "message_id"),
            ("s", "\n", "message_id"),
        ] {
            assert_eq!(InboxKey::new(source, id).unwrap_err().field(), Some(field), "{source:?} {id:?}");
        }
        assert_eq!(InboxKey::new("s".repeat(256), "m").unwrap_err().field(), Some("source"));
        let error = InboxKey::new("s", "é".repeat(513)).unwrap_err();
        assert_eq!(error.message(), "message_id must be 1 to 512 characters, got 513");
    }
}
