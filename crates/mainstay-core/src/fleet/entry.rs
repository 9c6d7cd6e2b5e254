//! A database as discovery tells of it, and the key by which it is asked for.

use std::collections::BTreeMap;
use std::fmt;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::store::Names;
use crate::text::validate_name;

const DISCOVER: &str = "fleet.discover";

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

    /// Sets what a file or a query may say of a database beside its id and URL, by the name it says it under: `schema`; `outbox_table`,
    /// `timers_table` and so on for [`Names::with_table`]; `options`, a JSON object with a text for each. None leaves it at its default.
    /// Any other name is refused, so that what is misspelt is not silently left out.
    pub fn set(mut self, field: &str, value: Option<&str>) -> Result<Self> {
        match (field, field.strip_suffix("_table")) {
            ("schema", _) => {
                if let Some(value) = value {
                    self.names = self.names.with_schema(value)?;
                }
            }
            ("options", _) => self.options.extend(value.map(options).transpose()?.unwrap_or_default()),
            (_, Some(table)) => {
                let named = self.names.clone().with_table(table, value.unwrap_or(table))?;
                self.names = if value.is_some() { named } else { self.names };
            }
            (_, None) => {
                let reason = format_args!(
                    "has {field:?}, which is not known: beside its id and URL it may have a schema, options, and names of \
                     tables such as outbox_table"
                );
                return Err(Error::invalid(DISCOVER, "database", reason));
            }
        }
        Ok(self)
    }

    /// Refuses an id that is empty, too long, or can't be stored as a name.
    pub fn validate(&self) -> Result<()> {
        validate_name(DISCOVER, "id", &self.id)
    }
}

fn options(text: &str) -> Result<BTreeMap<String, String>> {
    // What stands there may be a password.
    serde_json::from_str(text)
        .map_err(|_| Error::invalid(DISCOVER, "options", "must be a JSON object with a text for each option"))
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
    fn what_is_said_of_a_database_is_known_or_refused() {
        let entry = || DatabaseEntry::new("a", "x");
        let names = Names::default().with_schema("work").unwrap().with_outbox("mail").unwrap();
        let set = entry().set("schema", Some("work")).unwrap().set("outbox_table", Some("mail")).unwrap();
        assert_eq!(set, entry().names(names));
        let set = set.set("job_runs_table", Some("runs")).unwrap();
        let set = set.set("options", Some(r#"{"region": "eu"}"#)).unwrap();
        assert_eq!((set.names.job_runs().as_str(), set.options["region"].as_str()), ("runs", "eu"));
        for known in ["schema", "lease_table", "options"] {
            assert_eq!(entry().set(known, None).unwrap(), entry());
        }
        assert!(entry().set("shema", None).is_err() && entry().set("none_table", None).is_err());
        for (field, value) in [
            ("shema", "work"),
            ("tables", "{}"),
            ("none_table", "x"),
            ("_table", "x"),
            ("schema", ""),
            ("outbox_table", "a$b"),
            ("options", "secret"),
            ("options", r#"{"secret": 1}"#),
        ] {
            let error = entry().set(field, Some(value)).unwrap_err();
            assert!(error.field().is_some() && !error.to_string().contains("secret"), "{field}: {error}");
        }
    }

    #[test]
    fn an_entry_shows_no_password() {
        let entry = DatabaseEntry::new("a", "postgres://app:secret@db/a");
        assert!(!format!("{entry:?}").contains("secret"));
        assert!(entry.target.expose().contains("secret"));
    }
}
