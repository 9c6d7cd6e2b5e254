//! What the server and the driver say, as Mainstay's error.
//!
//! Messages of the server can quote values: duplicate keys, what would be cut, what can't be converted. Those parts never get into an error.

use std::error::Error as StdError;
use std::fmt;

use mainstay_core::{Error, ErrorKind};

/// What went wrong, in no driver's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server has answered with an error. The connection is fine, unless the class says otherwise.
    Server {
        /// The number of the message.
        number: u32,
        /// The severity.
        class: u8,
        /// The text.
        message: String,
    },
    /// The connection broke, or what came was not to be understood.
    Broken(String),
    /// The server's certificate or TLS was not accepted.
    Tls(String),
    /// There was no token to log in with.
    Token(String),
}

impl Fault {
    /// Whether the connection can still be used.
    pub(crate) fn leaves_connection(&self) -> bool {
        // From 20 on the server ends the connection.
        matches!(self, Self::Server { class, .. } if *class < 20)
    }
}

/// What the server said, without what could quote data.
#[derive(Debug)]
struct ServerError {
    number: u32,
    message: String,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (error {})", self.message, self.number)
    }
}

impl StdError for ServerError {}

/// The numbers of what our procedures raise.
pub(crate) mod raised {
    /// An argument is out of range.
    pub(crate) const INVALID: u32 = 50_001;
    /// There is no such thing.
    pub(crate) const NOT_FOUND: u32 = 50_002;
    /// The lease is no longer held.
    pub(crate) const LEASE_LOST: u32 = 50_003;
    /// A lock was not to be had in time.
    pub(crate) const LOCKED: u32 = 50_004;
    /// It needs a transaction.
    pub(crate) const NO_TRANSACTION: u32 = 50_005;
    /// The join can't be attached to.
    pub(crate) const JOIN: u32 = 50_006;
    /// What is there is not what was expected.
    pub(crate) const MISMATCH: u32 = 50_009;
    /// A work item has the id already.
    pub(crate) const USED_ID: u32 = 50_010;
}

/// The number an engine that only speaks the protocol has for everything it has no number for.
const UNMAPPED: u32 = 33_557_097;

/// What a database of Azure says that is busy or being started, instead of beginning with what it was asked.
const TURNED_AWAY: [u32; 7] = [40501, 40613, 49918, 49919, 49920, 10928, 10929];

const MIGRATE: &str = "the schema is not there or is of another version: run `mainstay migrate`";

/// The kind of an error of the server, and what to do about it.
fn classify(number: u32, class: u8, message: &str) -> (ErrorKind, &'static str) {
    match number {
        raised::INVALID | raised::NO_TRANSACTION | raised::JOIN => (ErrorKind::InvalidArgument, ""),
        raised::NOT_FOUND => (ErrorKind::NotFound, ""),
        raised::MISMATCH => (ErrorKind::Mismatch, ""),
        raised::USED_ID => (ErrorKind::AlreadyExists, ""),
        raised::LEASE_LOST => (ErrorKind::LeaseLost, "roll the transaction back and stop"),
        // A deadlock, a lock that was not to be had in time, an update of what a snapshot does not show; rows that moved while they were read; no room
        // for locks or to run a statement just now.
        raised::LOCKED | 1205 | 1222 | 3960 | 601 | 1204 | 701 | 8645 => (ErrorKind::Conflict, ""),
        // No such object, procedure, column, type, or parameter of a procedure.
        208 | 2812 | 207 | 2715 | 8144 | 8145 | 201 | 4121 => (ErrorKind::Schema, MIGRATE),
        2714 => (
            ErrorKind::Schema,
            "Mainstay did not make it: rename or drop it, or use another schema or table name",
        ),
        229 | 230 | 262 | 297 | 300 | 916 | 2760 => (
            ErrorKind::Denied,
            "the login lacks a right: run the grants script (`mainstay migrate --grants <user>`) as the owner of the schema",
        ),
        18452 | 18456 => (ErrorKind::Denied, "check user and password in the connection string"),
        911 => (ErrorKind::Config, "create the database, or correct the connection string"),
        // A plan that must not read everything needs its index, and a filtered index needs the session's settings.
        1934 | 8622 => (
            ErrorKind::Schema,
            "an index is missing or disabled, or the session has settings that keep the server from using it (QUOTED_IDENTIFIER and the ANSI settings must be on)",
        ),
        3906 => (ErrorKind::ReadOnly, "connect to the primary"),
        1101 | 1105 | 9002 | 40544 => (ErrorKind::Full, "make room in the database"),
        // What Azure says of a database that is not there for the moment; elsewhere it may well be wrong for good.
        4060 => (
            ErrorKind::Unavailable,
            "if this stays, check that the connection string names the right database and that the login is mapped to a user in it",
        ),
        // Connections lost; a database of Azure that is moved; a server that is going down.
        233 | 10053 | 10054 | 10060 | 40143 | 40197 | 40540 | 6005 => (ErrorKind::Unavailable, ""),
        // A database that is being recovered, or a group that is between two primaries.
        921 | 922 | 976 | 978 | 979 | 982 | 983 => (ErrorKind::Unavailable, ""),
        number if TURNED_AWAY.contains(&number) => (ErrorKind::Unavailable, ""),
        3902 | 3903 | 3930 => {
            (ErrorKind::Conflict, "an earlier statement has ended the transaction: roll it back")
        }
        // Constraints, nulls, texts that are too long, what can't be converted.
        547 | 515 | 2601 | 2627 | 2628 | 8152 | 241 | 242 | 245 | 8114 | 8115 | 8169 => {
            (ErrorKind::InvalidArgument, "")
        }
        UNMAPPED => unmapped(message),
        _ if class >= 20 => (ErrorKind::Unavailable, ""),
        _ => (ErrorKind::Internal, ""),
    }
}

