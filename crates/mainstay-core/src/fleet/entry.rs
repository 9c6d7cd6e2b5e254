//! A database as discovery tells of it, and the key by which it is asked for.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use crate::error::Result;
use crate::store::Names;
use crate::text::validate_name;

/// One database of the fleet. Two entries that are equal are the same database set up the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatabaseEntry {
    /// Tells it from all others, for as long as it exists: 1 to 255 characters. A UUID is its hyphenated lower-case text.
    pub id: String,
    /// Where it is.
    pub target: Target,
    /// The names of its tables. Defaults to those of a database on its own.
    pub names: Names,
    /// Whatever else the connector wants to know. A change makes the fleet connect anew. Defaults to nothing.
    pub options: BTreeMap<String, String>,
}

impl DatabaseEntry {
    /// The database `id` at `target`, most often a URL.
    pub fn new(id: impl Into<StoreKey>, target: impl Into<String>) -> Self {
        Self {
            id: id.into().0,
            target: Target(target.into()),
            names: Names::default(),
            options: BTreeMap::new(),
        }
    }

    /// The names of its tables.
    #[must_use]
    pub fn names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Something else the connector wants to know.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Refuses an id that is empty, too long, or can't be stored as a name.
    pub fn validate(&self) -> Result<()> {
        validate_name("fleet.discover", "id", &self.id)
    }
}

/// Where a database is. It may hold a password, so it says nothing of itself.
#[derive(Clone, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// The text, for a connector. Never to be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target(…)")
    }
}

/// The key a database is asked for by: its id, as text or as a UUID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreKey(pub(super) String);

impl StoreKey {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for StoreKey {
    fn from(key: &str) -> Self {
        Self(key.to_owned())
    }
}

impl From<String> for StoreKey {
    fn from(key: String) -> Self {
        Self(key)
    }
}

impl From<&String> for StoreKey {
    fn from(key: &String) -> Self {
        Self(key.clone())
    }
}

impl From<Uuid> for StoreKey {
    fn from(key: Uuid) -> Self {
        Self(key.hyphenated().to_string())
    }
}

impl From<&Uuid> for StoreKey {
    fn from(key: &Uuid) -> Self {
        Self::from(*key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_lower_case_text() {
        let key = Uuid::from_u128(0xABCD_EF00);
        assert_eq!(StoreKey::from(key).as_str(), "00000000-0000-0000-0000-0000abcdef00");
        assert_eq!(DatabaseEntry::new(key, "x").id, "00000000-0000-0000-0000-0000abcdef00");
    }

    #[test]
    fn an_entry_shows_no_password() {
        let entry = DatabaseEntry::new("a", "postgres://app:secret@db/a");
        assert!(!format!("{entry:?}").contains("secret"));
        assert!(entry.target.expose().contains("secret"));
    }
}
