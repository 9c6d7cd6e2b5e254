//! The one error type of the library.
//!
//! An error says what was being done, what is wrong and what to do next. It never holds a payload, a password
//! or a connection string: providers pass only what is safe to log.

use std::fmt;

use crate::id::WorkItemId;
use crate::queue::Status;

/// A `Result` with Mainstay's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn std::error::Error + Send + Sync>;

/// What kind of thing went wrong. Match on this; the text is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside its contract. Nothing was written.
    InvalidArgument,
    /// What was asked for does not exist.
    NotFound,
    /// A work item has this id already, open or settled; [`Error::existing`] tells which and its status. Nothing was written.
    /// An id is used once: the same call fails again.
    AlreadyExists,
    /// The schema is not there, or is of another version.
    Schema,
    /// The database can't be reached, or broke off. Trying again may help.
    Unavailable,
    /// The database refused because of something concurrent (serialisation, deadlock). Trying again may help.
    Conflict,
    /// What is there is not what the caller said to expect: somebody has changed it since. Nothing was written; read again, and
    /// decide anew.
    Mismatch,
    /// The database refused for lack of permission.
    Denied,
    /// The database has no room left.
    Full,
    /// The database can't be written to.
    ReadOnly,
    /// The database is damaged: stop writing to it, and restore a backup.
    Damaged,
    /// The claim is no longer held: its lease lapsed and somebody else may have it.
    ClaimLost,
    /// The lease is no longer held, or may not be: somebody else may have it.
    LeaseLost,
    /// The store, or the service, has been closed.
    Closed,
    /// The configuration is wrong.
    Config,
    /// The provider can't do this; see its capabilities.
    Unsupported,
    /// Something that should not happen.
    Internal,
}

/// The work item that has an id which was to be used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExistingItem {
    /// Its id.
    pub id: WorkItemId,
    /// Its status when the call was refused.
    pub status: Status,
}

/// What went wrong, during which operation, and whether trying again may help.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    operation: &'static str,
    message: String,
    field: Option<&'static str>,
    existing: Option<ExistingItem>,
    unanswered: bool,
    source: Option<Source>,
    retryable: bool,
}

impl Error {
    /// An error of `kind` in `operation`; `message` says what is wrong and what to do next.
    pub fn new(kind: ErrorKind, operation: &'static str, message: impl Into<String>) -> Self {
        let retryable = matches!(kind, ErrorKind::Unavailable | ErrorKind::Conflict);
        Self(Box::new(Inner {
            kind,
            operation,
            message: message.into(),
            field: None,
            existing: None,
            unanswered: false,
            source: None,
            retryable,
        }))
    }

    /// An argument outside its contract: `field` names it, `reason` gives the bound and the value found.
    pub fn invalid(operation: &'static str, field: &'static str, reason: impl fmt::Display) -> Self {
        let mut error = Self::new(ErrorKind::InvalidArgument, operation, format!("{field} {reason}"));
        error.0.field = Some(field);
        error
    }

    /// The error for enqueueing an id that a work item has already.
    pub fn already_exists(operation: &'static str, id: WorkItemId, status: Status) -> Self {
        let message = format!(
            "work_item_id {id} belongs to a work item that is {status}: use every id once, or an idempotency key to \
             enqueue only the first time"
        );
        let mut error = Self::new(ErrorKind::AlreadyExists, operation, message);
        error.0.field = Some("work_item_id");
        error.0.existing = Some(ExistingItem { id, status });
        error
    }

    /// Reads such an error from the text that a database's routines raise: `… work_item_id <id> belongs to a work item that is
    /// <status>`. For providers.
    pub fn already_exists_from_text(operation: &'static str, text: &str) -> Option<Self> {
        let (_, rest) = text.split_once("work_item_id ")?;
        let (id, rest) = rest.split_once(" belongs to a work item that is ")?;
        let status = rest.split(|c: char| !c.is_ascii_lowercase() && c != '-').next()?;
        Some(Self::already_exists(operation, id.parse().ok()?, status.parse().ok()?))
    }

    /// The error for a call that got no answer in time and was given up; `message` says how long that was. The call may still take
    /// effect. For providers.
    pub fn unanswered(operation: &'static str, message: impl Into<String>) -> Self {
        let mut error = Self::new(ErrorKind::Unavailable, operation, message);
        error.0.unanswered = true;
        error
    }

    /// A list goes on after an item by where that item stands in it. One that was removed meanwhile has no place, and an empty page would look
    /// like the end.
    pub(crate) fn page_lost(operation: &'static str, field: &'static str) -> Self {
        Self::invalid(
            operation,
            field,
            "is of an item that is no longer there: begin again with the first page",
        )
    }

    /// Keeps the error underneath, for the chain.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Source>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Names the argument that is outside its contract.
    #[must_use]
    pub fn with_field(mut self, field: &'static str) -> Self {
        self.0.field = Some(field);
        self
    }

    /// Overrides whether trying again may help.
    #[must_use]
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.0.retryable = retryable;
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed, as `primitive.verb`.
    pub fn operation(&self) -> &'static str {
        self.0.operation
    }

    /// The argument or setting at fault, where there is one.
    pub fn field(&self) -> Option<&'static str> {
        self.0.field
    }

    /// The work item that has the id already, for [`ErrorKind::AlreadyExists`].
    pub fn existing(&self) -> Option<ExistingItem> {
        self.0.existing
    }

    /// The message without the operation in front.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns true if the call got no answer in time and was given up: by its own time limit, or while it waited for a connection.
    pub fn is_unanswered(&self) -> bool {
        self.0.unanswered
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.operation, self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("operation", &self.0.operation)
            .field("message", &self.0.message)
            .field("field", &self.0.field)
            .field("existing", &self.0.existing)
            .field("unanswered", &self.0.unanswered)
            .field("retryable", &self.0.retryable)
            .field("source", &self.0.source)
            .finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.source {
            Some(source) => Some(source.as_ref()),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_argument_names_the_field_and_the_bound() {
        let error = Error::invalid("outbox.claim", "batch", "must be at least 1, got 0");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert_eq!(error.field(), Some("batch"));
        assert_eq!(error.to_string(), "outbox.claim: batch must be at least 1, got 0");
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_used_id_is_named_with_its_status_and_read_back_from_a_routine_s_text() {
        let id = WorkItemId::new();
        let error = Error::already_exists("outbox.enqueue", id, Status::InProgress);
        assert_eq!((error.kind(), error.field()), (ErrorKind::AlreadyExists, Some("work_item_id")));
        assert_eq!(error.existing(), Some(ExistingItem { id, status: Status::InProgress }));
        assert!(!error.is_retryable());
        assert!(
            error.message().contains(&id.to_string()) && error.message().contains("in-progress"),
            "{error}"
        );

        let upper = id.to_string().to_uppercase();
        for text in [
            format!("outbox_enqueue: work_item_id {id} belongs to a work item that is done"),
            format!("ERROR: work_item_id {upper} belongs to a work item that is done; and more"),
        ] {
            let error = Error::already_exists_from_text("outbox.enqueue", &text).expect("it is one");
            assert_eq!(error.existing(), Some(ExistingItem { id, status: Status::Done }));
        }
        for text in
            ["", "work_item_id x belongs to a work item that is done", &format!("work_item_id {id} belongs")]
        {
            assert!(Error::already_exists_from_text("outbox.enqueue", text).is_none(), "{text}");
        }
    }
}