fn unmapped(message: &str) -> (ErrorKind, &'static str) {
    let told = |words: &[&str]| words.iter().any(|words| message.contains(words));
    if told(&["lock timeout", "deadlock"]) {
        (ErrorKind::Conflict, "")
    } else if told(&["does not exist", "Could not find"]) {
        (ErrorKind::Schema, MIGRATE)
    } else if told(&["permission denied"]) {
        (
            ErrorKind::Denied,
            "run the grants script (`mainstay migrate --grants <user>`) as the owner of the schema",
        )
    } else if told(&["No space left", "could not extend"]) {
        (ErrorKind::Full, "make room in the database")
    } else if told(&["terminating connection", "shutting down", "starting up"]) {
        (ErrorKind::Unavailable, "")
    } else {
        (ErrorKind::Internal, "")
    }
}

/// The text without the values it may quote.
fn without_values(number: u32, message: &str) -> String {
    let end =
        ["The duplicate key value", "Truncated value"].iter().filter_map(|mark| message.find(mark)).min();
    let text = message[..end.unwrap_or(message.len())].trim_end();
    match number {
        // These quote what they could not convert.
        241 | 242 | 245 | 8114 | 8169 | UNMAPPED if text.contains('\'') || text.contains(": \"") => {
            "a value could not be converted, or was refused".to_owned()
        }
        _ => text.to_owned(),
    }
}

/// A fault as an error of an operation.
pub(crate) fn from_fault(operation: &'static str, fault: Fault) -> Error {
    match fault {
        Fault::Server { number, class, message } => from_server(operation, number, class, &message),
        Fault::Broken(message) => {
            let message = format!("the database can't be reached or broke off: {message}");
            Error::new(ErrorKind::Unavailable, operation, message)
        }
        Fault::Token(message) => {
            let message = format!("there is no access token to log in with: {message}");
            Error::new(ErrorKind::Unavailable, operation, message)
        }
        Fault::Tls(message) => {
            // The driver's advice is about its own functions.
            let message =
                message.split(" To connect anyway").next().unwrap_or_default().trim_end_matches('.');
            let message = format!(
                "the server's certificate or TLS was not accepted: {message}; name its authority (`CaCertificate`), or trust it as it is \
                 (`TrustServerCertificate=true`)"
            );
            Error::new(ErrorKind::Config, operation, message)
        }
    }
}

