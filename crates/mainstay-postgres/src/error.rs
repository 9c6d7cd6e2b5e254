//! What the server and the driver say, as Mainstay's error.
//!
//! Only the server's code and its primary message are kept. Its detail and context can quote whole rows and
//! parameters, and so payloads; they never get into an error.

use std::error::Error as StdError;
use std::fmt;

use deadpool_postgres::{PoolError, TimeoutType};
use mainstay_core::{Error, ErrorKind};

/// What the server said, without what could quote data.
#[derive(Debug)]
struct ServerError {
    code: String,
    message: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (SQLSTATE {})", self.message, self.code)
    }
}

impl StdError for ServerError {}

/// Whether this is what the server has answered, and not what became of the way to it.
pub(crate) fn is_from_server(error: &Error) -> bool {
    error.source().is_some_and(|source| source.is::<ServerError>())
}

/// The code of a lock that was not to be had in time.
pub(crate) const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The code of an id that a work item has already.
pub(crate) const USED_ID: &str = "MI001";

/// Whether the server has answered with this code.
pub(crate) fn is_of_code(error: &Error, code: &str) -> bool {
    let server = error.source().and_then(|source| source.downcast_ref::<ServerError>());
    server.is_some_and(|server| server.code == code)
}

/// An error of the server by its SQLSTATE.
pub(crate) fn from_server(operation: &'static str, code: &str, message: &str) -> Error {
    if code == "25P01" {
        let error = Error::invalid(operation, "tx", "must be a transaction; begin one first");
        return error.with_source(ServerError { code: code.to_owned(), message: message.to_owned() });
    }
    if code == "MJ001" {
        let error = Error::new(ErrorKind::InvalidArgument, operation, message).with_field("join");
        return error.with_source(ServerError { code: code.to_owned(), message: message.to_owned() });
    }
    // Raised by enqueue.
    if code == USED_ID
        && let Some(error) = Error::already_exists_from_text(operation, message)
    {
        return error.with_source(ServerError { code: code.to_owned(), message: message.to_owned() });
    }
    let (kind, advice) = classify(code);
    let text = match advice {
        "" => message.to_owned(),
        advice => format!("{message}; {advice}"),
    };
    let error = match code {
        // The key of a queue's table is the id. (The functions look an id up and name it; this is what they can't see.)
        "23505" if message.contains("_pkey\"") && operation.ends_with("enqueue") => {
            Error::new(ErrorKind::AlreadyExists, operation, format!("an id of the call is known: {text}"))
        }
        "23505" if message.contains("_pkey\"") => {
            Error::invalid(operation, "work_item_id", format_args!("must be new: {text}"))
        }
        _ => Error::new(kind, operation, text),
    };
    let error = match kind {
        // The server is being switched over, or its disk looked after; the same call may succeed then.
        ErrorKind::ReadOnly | ErrorKind::Full => error.with_retryable(true),
        // Its transaction has failed already, so repeating the statement in it can't help.
        ErrorKind::Conflict if code == "25P02" => error.with_retryable(false),
        _ => error,
    };
    error.with_source(ServerError { code: code.to_owned(), message: message.to_owned() })
}

/// The kind of an SQLSTATE, and what to do about it.
fn classify(code: &str) -> (ErrorKind, &'static str) {
    match code {
        "42P01" | "42883" | "3F000" | "42703" => {
            (ErrorKind::Schema, "the schema is not there or is of another version: run `mainstay migrate`")
        }
        // A table, a type or a function of one of our names, and not ours.
        "42P07" | "42710" | "42723" | "42P13" => (
            ErrorKind::Schema,
            "Mainstay did not make it: rename or drop it, or use another schema or table name",
        ),
        "42501" => (
            ErrorKind::Denied,
            "the role lacks a right: run the grants script (`mainstay migrate --grants <role>`) as the owner of the schema",
        ),
        "40001" | "40P01" => (ErrorKind::Conflict, ""),
        LOCK_NOT_AVAILABLE => (
            ErrorKind::Conflict,
            "another transaction holds a lock on the row or the table for too long: try again, and look for it in pg_locks",
        ),
        "25P02" => (ErrorKind::Conflict, "an earlier statement failed: roll the transaction back"),
        "25006" => (ErrorKind::ReadOnly, "connect to the primary (target_session_attrs=read-write)"),
        "25001" => (
            ErrorKind::Config,
            "begin it with READ COMMITTED, or set default_transaction_isolation to read committed for this role or database",
        ),
        "XX001" | "XX002" => {
            (ErrorKind::Damaged, "the server's files are damaged: look at its log, and restore a backup")
        }
        "53100" => (ErrorKind::Full, "make room on the server's disk"),
        // Raised by lease_guard.
        "ML001" => (ErrorKind::LeaseLost, "roll the transaction back and stop"),
        "3D000" => (ErrorKind::Config, "create the database, or correct the URL"),
        // What our functions say of a name that nothing has.
        "P0002" => (ErrorKind::NotFound, ""),
        "23505" => (ErrorKind::InvalidArgument, "use every id once"),
        USED_ID => (ErrorKind::AlreadyExists, ""),
        _ => classify_by_class(code),
    }
}

