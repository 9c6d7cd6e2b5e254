//! Interrupts statements that run past a deadline.
//!
//! SQLite asks a handler every thousand steps of its virtual machine whether to go on. The
//! handler belongs to one call and runs on the thread that runs the statement, so it is gone before
//! the next statement begins: an interrupt can't hit the wrong one.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use mainstay_core::{Error, ErrorKind};
use rusqlite::{Connection, ErrorCode};

use crate::error::{Fault, Place};

/// Steps of the virtual machine between two looks at the clock: some ten microseconds of work.
const STEPS: c_int = 1_000;

/// SQLite's answer when a commit hook refuses a commit.
const REFUSED_COMMIT: i32 = 19 | (2 << 8);

/// Runs `work`. Its statements are interrupted once `deadline` has passed.
pub(crate) fn until<T>(
    connection: &Connection,
    deadline: Instant,
    work: impl FnOnce(&Connection) -> T,
) -> rusqlite::Result<T> {
    connection.progress_handler(STEPS, Some(move || Instant::now() >= deadline))?;
    let _removed_at_the_end = Interrupts(connection);
    Ok(work(connection))
}

/// As [`until`], for statements of the application's own. They can't commit: neither the open
/// transaction nor, after SQLite has rolled that back because of an interrupt or another error,
/// anything by itself.
pub(crate) fn until_without_commits<T>(
    connection: &Connection,
    deadline: Instant,
    work: impl FnOnce(&Connection) -> T,
) -> rusqlite::Result<T> {
    connection.commit_hook(Some(|| true))?;
    let _allowed_at_the_end = NoCommits(connection);
    until(connection, deadline, work)
}

struct Interrupts<'a>(&'a Connection);

impl Drop for Interrupts<'_> {
    fn drop(&mut self) {
        // Fails only for a connection that rusqlite has not opened.
        drop(self.0.progress_handler(0, None::<fn() -> bool>));
    }
}

struct NoCommits<'a>(&'a Connection);

impl Drop for NoCommits<'_> {
    fn drop(&mut self) {
        // Fails only for a connection that rusqlite has not opened.
        drop(self.0.commit_hook(None::<fn() -> bool>));
    }
}

/// Whether SQLite interrupted a statement.
pub(crate) fn is_interrupt(fault: &Fault) -> bool {
    matches!(fault, Fault::Sqlite(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted))
}

/// Whether SQLite refused a commit of the application's own.
pub(crate) fn is_refused_commit(fault: &Fault) -> bool {
    let Fault::Sqlite(rusqlite::Error::SqliteFailure(error, _)) = fault else { return false };
    error.extended_code == REFUSED_COMMIT
}

/// The error of an operation whose statements had a limit.
pub(crate) fn error(place: &Place, operation: &'static str, limit: Duration, fault: Fault) -> Error {
    if !is_interrupt(&fault) {
        return place.error(operation, fault);
    }
    let text = format!(
        "the operation was interrupted because its statements ran longer than {limit:?}, and nothing of it was kept; \
         try again when the machine has less to do, or raise `statement_limit`"
    );
    Error::new(ErrorKind::Unavailable, operation, text)
}