fn from_server(operation: &'static str, number: u32, class: u8, message: &str) -> Error {
    let text = without_values(number, message);
    let source = ServerError { number, message: text.clone() };
    let (kind, advice) = classify(number, class, message);
    let told = if advice.is_empty() { text } else { format!("{text}; {advice}") };
    let error = match number {
        raised::NO_TRANSACTION => Error::invalid(operation, "tx", "must be a transaction; begin one first"),
        raised::JOIN => Error::new(kind, operation, told).with_field("join"),
        raised::USED_ID => Error::already_exists_from_text(operation, message)
            .unwrap_or_else(|| Error::new(kind, operation, told)),
        // Two callers with the same key at once: where the second was not made to wait, it finds the first one's ids the next time.
        2601 | 2627 if is_about(message, "_idempotency") => Error::new(ErrorKind::Conflict, operation, told),
        2601 | 2627
            if is_about(message, "UQ_") && !is_about(message, "_ledger") && is_about(message, "_Id") =>
        {
            Error::invalid(operation, "work_item_id", "must be new: use every id once")
        }
        2601 | 2627 => Error::new(ErrorKind::Conflict, operation, told),
        _ => Error::new(kind, operation, told),
    };
    let error = match kind {
        // The server is being switched over, or its disk looked after; the same call may succeed then.
        ErrorKind::ReadOnly | ErrorKind::Full => error.with_retryable(true),
        ErrorKind::Conflict if matches!(number, 3902 | 3903 | 3930) => error.with_retryable(false),
        _ => error,
    };
    error.with_source(source)
}

/// Whether the server has surely undone what it was asked, so that its connection has no transaction open and can be used for something else.
///
/// Procedures set `XACT_ABORT`, with which whatever goes wrong while a statement runs ends the transaction, and so does what they throw: a wrong argument, a
/// concurrent statement (1205, 1222), a lease that is lost. The book does not say so of what goes wrong before a statement runs, though the procedure it is in has begun: a name in
/// it that is not there (208), a right (229); nor of a server in trouble, or of a number that we don't know. These are rare, and to connect anew is little beside locks
/// that nobody lets go of, and work that is never committed. Nothing here sends an attention, after which a transaction would stay: what is given up is closed.
pub(crate) fn has_undone(error: &Error) -> bool {
    match error.kind() {
        ErrorKind::InvalidArgument
        | ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::Mismatch
        | ErrorKind::LeaseLost => true,
        // Not where there was a transaction too many, or one too few.
        ErrorKind::Conflict => error.is_retryable(),
        _ => false,
    }
}

/// Whether a message names a constraint with this in its name, in whatever case.
fn is_about(message: &str, part: &str) -> bool {
    message.to_ascii_lowercase().contains(&part.to_ascii_lowercase())
}

/// Whether the server has answered that it did not begin with what it was asked: so it can be asked again, whatever that was.
pub(crate) fn was_turned_away(error: &Error) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<ServerError>());
    source.is_some_and(|source| TURNED_AWAY.contains(&source.number))
}

/// A call got no answer in time.
pub(crate) fn unanswered(operation: &'static str, limit: std::time::Duration) -> Error {
    let text = format!(
        "the database did not answer within {limit:?}, and the connection was closed; raise call_timeout if calls rightly take longer"
    );
    Error::unanswered(operation, text)
}

