//! Errors as a history has them.

use std::fmt;

use mainstay::sqlserver::tiberius;
use mainstay::{Error, ErrorKind};

use crate::history::{Answer, Invoked, Trouble};

/// Records what became of a call of the library.
pub(crate) fn record<T>(
    invoked: Invoked<'_>,
    result: &mainstay::Result<T>,
    answer: impl FnOnce(&T) -> Answer,
) {
    match result {
        Ok(value) => invoked.ok(answer(value)),
        Err(error) if had_no_effect(error) => invoked.fail(trouble(error)),
        Err(error) => invoked.unknown(trouble(error)),
    }
}

/// An error for the history.
pub(crate) fn trouble(error: &Error) -> Trouble {
    Trouble { kind: format!("{:?}", error.kind()), text: error.to_string() }
}

/// Whether nothing was changed for certain. A lost connection may have lost the answer only.
pub(crate) fn had_no_effect(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidArgument
            | ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Mismatch
            | ErrorKind::Denied
            | ErrorKind::ClaimLost
            | ErrorKind::LeaseLost
            | ErrorKind::Config
            | ErrorKind::Unsupported
    )
}

/// An error of a driver.
#[derive(Debug)]
pub(crate) struct DriverError {
    /// The server's code, or `connection`.
    kind: String,
    text: String,
    /// Whether the server answered that nothing was changed.
    had_no_effect: bool,
}

impl DriverError {
    /// An answer that is not what was asked for.
    pub(crate) fn unreadable(text: &str) -> Self {
        Self { kind: "answer".to_owned(), text: text.to_owned(), had_no_effect: false }
    }

    /// Records it as the end of a call.
    pub(crate) fn record(&self, invoked: Invoked<'_>) {
        let trouble = Trouble { kind: self.kind.clone(), text: self.text.clone() };
        match self.had_no_effect {
            true => invoked.fail(trouble),
            false => invoked.unknown(trouble),
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for DriverError {}

/// A failure before the commit was sent: the transaction is rolled back.
pub(crate) fn before_commit(text: impl fmt::Display) -> Trouble {
    Trouble { kind: "BeforeCommit".to_owned(), text: text.to_string() }
}

/// The kind of an error that is no answer of the server.
const CONNECTION: &str = "connection";

/// The server's own answer means that the transaction was rolled back, unless the server ended the connection. Any other error
/// may have lost the answer only.
impl From<tokio_postgres::Error> for DriverError {
    fn from(error: tokio_postgres::Error) -> Self {
        let code = error.code().map(tokio_postgres::error::SqlState::code);
        Self {
            kind: code.unwrap_or(CONNECTION).to_owned(),
            text: error.to_string(),
            had_no_effect: code.is_some_and(|code| !["57", "08", "53", "58", "XX"].contains(&&code[..2])),
        }
    }
}

/// A commit that SQLite did not confirm may be in its log all the same.
impl From<rusqlite::Error> for DriverError {
    fn from(error: rusqlite::Error) -> Self {
        Self { kind: "sqlite".to_owned(), text: error.to_string(), had_no_effect: false }
    }
}

/// The most severe class of errors of a statement. Classes above it are errors of the server itself, which ends the connection
/// from class 20 on.
const STATEMENT_CLASS: u8 = 16;

/// Numbers of lost connections, of ended sessions and of servers that shut down. The last one is what Babelfish gives to every
/// error without a number of its own.
const AMBIGUOUS: [u32; 10] = [233, 596, 6005, 10053, 10054, 10060, 40143, 40197, 40540, 33_557_097];

/// The server's own answer means that the transaction was rolled back: `XACT_ABORT` is on in every statement that changes
/// something. Errors of the server itself and of the connection may have lost the answer only.
impl From<tiberius::error::Error> for DriverError {
    fn from(error: tiberius::error::Error) -> Self {
        let class = match &error {
            tiberius::error::Error::Server(told) => Some(told.class()),
            _ => None,
        };
        let code = error.code();
        let is_about_statement = class.is_some_and(|class| class <= STATEMENT_CLASS);
        Self {
            kind: code.map_or_else(|| CONNECTION.to_owned(), |code| code.to_string()),
            text: error.to_string(),
            had_no_effect: is_about_statement && code.is_some_and(|code| !AMBIGUOUS.contains(&code)),
        }
    }
}
