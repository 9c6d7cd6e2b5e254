//! What is to be started, and its rules.

use std::collections::BTreeMap;

use crate::audit::Actor;
use crate::error::{Error, Result};
use crate::text::{validate_name, validate_nul};

use super::{OperationId, Progress};

const START: &str = "operation.start";

/// An operation to start.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an operation is only there once it is started"]
pub struct NewOperation {
    name: String,
    parent: Option<OperationId>,
    correlation_id: Option<String>,
    progress: Progress,
    tags: BTreeMap<String, String>,
}

impl NewOperation {
    /// The most tags.
    pub const TAGS_MAX: usize = 32;

    /// The longest key of a tag, in characters.
    pub const TAG_KEY_MAX: usize = 64;

    /// An operation of this name, 1 to 255 characters: `import`. Names with dots are found by what they begin with.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parent: None,
            correlation_id: None,
            progress: Progress::default(),
            tags: BTreeMap::new(),
        }
    }
    /// What it is a part of. Defaults to nothing. That has to be there, and may have ended.
    pub fn parent(mut self, parent: OperationId) -> Self {
        self.parent = Some(parent);
        self
    }
    /// What it belongs to. Defaults to none; an empty one is none.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.correlation_id = Some(id.into()).filter(|id: &String| !id.is_empty());
        self
    }
    /// How much there is to do. Defaults to unknown.
    pub fn total(mut self, total: u64) -> Self {
        self.progress.total = Some(total);
        self
    }
    /// What it is at. Defaults to nothing.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.progress.message = Some(message.into());
        self
    }
    /// Adds what it is found by, a key of 1 to 64 characters and a value of 1 to 255. May be called again, up to 32 times; the same
    /// key again replaces the value.
    pub fn tag(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }

    /// Checks it and fills it up.
    pub fn prepare(self, actor: &Actor) -> Result<PreparedOperation> {
        validate_name(START, "name", &self.name)?;
        actor.validate(START)?;
        if let Some(id) = &self.correlation_id {
            validate_name(START, "correlation_id", id)?;
        }
        if self.tags.len() > Self::TAGS_MAX {
            let (max, got) = (Self::TAGS_MAX, self.tags.len());
            return Err(Error::invalid(START, "tags", format_args!("must be at most {max}, got {got}")));
        }
        self.tags.iter().try_for_each(|(key, value)| validate_tag(START, key, value))?;
        Ok(PreparedOperation {
            id: OperationId::new(),
            name: self.name,
            actor: actor.clone(),
            parent: self.parent,
            correlation_id: self.correlation_id,
            progress: self.progress.prepare(START)?,
            tags: self.tags,
        })
    }
}

/// Refuses a tag out of bounds.
pub(super) fn validate_tag(operation: &'static str, key: &str, value: &str) -> Result<()> {
    validate_nul(operation, "tag key", key)?;
    let got = key.chars().count();
    if !(1..=NewOperation::TAG_KEY_MAX).contains(&got) {
        let reason = format_args!("must be 1 to {} characters, got {got}", NewOperation::TAG_KEY_MAX);
        return Err(Error::invalid(operation, "tag key", reason));
    }
    validate_name(operation, "tag value", value)
}

/// A checked operation with its id, as a store starts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedOperation {
    /// The operation it becomes.
    pub id: OperationId,
    /// What it is.
    pub name: String,
    /// Who starts it.
    pub actor: Actor,
    /// What it is a part of.
    pub parent: Option<OperationId>,
    /// What it belongs to.
    pub correlation_id: Option<String>,
    /// How far it has come.
    pub progress: Progress,
    /// What it is found by.
    pub tags: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_out_of_bounds_is_refused_with_its_field() {
        let actor = Actor::from("alice");
        let new = || NewOperation::new("import");
        let many = (0..33).fold(new(), |new, n| new.tag(n.to_string(), "x"));
        for (new, field) in [
            (NewOperation::new(""), "name"),
            (NewOperation::new("x".repeat(256)), "name"),
            (NewOperation::new("a\0b"), "name"),
            (new().correlation_id("x".repeat(256)), "correlation_id"),
            (new().total(u64::MAX), "total"),
            (new().tag("", "1"), "tag key"),
            (new().tag("x".repeat(65), "1"), "tag key"),
            (new().tag("a\0b", "1"), "tag key"),
            (new().tag("k", ""), "tag value"),
            (new().tag("k", "x".repeat(256)), "tag value"),
            (new().tag("k", "a\0b"), "tag value"),
            (many, "tags"),
        ] {
            assert_eq!(new.prepare(&actor).unwrap_err().field(), Some(field));
        }
        assert_eq!(new().prepare(&Actor::from("")).unwrap_err().field(), Some("actor"));
    }
}