fn classify_by_class(code: &str) -> (ErrorKind, &'static str) {
    match code.get(..2).unwrap_or_default() {
        "22" | "23" => (ErrorKind::InvalidArgument, ""),
        "28" => (ErrorKind::Denied, "check user and password in the URL, and pg_hba.conf"),
        // Connection lost, out of connections or memory, shutting down or cancelled, input/output.
        "08" | "53" | "57" | "58" => (ErrorKind::Unavailable, ""),
        // A session that idled too long within a transaction, and the like.
        "25" => (ErrorKind::Unavailable, ""),
        _ => (ErrorKind::Internal, ""),
    }
}

/// An error of the driver.
pub(crate) fn from_driver(operation: &'static str, error: tokio_postgres::Error) -> Error {
    if let Some(server) = error.as_db_error() {
        return from_server(operation, server.code().code(), server.message());
    }
    if let Some(tls) = tls_error(&error) {
        let message =
            format!("the server's certificate or TLS was not accepted: {tls}; check sslmode and sslrootcert");
        return Error::new(ErrorKind::Config, operation, message).with_source(error);
    }
    let text = describe(&error);
    // The driver does not tell its kinds apart except in words.
    let told = |words: &[&str]| words.iter().any(|words| text.starts_with(words));
    let kind = if told(&["authentication error", "invalid configuration"]) {
        ErrorKind::Config
    } else if told(&[
        "error serializing",
        "error deserializing",
        "invalid column",
        "expected",
        "query returned",
    ]) {
        ErrorKind::Internal
    } else {
        ErrorKind::Unavailable
    };
    let message = match kind {
        ErrorKind::Unavailable => format!("the database can't be reached or broke off: {text}"),
        _ => text,
    };
    Error::new(kind, operation, message).with_source(error)
}

/// An error of the pool; `address` and the time limits are those of its settings.
pub(crate) fn from_pool(operation: &'static str, error: PoolError, limits: &PoolLimits) -> Error {
    match error {
        PoolError::Backend(error) => {
            let error = from_driver(operation, error);
            let message = format!("{} (server {})", error.message(), limits.address);
            let (kind, retryable) = (error.kind(), error.is_retryable());
            Error::new(kind, operation, message).with_retryable(retryable).with_source(error)
        }
        PoolError::Timeout(TimeoutType::Wait) => {
            let limit = limits.acquire;
            let message =
                format!("no connection became free within {limit:?}; raise pool_size if this is common");
            Error::unanswered(operation, message)
        }
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => {
            let message = format!("{} did not answer within {:?}", limits.address, limits.connect);
            Error::unanswered(operation, message)
        }
        PoolError::Closed => closed(operation),
        PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            Error::new(ErrorKind::Internal, operation, "the pool is set up wrongly")
        }
    }
}

/// What messages about the pool mention.
#[derive(Debug, Clone)]
pub(crate) struct PoolLimits {
    pub(crate) address: String,
    pub(crate) connect: std::time::Duration,
    pub(crate) acquire: std::time::Duration,
    pub(crate) call: std::time::Duration,
}

/// A call got no answer in time.
pub(crate) fn unanswered(operation: &'static str, limit: std::time::Duration) -> Error {
    let text = format!(
        "the database did not answer within {limit:?}, and the call was canceled; raise call_timeout if calls rightly take longer"
    );
    Error::unanswered(operation, text)
}

/// Other calls of this process that wait for a transaction did not end in time.
pub(crate) fn held_up(operation: &'static str, limit: std::time::Duration) -> Error {
    let text = format!(
        "did not get its turn within {limit:?}: other calls of this process with the same id or key, or as many as may wait at once, most likely wait for a transaction that is open elsewhere; look for that in pg_stat_activity"
    );
    Error::new(ErrorKind::Unavailable, operation, text)
}

