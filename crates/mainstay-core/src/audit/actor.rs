//! Who does something.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::text::validate_name;

/// Who does something: a person, a program, a part of one. 1 to 255 characters, checked when it is used.
///
/// Handles of the library have the actor `library:` and the name of the program, unless told otherwise with `by`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Actor(Arc<str>);

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
        &self.0
    }

    /// Refuses one that is empty, over-long or has a NUL character.
    pub fn validate(&self, operation: &'static str) -> Result<()> {
        validate_name(operation, "actor", &self.0)
    }
}

impl From<&str> for Actor {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl From<String> for Actor {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<&Actor> for Actor {
    fn from(actor: &Actor) -> Self {
        actor.clone()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
}
