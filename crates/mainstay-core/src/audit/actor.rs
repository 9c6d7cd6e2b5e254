//! Who does something, and what it belongs to.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::text::validate_name;

/// Who does something: a person, a program, a part of one. 1 to 255 characters, checked when it is used.
///
/// Handles of the library have the actor `library:` and the name of the program, unless told otherwise with `by`.
///
/// An actor may carry a correlation id, which the records of what is done then have: the number of a ticket, say.
///
/// ```
/// # use mainstay_core::audit::Actor;
/// let actor = Actor::from("alice").correlated("TICKET-42");
/// assert_eq!((actor.as_str(), actor.correlation_id()), ("alice", Some("TICKET-42")));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor {
    name: Arc<str>,
    correlation_id: Option<Arc<str>>,
}

impl Actor {
    /// This program, for whoever has not said who acts.
    pub fn library() -> Self {
        let path = std::env::current_exe().ok();
        let name = path.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy());
        let name = name.as_deref().unwrap_or("program");
        // A file's name may be as long as an actor's.
        Self::from(format!("library:{}", name.chars().filter(|c| *c != '\0').take(200).collect::<String>()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The same one, and what is done belongs to this: 1 to 255 characters, checked when it is used. An empty one is none.
    #[must_use]
    pub fn correlated(&self, id: impl AsRef<str>) -> Self {
        let id = Some(id.as_ref()).filter(|id| !id.is_empty());
        Self { name: Arc::clone(&self.name), correlation_id: id.map(Arc::from) }
    }

    /// What is done belongs to this, if anything.
    pub fn correlation_id(&self) -> Option<&str> {
        self.correlation_id.as_deref()
    }

    /// Refuses a name or a correlation id that is empty, over-long or has a NUL character.
    pub fn validate(&self, operation: &'static str) -> Result<()> {
        validate_name(operation, "actor", &self.name)?;
        match &self.correlation_id {
            Some(id) => validate_name(operation, "correlation_id", id),
            None => Ok(()),
        }
    }
}

impl From<&str> for Actor {
    fn from(name: &str) -> Self {
        Self { name: name.into(), correlation_id: None }
    }
}

impl From<String> for Actor {
    fn from(name: String) -> Self {
        Self { name: name.into(), correlation_id: None }
    }
}

impl From<&Actor> for Actor {
    fn from(actor: &Actor) -> Self {
        actor.clone()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_names_the_program() {
        let actor = Actor::library();
        assert!(actor.as_str().starts_with("library:"), "{actor}");
        actor.validate("t").unwrap();
    }

    #[test]
    fn an_actor_is_checked_when_it_is_used() {
        for wrong in ["", "a\0b", &"x".repeat(256)] {
            assert_eq!(Actor::from(wrong).validate("t").unwrap_err().field(), Some("actor"));
        }
    }

    #[test]
    fn a_correlation_id_is_checked_when_it_is_used() {
        let alice = Actor::from("alice");
        for wrong in ["a\0b", &"x".repeat(256)] {
            let error = alice.correlated(wrong).validate("t").unwrap_err();
            assert_eq!(error.field(), Some("correlation_id"));
        }
        alice.correlated("x".repeat(255)).validate("t").unwrap();
        assert_eq!(alice.correlated("a").correlated(""), alice);
    }
}
