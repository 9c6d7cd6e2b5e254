//! Rules for short texts: topics, keys, correlation ids, error texts.
//!
//! Lengths are counted in characters, as the databases count them.

use crate::error::{Error, Result};

/// The longest topic, key or correlation id, in characters.
pub const NAME_MAX: usize = 255;

/// The longest error text that is kept, in characters (R6).
pub const ERROR_MAX: usize = 2_048;

/// Refuses an empty or over-long name and one with a NUL character.
pub fn validate_name(operation: &'static str, field: &'static str, value: &str) -> Result<()> {
    validate_nul(operation, field, value)?;
    // A byte is at most a character, so most names are settled without counting.
    if value.is_empty() || (value.len() > NAME_MAX && value.chars().count() > NAME_MAX) {
        let got = value.chars().count();
        return Err(Error::invalid(
            operation,
            field,
            format_args!("must be 1 to {NAME_MAX} characters, got {got}"),
        ));
    }
    Ok(())
}

/// Refuses a NUL character, which PostgreSQL can't store in a text.
pub fn validate_nul(operation: &'static str, field: &'static str, value: &str) -> Result<()> {
    match value.find('\0') {
        None => Ok(()),
        Some(at) => Err(Error::invalid(
            operation,
            field,
            format_args!("must not contain a NUL character (found at byte {at})"),
        )),
    }
}

/// An error text as it is stored: trimmed to [`ERROR_MAX`] characters, NULs replaced, nothing when empty.
pub fn error_text(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let kept = text.chars().take(ERROR_MAX);
    Some(kept.map(|c| if c == '\0' { '\u{fffd}' } else { c }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_counted_in_characters() {
        assert!(validate_name("t", "topic", &"ü".repeat(255)).is_ok());
        let error = validate_name("t", "topic", &"ü".repeat(256)).unwrap_err();
        assert_eq!(error.message(), "topic must be 1 to 255 characters, got 256");
        assert!(validate_name("t", "topic", "").is_err());
        assert!(validate_name("t", "topic", "a\0b").is_err());
    }

    #[test]
    fn error_texts_are_bounded_and_clean() {
        assert_eq!(error_text(""), None);
        assert_eq!(error_text("a\0b").as_deref(), Some("a\u{fffd}b"));
        assert_eq!(error_text(&"é".repeat(3000)).unwrap().chars().count(), 2048);
    }
}
