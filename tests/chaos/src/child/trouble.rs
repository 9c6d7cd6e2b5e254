//! Errors as a history has them.

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

/// Records a failure of a driver. The server's own answer means that the transaction was rolled back, unless it ended the
/// connection; everything else may have lost the answer only.
pub(crate) fn record_driver(invoked: Invoked<'_>, error: &tokio_postgres::Error) {
    match error.code() {
        Some(code) if !["57", "08", "53", "58", "XX"].contains(&&code.code()[..2]) => {
            invoked.fail(Trouble { kind: code.code().to_owned(), text: error.to_string() });
        }
        code => {
            let kind = code.map_or_else(|| "connection".to_owned(), |code| code.code().to_owned());
            invoked.unknown(Trouble { kind, text: error.to_string() });
        }
    }
}
