//! Reading requests: body, query, path, and who asks. What can't be read is a problem that names the field.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header;
use axum::http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use mainstay_core::fanout::Fanout;
use mainstay_core::inbox::Inbox;
use mainstay_core::job::Jobs;
use mainstay_core::join::Joins;
use mainstay_core::lease::Leases;
use mainstay_core::operation::Operations;
use mainstay_core::outbox::Outbox;
use mainstay_core::runtime::Mainstay;
use mainstay_core::timer::Timers;
use serde::de::DeserializeOwned;
use tokio::sync::SemaphorePermit;

use crate::access::Caller;
use crate::patience::Patience;
use crate::problem::{Kind, Problem};
use crate::state::Shared;
use crate::stores;

/// The parameter that every operation on a database takes.
const STORE: &str = "store";

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Shared> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Shared) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !kind.is_some_and(is_json) {
            let text = "the body must be JSON, with the header `Content-Type: application/json`";
            return Err(Problem::new(Kind::MediaType, text));
        }
        let bytes = read(request, shared).await?;
        let mut reader = serde_json::Deserializer::from_slice(&bytes);
        let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
            let path = error.path().to_string();
            unread(path, error.inner())
        })?;
        reader.end().map_err(|error| unread(".".to_owned(), &error))?;
        Ok(Self(value))
    }
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

async fn read(request: Request, shared: &Shared) -> Result<bytes::Bytes, Problem> {
    let most = shared.limits.body_bytes;
    let too_large = || {
        Problem::new(
            Kind::TooLarge,
            format!("the body must be at most {most} bytes; send fewer messages at once"),
        )
    };
    let told = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|bytes| bytes > most as u64) {
        return Err(too_large());
    }
    let body = Limited::new(request.into_body(), most).collect();
    match tokio::time::timeout(shared.limits.body_timeout, body).await {
        Err(_) => {
            let text = format!("the body must arrive within {:?}", shared.limits.body_timeout);
            Err(Problem::new(Kind::Timeout, text))
        }
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => {
            Err(Problem::new(Kind::Malformed, "the body broke off, or is not framed as HTTP has it"))
        }
    }
}

/// The text of serde's error goes back to the one who sent the body, and nowhere else.
fn unread(path: String, error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    if error.is_data() {
        let field = if path == "." { "body".to_owned() } else { path };
        // The place is the field; lines and columns only distract.
        let text = text.split(" at line ").next().unwrap_or_default();
        return Problem::invalid(field, format_args!("can't be read: {text}"));
    }
    Problem::new(Kind::Malformed, format!("the body is not valid JSON: {text}"))
}

/// The parameters of the query, but for the store.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequestParts<Shared> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Shared) -> Result<Self, Problem> {
        let rest: Vec<_> = pairs(parts)?.into_iter().filter(|(name, _)| name != STORE).collect();
        // Encoded again, since that is what numbers and words are read from.
        let text = serde_urlencoded::to_string(&rest).unwrap_or_default();
        let reader = serde_urlencoded::Deserializer::new(form(text.as_bytes()));
        serde_path_to_error::deserialize(reader).map(Self).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." || path == "?" { "query".to_owned() } else { path };
            Problem::invalid(field, format_args!("can't be read: {}", error.inner()))
        })
    }
}

fn form(text: &[u8]) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(text)
}

fn pairs(parts: &Parts) -> Result<Vec<(String, String)>, Problem> {
    let query = parts.uri.query().unwrap_or_default();
    serde_urlencoded::from_str(query).map_err(|_| Problem::new(Kind::Malformed, "the query can't be read"))
}

/// The names in the path.
pub(crate) struct Named<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Shared> for Named<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        match Path::<T>::from_request_parts(parts, shared).await {
            Ok(Path(names)) => Ok(Self(names)),
            // What can't be an id is the id of nothing.
            Err(PathRejection::FailedToDeserializePathParams(error)) => {
                Err(Problem::new(Kind::Malformed, format!("the path can't be read: {}", error.body_text())))
            }
            Err(_) => Err(Problem::new(Kind::Malformed, "the path can't be read")),
        }
    }
}

/// A request to one database: whose it is, and the handles that act for them.
pub(crate) struct Call {
    pub(crate) mainstay: Mainstay,
    pub(crate) caller: Caller,
    pub(crate) shared: Shared,
    pub(crate) patience: Patience,
    store: Option<String>,
}

impl FromRequestParts<Shared> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Shared) -> Result<Self, Problem> {
        let stores: Vec<_> = pairs(parts)?.into_iter().filter(|(name, _)| name == STORE).collect();
        if stores.len() > 1 {
            return Err(Problem::invalid(STORE, "must be given once"));
        }
        let store = stores.first().map(|(_, id)| id.as_str());
        let mainstay = shared.stores.get(store)?;
        let store = store.map(str::to_owned);
        let patience = parts.extensions.get::<Patience>().cloned().unwrap_or_default();
        Ok(Self { mainstay, caller: caller(parts)?, shared: shared.clone(), patience, store })
    }
}

/// Who asks; every operation that needs somebody has been refused before without one.
fn caller(parts: &Parts) -> Result<Caller, Problem> {
    let caller = parts.extensions.get::<Caller>().cloned();
    caller.ok_or_else(|| Problem::new(Kind::Unauthenticated, "give a token as `Authorization: Bearer TOKEN`"))
}

impl Call {
    /// The id of the database.
    pub(crate) fn store(&self) -> &str {
        self.store.as_deref().unwrap_or(stores::ONLY)
    }
    pub(crate) fn outbox(&self) -> Outbox {
        self.mainstay.outbox().by(self.caller.actor())
    }
    pub(crate) fn inbox(&self) -> Inbox {
        self.mainstay.inbox().by(self.caller.actor())
    }
    pub(crate) fn timers(&self) -> Timers {
        self.mainstay.timers().by(self.caller.actor())
    }
    pub(crate) fn jobs(&self) -> Jobs {
        self.mainstay.jobs().by(self.caller.actor())
    }
    pub(crate) fn leases(&self) -> Leases {
        self.mainstay.leases().by(self.caller.actor())
    }
    pub(crate) fn joins(&self) -> Joins {
        self.mainstay.joins().by(self.caller.actor())
    }
    pub(crate) fn fanout(&self) -> Fanout {
        self.mainstay.fanout().by(self.caller.actor())
    }
    pub(crate) fn operations(&self) -> Operations {
        self.mainstay.operations().by(self.caller.actor())
    }
    /// Whether payloads and headers of messages are shown.
    pub(crate) fn shows(&self) -> bool {
        self.caller.sees_payloads()
    }

    /// A place to wait at, until it is dropped.
    pub(crate) fn wait_here(&self) -> Result<SemaphorePermit<'_>, Problem> {
        self.shared.waiting.try_acquire().map_err(|_| {
            let most = self.shared.limits.waiting;
            let text =
                format!("{most} requests wait already; ask again in a moment, or without wait_seconds");
            Problem::new(Kind::Unavailable, text)
        })
    }

    /// Refuses lists that are empty or too long.
    pub(crate) fn check_batch<T>(&self, field: &str, list: &[T]) -> Result<(), Problem> {
        let (most, got) = (self.shared.limits.batch, list.len());
        if !(1..=most).contains(&got) {
            return Err(Problem::invalid(field, format_args!("must have 1 to {most} items, got {got}")));
        }
        Ok(())
    }
}
