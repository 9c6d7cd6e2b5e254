//! What SQLite says, in Mainstay's words: which kind of trouble, where, and what to do about it.
//!
//! Texts may name the file and a constraint. They never hold a value that was bound.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainstay_core::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// A wal-index that could not grow. It is a file beside the database, so a full disk shows itself here too.
const IOERR_SHMSIZE: i32 = 10 | (19 << 8);

/// What went wrong within an operation, before it is known where.
#[derive(Debug)]
pub(crate) enum Fault {
    Sqlite(rusqlite::Error),
    Core(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Core(error)
    }
}

/// Names the database in errors. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<PathBuf>);

impl Place {
    pub(crate) fn new(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(path.into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Whether both are of the same open database.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Names the database in logs, the way the identifiers of its stores begin.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", self.0.display())
    }

    /// The error a caller of `operation` gets.
    pub(crate) fn error(&self, operation: &'static str, fault: Fault) -> Error {
        match fault {
            Fault::Core(error) => error,
            Fault::Sqlite(error) => {
                let cannot_open = error.sqlite_error_code() == Some(ErrorCode::CannotOpen);
                let trouble = match cannot_open {
                    // What can't be opened though it is there is most often a log that can't be made beside it.
                    true if self.0.is_file() => Trouble::read_only(),
                    true if self.0.is_dir() => Trouble::directory(),
                    true if has_directory(&self.0) => Trouble::missing(),
                    _ => Trouble::of(&error),
                };
                trouble.at(self, operation).with_source(error)
            }
        }
    }

    pub(crate) fn closed(&self, operation: &'static str) -> Error {
        Error::new(ErrorKind::Closed, operation, format!("the database {} has been closed", self.0.display()))
    }

    /// A call that was given up after `limit`.
    pub(crate) fn unanswered(&self, operation: &'static str, limit: Duration) -> Error {
        let text = format!(
            "the database {} did not answer within {limit:?}: others kept it busy; raise call_timeout if calls rightly take longer",
            self.0.display()
        );
        Error::unanswered(operation, text)
    }

    pub(crate) fn panicked(&self, operation: &'static str) -> Error {
        let text = "the operation panicked; nothing of it was kept";
        Error::new(ErrorKind::Internal, operation, text)
    }
}

/// Whether the directory of a file is there.
fn has_directory(path: &Path) -> bool {
    path.parent().is_some_and(|parent| parent.as_os_str().is_empty() || parent.is_dir())
}

/// What SQLite's answer means. Can be told to several callers, which a `rusqlite::Error` can't.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    kind: ErrorKind,
    text: String,
    retryable: bool,
}

impl Trouble {
    /// There is no file, and either nobody asked for one to be made, or this user may not.
    fn missing() -> Self {
        Self::new(
            ErrorKind::Config,
            "the database {path} is not there; if it is new, deploy its schema (`mainstay migrate`, `mainstay stores deploy`, \
             `fleet.deploy`), which makes it where this user may write; if it has vanished, bring it back",
        )
    }

