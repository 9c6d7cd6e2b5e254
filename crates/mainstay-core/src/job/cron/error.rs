//! What is wrong with a cron expression, and where.

use std::fmt;
use std::ops::Range;

use crate::error::Error;

use super::field::CronField;

/// What is wrong with a cron expression, and where: the field, its position, its text and what it allows.
///
/// `?` turns it into an [`Error`] with the field `cron`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronError {
    /// With one blank between fields, so that the pointer below it is right.
    expression: String,
    place: Option<Place>,
    at: Range<usize>,
    reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    field: CronField,
    position: usize,
}

impl CronError {
    /// An expression that is wrong as a whole.
    pub(super) fn whole(expression: &str, reason: impl Into<String>) -> Self {
        Self {
            expression: expression.to_owned(),
            place: None,
            at: 0..expression.len(),
            reason: reason.into(),
        }
    }

    /// One that is wrong in a field, at `at` of the whole text.
    pub(super) fn in_field(
        expression: &str,
        (field, position): (CronField, usize),
        at: Range<usize>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            expression: expression.to_owned(),
            place: Some(Place { field, position }),
            at,
            reason: reason.into(),
        }
    }

    /// The expression, with one blank between its fields.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// The field at fault; none if it is the expression as a whole.
    pub fn field(&self) -> Option<CronField> {
        self.place.map(|place| place.field)
    }

    /// The position of the field at fault, counted from 1.
    pub fn position(&self) -> Option<usize> {
        self.place.map(|place| place.position)
    }

    /// The part at fault: a field, or an item of a field's list.
    pub fn text(&self) -> &str {
        self.expression.get(self.at.clone()).unwrap_or_default()
    }

    /// What is wrong, and what is allowed instead.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Where and why, without the texts that [`pointer`](Self::pointer) shows.
    pub fn explanation(&self) -> String {
        match self.place {
            Some(place) => format!("{place}: {}", self.reason),
            None => self.reason.clone(),
        }
    }

    /// The expression, and below it a mark under the part at fault: two lines to print in a fixed-width font.
    pub fn pointer(&self) -> String {
        let before = self.expression.get(..self.at.start).unwrap_or_default().chars().count();
        let marked = self.text().chars().count().max(1);
        format!("{}\n{}{}", self.expression, " ".repeat(before), "^".repeat(marked))
    }
}

impl fmt::Display for CronError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{place}, {:?}: {}", self.text(), self.reason),
            None => write!(f, "{:?}: {}", self.expression, self.reason),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "field {} ({})", self.position, self.field)
    }
}

impl std::error::Error for CronError {}

impl From<CronError> for Error {
    fn from(error: CronError) -> Self {
        Self::invalid("job.cron", "cron", &error).with_source(error)
    }
}
