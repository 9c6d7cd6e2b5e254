//! What is told when a request can't be done: problem details as RFC 9457 has them.
//!
//! Programs match on the type, people read the detail. The detail of what is the server's own fault stays in the log: it may name
//! hosts, files and rows that are nobody's business.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mainstay_core::{Error, ErrorKind};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::request_id;

/// How the types of all problems begin.
const URN: &str = "urn:mainstay:problem:";

/// A request that was not done, and why.
#[derive(Debug, Clone)]
#[must_use = "a problem is only told when it is returned"]
pub struct Problem {
    kind: Kind,
    detail: String,
    errors: Vec<FieldError>,
    retryable: bool,
    extra: Map<String, Value>,
}

/// What is wrong with one field.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct FieldError {
    /// The field, as a path within the body, or the parameter.
    field: String,
    /// What is wrong with it, and its bound.
    detail: String,
}

/// A problem as it is sent (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// What programs match on: `urn:mainstay:problem:` and a name.
    #[serde(rename = "type")]
    #[schema(example = "urn:mainstay:problem:invalid-argument")]
    kind: String,
    /// The type in words.
    title: &'static str,
    /// The status of the response.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What is wrong this time, and what to do.
    detail: String,
    /// The request, as the server's log and the audit trail have it.
    request_id: Option<String>,
    /// Whether the same request may succeed later.
    retryable: bool,
    /// The fields at fault, if any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<FieldError>,
    /// What else there is to tell of problems of this type.
    #[serde(flatten)]
    #[schema(ignore)]
    extra: Map<String, Value>,
}

macro_rules! kinds {
    ($($variant:ident $status:ident $name:literal $title:literal),+ $(,)?) => {
        /// The types of problems. Their names are part of the interface.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind { $($variant),+ }

        impl Kind {
            /// Its name, status and title.
            const fn words(self) -> (&'static str, StatusCode, &'static str) {
                match self { $(Self::$variant => ($name, StatusCode::$status, $title)),+ }
            }
        }
    };
}

kinds! {
    Malformed BAD_REQUEST "malformed" "The request can't be read",
    Unauthenticated UNAUTHORIZED "unauthenticated" "Who asks is not known",
    Forbidden FORBIDDEN "forbidden" "The role does not allow it",
    NotFound NOT_FOUND "not-found" "There is no such thing",
    MethodNotAllowed METHOD_NOT_ALLOWED "method-not-allowed" "The path has no such method",
    Timeout REQUEST_TIMEOUT "timeout" "The request took too long to arrive",
    Conflict CONFLICT "conflict" "It does not go together with how things stand",
    AlreadyExists CONFLICT "already-exists" "A work item has this id already",
    Mismatch CONFLICT "mismatch" "It is not as it was expected to be",
    ClaimLost CONFLICT "claim-lost" "The claim is no longer held",
    LeaseLost CONFLICT "lease-lost" "The lease is no longer held",
    LeaseHeld CONFLICT "lease-held" "Somebody else has the lease",
    TooLarge PAYLOAD_TOO_LARGE "too-large" "The body is too large",
    MediaType UNSUPPORTED_MEDIA_TYPE "unsupported-media-type" "The body is of another type",
    Misdirected MISDIRECTED_REQUEST "misdirected" "The request was meant for another host",
    Invalid UNPROCESSABLE_ENTITY "invalid-argument" "A value is outside its contract",
    TooManyFailures TOO_MANY_REQUESTS "too-many-failures" "Too many failed authentications",
    Internal INTERNAL_SERVER_ERROR "internal" "Something that should not happen",
    Unsupported NOT_IMPLEMENTED "unsupported" "The database can't do this",
    Unavailable SERVICE_UNAVAILABLE "unavailable" "The database, or the server, is not available",
    Schema SERVICE_UNAVAILABLE "schema" "The schema is not the right one",
    DatabaseDenied SERVICE_UNAVAILABLE "database-denied" "The database refused the server",
    DatabaseReadOnly SERVICE_UNAVAILABLE "database-read-only" "The database can't be written to",
    DatabaseDamaged SERVICE_UNAVAILABLE "database-damaged" "The database is damaged",
    DatabaseFull INSUFFICIENT_STORAGE "database-full" "The database has no room left",
}

/// Failures of a second that are logged as errors.
const SAID_MAX: u32 = 10;

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let retryable = matches!(kind, Kind::Unavailable | Kind::Timeout | Kind::LeaseHeld);
        Self { kind, detail: detail.into(), errors: Vec::new(), retryable, extra: Map::new() }
    }

    /// A value outside its contract, by its field.
    pub(crate) fn invalid(field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        let field = field.into();
        let detail = format!("{field} {reason}");
        Self {
            errors: vec![FieldError { field, detail: reason.to_string() }],
            ..Self::new(Kind::Invalid, detail)
        }
    }

    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Kind::NotFound, format!("there is no {what}"))
    }

    /// Adds something that problems of this type tell.
    pub(crate) fn with(mut self, name: &str, value: impl Serialize) -> Self {
        // Only texts, numbers and lists of them get here, which can always be written.
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.extra.insert(name.to_owned(), value);
        self
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        self.kind.words().1
    }

    fn retry_after(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Unavailable => Some("1"),
            Kind::TooManyFailures => Some("60"),
            _ => None,
        }
    }
}