    fn directory() -> Self {
        Self::new(
            ErrorKind::Config,
            "{path} is a directory, and no database; name a file, which may be in it",
        )
    }

    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        let (code, detail) = match error {
            rusqlite::Error::SqliteFailure(failure, detail) => (*failure, detail.clone().unwrap_or_default()),
            rusqlite::Error::SqlInputError { error, msg, .. } => (*error, msg.clone()),
            // Conversions and misuse. Their texts name columns and types, never values.
            other => return Self::new(ErrorKind::Internal, format!("SQLite was misunderstood: {other}")),
        };
        if code.extended_code == IOERR_SHMSIZE {
            return Self::full();
        }
        match code.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => Self::new(
                ErrorKind::Unavailable,
                "another process kept the database {path} locked for longer than the busy timeout; try again, or find the long transaction",
            ),
            ErrorCode::DiskFull => Self::full(),
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied => Self::read_only(),
            ErrorCode::CannotOpen => Self::new(
                ErrorKind::Config,
                "the database {path} can't be opened; check that its directory exists and that this user may write there",
            ),
            ErrorCode::NotADatabase => Self::new(
                ErrorKind::Config,
                "the file {path} is not an SQLite database, or it is encrypted; nothing was changed, name another file",
            ),
            ErrorCode::DatabaseCorrupt => Self::new(
                ErrorKind::Damaged,
                "the database {path} is damaged; stop writing to it, run `PRAGMA integrity_check` and restore a backup",
            ),
            ErrorCode::ConstraintViolation => {
                Self::new(ErrorKind::InvalidArgument, format!("the database refused a value: {detail}"))
            }
            ErrorCode::TooBig => Self::new(
                ErrorKind::InvalidArgument,
                "a value is larger than SQLite's limit of 1,000,000,000 bytes",
            ),
            ErrorCode::SchemaChanged => {
                Self::new(ErrorKind::Conflict, "the schema changed meanwhile; try again")
            }
            ErrorCode::SystemIoFailure => Self::new(
                ErrorKind::Unavailable,
                format!(
                    "reading or writing the database {{path}} failed ({detail}, code {})",
                    code.extended_code
                ),
            ),
            ErrorCode::OperationInterrupted | ErrorCode::OperationAborted | ErrorCode::OutOfMemory => {
                Self::new(ErrorKind::Unavailable, format!("SQLite broke off: {detail}"))
            }
            _ if detail.contains("no such table") || detail.contains("no such column") => Self::new(
                ErrorKind::Schema,
                format!(
                    "{detail}; deploy the schema first (`mainstay migrate`, or switch schema deployment on)"
                ),
            ),
            _ if detail.contains("already exists") || detail.contains("there is already") => Self::new(
                ErrorKind::Schema,
                format!(
                    "{detail}, and Mainstay did not make it; rename or drop it, or use another schema or table name"
                ),
            ),
            _ => Self::new(
                ErrorKind::Internal,
                format!("SQLite answered: {detail} (code {})", code.extended_code),
            ),
        }
    }

    fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            retryable: matches!(kind, ErrorKind::Unavailable | ErrorKind::Conflict),
        }
    }

    fn read_only() -> Self {
        Self::new(
            ErrorKind::ReadOnly,
            "the database {path} can't be written to; give this user write permission on the file and on its directory",
        )
    }

    fn full() -> Self {
        let text = "the disk is full: the database {path} can't grow, and nothing was written; free some space and try again";
        Self { kind: ErrorKind::Full, text: text.to_owned(), retryable: true }
    }

    pub(crate) fn at(&self, place: &Place, operation: &'static str) -> Error {
        let text = self.text.replace("{path}", &place.path().display().to_string());
        Error::new(self.kind, operation, text).with_retryable(self.retryable)
    }
}

/// Whether another process was in the way.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of(code: i32, detail: &str) -> ErrorKind {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), Some(detail.to_owned()));
        let error = Place::new("/data/app.db").error("outbox.enqueue", error.into());
        assert!(!error.message().contains("{path}"), "{error}");
        error.kind()
    }

    #[test]
    fn each_code_has_its_kind() {
        assert_eq!(kind_of(5, "database is locked"), ErrorKind::Unavailable);
        assert_eq!(kind_of(13, "database or disk is full"), ErrorKind::Full);
        assert_eq!(kind_of(IOERR_SHMSIZE, "disk I/O error"), ErrorKind::Full);
        assert_eq!(kind_of(8, "attempt to write a readonly database"), ErrorKind::ReadOnly);
        assert_eq!(kind_of(14, "unable to open database file"), ErrorKind::Config);
        assert_eq!(kind_of(26, "file is not a database"), ErrorKind::Config);
        assert_eq!(kind_of(11, "database disk image is malformed"), ErrorKind::Damaged);
        assert_eq!(kind_of(10, "disk I/O error"), ErrorKind::Unavailable);
        assert_eq!(kind_of(19, "CHECK constraint failed: payload_is_text"), ErrorKind::InvalidArgument);
        assert_eq!(kind_of(1, "no such table: infra_outbox"), ErrorKind::Schema);
        assert_eq!(kind_of(1, "index infra_outbox_lane already exists"), ErrorKind::Schema);
        assert_eq!(kind_of(1, "there is already a table named infra_outbox_lane"), ErrorKind::Schema);
        assert_eq!(kind_of(1, "near \"x\": syntax error"), ErrorKind::Internal);
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let error = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None);
        let error = Place::new("/data/app.db").error("outbox.enqueue", error.into());
        assert!(error.is_retryable());
        assert!(error.message().contains("/data/app.db"), "{error}");
    }
}
