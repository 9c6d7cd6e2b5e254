//! How far an operation has come.

use serde::Serialize;

use crate::error::{Error, Result};
use crate::text::error_text;

/// How far an operation has come. What is not given stays as it was, so that an empty one is a mere sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Progress {
    /// How much is done, in whatever the operation counts.
    pub done: Option<u64>,
    /// How much there is. It may turn out to be more or less.
    pub total: Option<u64>,
    /// What it is at, for people; cut to 2,048 characters.
    pub message: Option<String>,
}

impl Progress {
    /// So much is done.
    pub fn done(done: u64) -> Self {
        Self { done: Some(done), ..Self::default() }
    }
    /// A sign of life, and nothing else.
    pub fn alive() -> Self {
        Self::default()
    }
    /// Of so much.
    #[must_use]
    pub fn of(mut self, total: u64) -> Self {
        self.total = Some(total);
        self
    }
    /// What it is at.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// How much of it is done, 0 to 1, where both are known.
    pub fn fraction(&self) -> Option<f64> {
        let (done, total) = (self.done?, self.total.filter(|total| *total > 0)?);
        Some((done as f64 / total as f64).min(1.0))
    }

    /// Refuses numbers that a database can't hold, and cuts the message.
    pub fn prepare(mut self, operation: &'static str) -> Result<Self> {
        for (field, number) in [("done", self.done), ("total", self.total)] {
            if let Some(got) = number.filter(|number| i64::try_from(*number).is_err()) {
                let reason = format_args!("must be at most {}, got {got}", i64::MAX);
                return Err(Error::invalid(operation, field, reason));
            }
        }
        self.message = self.message.as_deref().and_then(error_text);
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_bounded_and_messages_cut() {
        let max = i64::MAX.unsigned_abs();
        assert!(Progress::done(max).of(max).prepare("t").is_ok());
        assert_eq!(Progress::done(max + 1).prepare("t").unwrap_err().field(), Some("done"));
        assert_eq!(Progress::alive().of(u64::MAX).prepare("t").unwrap_err().field(), Some("total"));
        let told = Progress::alive().message("a\0b".repeat(1_000)).prepare("t").unwrap().message.unwrap();
        assert_eq!((told.chars().count(), told.contains('\0')), (2_048, false));
        assert_eq!(Progress::alive().message("").prepare("t").unwrap(), Progress::alive());
    }

    #[test]
    fn a_fraction_needs_both_numbers() {
        assert_eq!(Progress::done(1).of(4).fraction(), Some(0.25));
        assert_eq!(Progress::done(9).of(4).fraction(), Some(1.0));
        assert_eq!(Progress::done(9).of(0).fraction(), None);
        assert_eq!(Progress::done(9).fraction(), None);
    }
}