/// The store was closed.
pub(crate) fn closed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Closed, operation, "the store has been closed")
}

/// A row that is not as this version expects it.
pub(crate) fn unreadable(operation: &'static str, error: tokio_postgres::Error) -> Error {
    let message = format!("a row could not be read ({error}); is the schema of another version?");
    Error::new(ErrorKind::Internal, operation, message)
}

/// An error with all its causes, in one line.
fn describe(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

fn tls_error(error: &dyn StdError) -> Option<String> {
    let mut cause = error.source();
    while let Some(error) = cause {
        // An I/O error hides what it wraps from `source`.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        let wrapped = wrapped.and_then(|error| error.downcast_ref::<rustls::Error>());
        if let Some(tls) = wrapped.or_else(|| error.downcast_ref::<rustls::Error>()) {
            return Some(tls.to_string());
        }
        cause = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deadline_of_the_pool_counts_as_no_answer() {
        let second = std::time::Duration::from_secs(1);
        let limits = PoolLimits { address: "a:1".to_owned(), connect: second, acquire: second, call: second };
        for timeout in [TimeoutType::Wait, TimeoutType::Create, TimeoutType::Recycle] {
            assert!(from_pool("test", PoolError::Timeout(timeout), &limits).is_unanswered(), "{timeout:?}");
        }
        assert!(unanswered("test", second).is_unanswered());
        assert!(!from_server("test", "57P01", "shutting down").is_unanswered());
    }

    #[test]
    fn codes_become_kinds() {
        for (code, kind, retryable) in [
            ("22023", ErrorKind::InvalidArgument, false),
            ("23505", ErrorKind::InvalidArgument, false),
            ("42P01", ErrorKind::Schema, false),
            ("42883", ErrorKind::Schema, false),
            ("3F000", ErrorKind::Schema, false),
            ("42P07", ErrorKind::Schema, false),
            ("42710", ErrorKind::Schema, false),
            ("42501", ErrorKind::Denied, false),
            ("28P01", ErrorKind::Denied, false),
            ("28000", ErrorKind::Denied, false),
            ("25P01", ErrorKind::InvalidArgument, false),
            ("25001", ErrorKind::Config, false),
            ("ML001", ErrorKind::LeaseLost, false),
            ("3D000", ErrorKind::Config, false),
            ("40001", ErrorKind::Conflict, true),
            ("40P01", ErrorKind::Conflict, true),
            ("55P03", ErrorKind::Conflict, true),
            ("25P02", ErrorKind::Conflict, false),
            ("53100", ErrorKind::Full, true),
            ("53300", ErrorKind::Unavailable, true),
            ("25006", ErrorKind::ReadOnly, true),
            ("57P01", ErrorKind::Unavailable, true),
            ("57P03", ErrorKind::Unavailable, true),
            ("08006", ErrorKind::Unavailable, true),
            ("XX000", ErrorKind::Internal, false),
        ] {
            let error = from_server("outbox.claim", code, "no");
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable), "{code}");
        }
    }

    #[test]
    fn a_used_id_is_named_with_its_status() {
        let id = mainstay_core::WorkItemId::new();
        let text = format!("outbox_enqueue: work_item_id {id} belongs to a work item that is failed");
        let error = from_server("outbox.enqueue", USED_ID, &text);
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false));
        let existing = error.existing().unwrap();
        assert_eq!((existing.id, existing.status), (id, mainstay_core::queue::Status::Failed));
        assert!(is_from_server(&error));
    }

    #[test]
    fn a_used_id_of_unknown_status_is_told_as_known() {
        let id = mainstay_core::WorkItemId::new();
        let unseen =
            format!("outbox_enqueue: work_item_id {id} belongs to a work item already, whose status");
        let broken = "duplicate key value violates unique constraint \"outbox_pkey\"";
        for (code, text) in [(USED_ID, unseen.as_str()), ("23505", broken)] {
            let error = from_server("outbox.enqueue", code, text);
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false));
            assert!(error.existing().is_none() && error.message().contains(text), "{error}");
        }
        assert_eq!(from_server("join.start", "23505", broken).kind(), ErrorKind::InvalidArgument);
    }

    #[test]
    fn a_missing_schema_says_what_to_run() {
        let error = from_server("outbox.claim", "42P01", "relation \"x\" does not exist");
        assert!(error.to_string().contains("relation \"x\""), "{error}");
        assert!(error.to_string().contains("mainstay migrate"), "{error}");
    }
}
