//! What happens in an operation, and its rules.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::text::{error_text, validate_nul};

const EVENT: &str = "operation.event";

/// Something that happened, to be recorded.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "an event is only recorded once it is given to an operation"]
pub struct NewEvent {
    kind: String,
    message: Option<String>,
    data: Option<Value>,
}

impl NewEvent {
    /// The longest kind, in characters.
    pub const KIND_MAX: usize = 64;

    /// The longest data, in bytes of JSON.
    pub const DATA_MAX: usize = 16 << 10;

    /// Something of this kind: `retry`, `page`. 1 to 64 characters.
    pub fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: None, data: None }
    }
    /// What happened, for people; cut to 2,048 characters. Defaults to nothing.
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }
    /// What happened, for programs, at most 16 KiB of JSON. Defaults to nothing. Secrets do not belong here.
    pub fn data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }

    /// Checks it.
    pub fn prepare(self) -> Result<PreparedEvent> {
        validate_nul(EVENT, "kind", &self.kind)?;
        let got = self.kind.chars().count();
        if !(1..=Self::KIND_MAX).contains(&got) {
            let reason = format_args!("must be 1 to {} characters, got {got}", Self::KIND_MAX);
            return Err(Error::invalid(EVENT, "kind", reason));
        }
        let data = self.data.map(|data| data.to_string());
        if let Some(got) = data.as_ref().map(String::len).filter(|got| *got > Self::DATA_MAX) {
            let reason = format_args!("must be at most {} bytes of JSON, got {got}", Self::DATA_MAX);
            return Err(Error::invalid(EVENT, "data", reason));
        }
        Ok(PreparedEvent { kind: self.kind, message: self.message.as_deref().and_then(error_text), data })
    }
}

/// A checked event, as a store writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedEvent {
    /// What kind of thing.
    pub kind: String,
    /// What happened, for people.
    pub message: Option<String>,
    /// What happened, for programs, as JSON.
    pub data: Option<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_out_of_bounds_is_refused_with_its_field() {
        let long = json!("x".repeat(NewEvent::DATA_MAX));
        for (event, field) in [
            (NewEvent::new(""), "kind"),
            (NewEvent::new("x".repeat(65)), "kind"),
            (NewEvent::new("a\0b"), "kind"),
            (NewEvent::new("a").data(long), "data"),
        ] {
            assert_eq!(event.prepare().unwrap_err().field(), Some(field));
        }
        let event = NewEvent::new("ü".repeat(64)).message("").data(json!("x".repeat(NewEvent::DATA_MAX - 2)));
        assert_eq!(event.prepare().unwrap().message, None);
    }
}