/// The core's name of a field, as requests have it.
fn as_sent(field: &str) -> &str {
    match field {
        "lease" => "lease_seconds",
        "delay" => "delay_seconds",
        "duration" => "duration_seconds",
        "every" => "every_seconds",
        "jitter" => "jitter_seconds",
        "due" => "due_in_seconds",
        "expiry" => "expires_in_seconds",
        "deadline" => "deadline_in_seconds",
        "expected_steps" => "expected",
        other => other,
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Problem {
    fn from(error: &Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::InvalidArgument => {
                let field = error.field().unwrap_or("request");
                let reason = error.message().strip_prefix(field).unwrap_or(error.message()).trim_start();
                return Self::invalid(as_sent(field), reason);
            }
            ErrorKind::NotFound => Kind::NotFound,
            ErrorKind::AlreadyExists => Kind::AlreadyExists,
            ErrorKind::Conflict => Kind::Conflict,
            ErrorKind::Mismatch => Kind::Mismatch,
            ErrorKind::ClaimLost => Kind::ClaimLost,
            ErrorKind::LeaseLost => Kind::LeaseLost,
            ErrorKind::Unsupported => Kind::Unsupported,
            ErrorKind::Unavailable | ErrorKind::Closed => Kind::Unavailable,
            ErrorKind::Schema => Kind::Schema,
            ErrorKind::Denied => Kind::DatabaseDenied,
            ErrorKind::ReadOnly => Kind::DatabaseReadOnly,
            ErrorKind::Damaged => Kind::DatabaseDamaged,
            ErrorKind::Full => Kind::DatabaseFull,
            _ => Kind::Internal,
        };
        let ours = kind.words().1.is_server_error() && kind != Kind::Unsupported;
        let detail = if ours {
            tell(error);
            "the server's log says more, under this request_id".to_owned()
        } else {
            error.message().to_owned()
        };
        let retryable = error.is_retryable() || kind == Kind::Unavailable;
        let problem = Self { retryable, ..Self::new(kind, detail) };
        match error.existing() {
            Some(item) => problem.with("work_item_id", item.id).with("work_item_status", item.status),
            None => problem,
        }
    }
}

/// What went wrong, for the log. With the database down every request fails alike, and the log is to be readable: the first few of a second
/// are errors.
fn tell(error: &Error) {
    static SAID: Mutex<(Option<Instant>, u32)> = Mutex::new((None, 0));
    let said = {
        // A moment and a number are whole whatever panicked beside them.
        let (since, said) = &mut *SAID.lock().unwrap_or_else(PoisonError::into_inner);
        if since.is_none_or(|since| since.elapsed() >= Duration::from_secs(1)) {
            (*since, *said) = (Some(Instant::now()), 0);
        }
        *said = said.saturating_add(1);
        *said
    };
    let request_id = request_id::current();
    match said {
        ..SAID_MAX => tracing::error!(%error, request_id, "a request failed"),
        SAID_MAX => {
            tracing::error!(%error, request_id, "a request failed; more of this second are told at debug")
        }
        _ => tracing::debug!(%error, request_id, "a request failed"),
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (name, status, title) = self.kind.words();
        let retry_after = self.retry_after();
        let body = ProblemBody {
            kind: format!("{URN}{name}"),
            title,
            status: status.as_u16(),
            detail: self.detail,
            request_id: request_id::current(),
            retryable: self.retryable,
            errors: self.errors,
            extra: self.extra,
        };
        // Texts and numbers only, which can always be written.
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"mainstay\""));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_servers_own_fault_is_not_told() {
        let error = Error::new(ErrorKind::Internal, "outbox.claim", "relation infra.outbox on host db-7");
        let problem = Problem::from(error);
        assert!(!problem.detail.contains("db-7"), "{problem:?}");
        assert_eq!(problem.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }

    #[test]
    fn a_field_is_named_once() {
        let problem = Problem::from(Error::invalid("outbox.claim", "batch", "must be at least 1, got 0"));
        assert_eq!(problem.detail, "batch must be at least 1, got 0");
        assert_eq!((problem.errors[0].field.as_str(), problem.status().as_u16()), ("batch", 422));
        assert_eq!(problem.errors[0].detail, "must be at least 1, got 0");
    }

    #[test]
    fn every_kind_of_the_core_has_a_status_of_its_class() {
        for (kind, status) in [
            (ErrorKind::NotFound, 404),
            (ErrorKind::AlreadyExists, 409),
            (ErrorKind::Conflict, 409),
            (ErrorKind::Mismatch, 409),
            (ErrorKind::ClaimLost, 409),
            (ErrorKind::LeaseLost, 409),
            (ErrorKind::Unavailable, 503),
            (ErrorKind::Closed, 503),
            (ErrorKind::Schema, 503),
            (ErrorKind::Denied, 503),
            (ErrorKind::ReadOnly, 503),
            (ErrorKind::Damaged, 503),
            (ErrorKind::Full, 507),
            (ErrorKind::Unsupported, 501),
            (ErrorKind::Config, 500),
        ] {
            assert_eq!(Problem::from(Error::new(kind, "t", "x")).status().as_u16(), status, "{kind:?}");
        }
    }
}