/// The store was closed.
pub(crate) fn closed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Closed, operation, "the store has been closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(number: u32, message: &str) -> Error {
        from_fault("test", Fault::Server { number, class: 16, message: message.to_owned() })
    }

    #[test]
    fn what_may_pass_is_told_from_what_will_not() {
        for number in
            [1205, 1222, 233, 10053, 10054, 10060, 40197, 40501, 40613, 4060, 49918, 49919, 49920, 50004]
                .into_iter()
                .chain([601, 1204, 701, 8645, 921, 922, 976, 978, 979, 982, 983, 40143, 40540, 10928, 10929])
        {
            assert!(error(number, "x").is_retryable(), "{number}");
        }
        for number in [208, 2812, 229, 18456, 911, 547, 515, 50001, 50002, 50003, 3930, 99999] {
            assert!(!error(number, "x").is_retryable(), "{number}");
        }
        assert!(error(UNMAPPED, "canceling statement due to lock timeout").is_retryable());
        assert!(from_fault("test", Fault::Broken("reset".into())).is_retryable());
        assert!(!from_fault("test", Fault::Tls("no".into())).is_retryable());
    }

    #[test]
    fn kinds_follow_the_numbers() {
        for (number, kind) in [
            (208, ErrorKind::Schema),
            (2812, ErrorKind::Schema),
            (229, ErrorKind::Denied),
            (18456, ErrorKind::Denied),
            (1205, ErrorKind::Conflict),
            (8645, ErrorKind::Conflict),
            (983, ErrorKind::Unavailable),
            (40501, ErrorKind::Unavailable),
            (3906, ErrorKind::ReadOnly),
            (1105, ErrorKind::Full),
            (raised::NOT_FOUND, ErrorKind::NotFound),
            (raised::LEASE_LOST, ErrorKind::LeaseLost),
            (547, ErrorKind::InvalidArgument),
        ] {
            assert_eq!(error(number, "x").kind(), kind, "{number}");
        }
        let missing = error(UNMAPPED, "relation \"infra.outbox\" does not exist");
        assert_eq!(missing.kind(), ErrorKind::Schema);
        assert!(missing.message().contains("mainstay migrate"));
    }

    #[test]
    fn values_are_not_quoted() {
        let duplicate = "Violation of UNIQUE KEY constraint 'UQ_Outbox_Id'. Cannot insert duplicate key in object 'infra.Outbox'. The duplicate key value is (secret).";
        assert_eq!(error(2627, duplicate).field(), Some("work_item_id"));
        for (number, message) in [
            (2627, duplicate),
            (
                2628,
                "String or binary data would be truncated in table 'x', column 'y'. Truncated value: 'secret'.",
            ),
            (245, "Conversion failed when converting the nvarchar value 'secret' to data type int."),
            (UNMAPPED, "invalid input syntax for type json: \"secret\""),
        ] {
            let error = error(number, message);
            assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
        }
    }

    #[test]
    fn what_was_never_begun_is_told_from_what_may_have_been_done() {
        assert!(was_turned_away(&error(40501, "x")) && was_turned_away(&error(10928, "x")));
        // In between the server may have gone down after it was done.
        assert!(!was_turned_away(&error(40197, "x")) && !was_turned_away(&error(1205, "x")));
        assert!(!was_turned_away(&from_fault("test", Fault::Broken("reset".into()))));
    }

    #[test]
    fn a_used_id_is_named_with_its_status() {
        let id = mainstay_core::WorkItemId::new();
        let text = format!("outbox_enqueue: work_item_id {id} belongs to a work item that is in-progress");
        let error = error(raised::USED_ID, &text);
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::AlreadyExists, false));
        let existing = error.existing().unwrap();
        assert_eq!((existing.id, existing.status), (id, mainstay_core::queue::Status::InProgress));
        assert!(has_undone(&error));
    }

    #[test]
    fn two_at_once_with_one_key_is_a_conflict() {
        let error = error(2627, "duplicate key value violates unique constraint \"pk_outbox_idempotency\"");
        assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Conflict, true));
    }

    #[test]
    fn only_an_error_that_ends_the_transaction_leaves_the_connection_fit_for_others() {
        for number in [1205, 1222, 547, 2627, 50_001, 50_002, 50_003, 50_004, 50_009] {
            assert!(has_undone(&error(number, "x")), "{number}");
        }
        for number in [208, 2812, 229, 3930, 3902, 3906, 9002, 40197, 40501, 99_999] {
            assert!(!has_undone(&error(number, "x")), "{number}");
        }
        assert!(!has_undone(&from_fault("test", Fault::Broken("reset".into()))));
    }

    #[test]
    fn a_database_that_cannot_be_opened_is_tried_again_and_told_what_to_check() {
        let error = error(4060, "Cannot open database \"shop\" requested by the login. The login failed.");
        assert!(error.is_retryable() && error.message().contains("mapped to a user"), "{error}");
    }

    #[test]
    fn severe_errors_cost_the_connection() {
        let fault = |class| Fault::Server { number: 1, class, message: String::new() };
        assert!(fault(19).leaves_connection() && !fault(20).leaves_connection());
        assert!(!Fault::Broken(String::new()).leaves_connection());
    }
}
