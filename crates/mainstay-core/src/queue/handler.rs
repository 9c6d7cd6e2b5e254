//! Handlers: what an application runs for a message, and what it may answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;

use super::Context;

/// What a handler may answer besides success.
///
/// Any `std::error::Error` turns into [`HandlerError::Retry`] with `?`, so plain code retries by the topic's policy.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandlerError {
    /// Try again by the topic's policy. The delivery counts.
    Retry(String),
    /// Try again after this long. The delivery counts.
    RetryAfter(Duration, String),
    /// Hand it out again after this long. The delivery does not count. Why, if that is said, is kept as the last error and told by `mainstay why`.
    Snooze(Duration, Option<String>),
    /// Give it up for good.
    Fail(String),
}

impl HandlerError {
    /// Try again by the topic's policy.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self::Retry(error.to_string())
    }
    /// Try again after this long.
    pub fn retry_after(delay: Duration, error: impl fmt::Display) -> Self {
        Self::RetryAfter(delay, error.to_string())
    }
    /// Hand it out again after this long, without counting this delivery.
    pub fn snooze(delay: Duration) -> Self {
        Self::Snooze(delay, None)
    }
    /// The same, and why.
    pub fn snooze_because(delay: Duration, reason: impl fmt::Display) -> Self {
        Self::Snooze(delay, Some(reason.to_string()))
    }
    /// Give it up for good.
    pub fn fail(reason: impl fmt::Display) -> Self {
        Self::Fail(reason.to_string())
    }
}

impl<E: std::error::Error + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::Retry(chain(&error))
    }
}

/// An error with everything underneath it, since the outermost text alone seldom says what happened.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = without_values(error);
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = without_values(cause);
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// The result of a handler.
pub type HandlerResult = Result<(), HandlerError>;

/// What a handler's future may yield: `()`, or a `Result` whose error turns into a [`HandlerError`].
pub trait HandlerOutput {
    /// The result of the handler.
    fn into_result(self) -> HandlerResult;
}

impl HandlerOutput for () {
    fn into_result(self) -> HandlerResult {
        Ok(())
    }
}

impl<E: Into<HandlerError>> HandlerOutput for Result<(), E> {
    fn into_result(self) -> HandlerResult {
        self.map_err(Into::into)
    }
}

/// A handler as the dispatcher holds it.
#[derive(Clone)]
pub struct Handler(Arc<dyn Fn(Context) -> BoxFuture<'static, HandlerResult> + Send + Sync>);

impl Handler {
    /// A handler of raw payloads: an `async fn(Context)`.
    pub fn raw<F, Fut>(handler: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        Self(Arc::new(move |context| handler(context).map(HandlerOutput::into_result).boxed()))
    }

    /// A handler of payloads that are JSON of `T`: an `async fn(T, Context)`.
    ///
    /// A payload that is not JSON of `T` is a failed attempt like any other: a newer version of the program may
    /// understand it.
    pub fn typed<T, F, Fut>(handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: HandlerOutput> + Send + 'static,
    {
        Self(Arc::new(move |context| match decode(context.payload()) {
            Ok(value) => handler(value, context).map(HandlerOutput::into_result).boxed(),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }))
    }

    pub(crate) fn call(&self, context: Context) -> BoxFuture<'static, HandlerResult> {
        (self.0)(context)
    }
}

/// An error's text without the values that two common libraries quote: a payload must not get into logs (R27).
fn without_values(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(error) = error.downcast_ref::<serde_json::Error>() {
        let (category, line, column) = (error.classify(), error.line(), error.column());
        return format!("JSON: {category:?} error at line {line}, column {column}");
    }
    // What PostgreSQL says in detail is the row's own keys.
    let mut text = error.to_string();
    if let Some(detail) = text.find("\nDETAIL:") {
        text.truncate(detail);
    }
    text
}

fn decode<T: DeserializeOwned>(payload: &str) -> Result<T, HandlerError> {
    serde_json::from_str(payload).map_err(|error| {
        let wanted = std::any::type_name::<T>();
        HandlerError::Retry(format!("the payload is not JSON of {wanted} ({})", without_values(&error)))
    })
}

impl fmt::Debug for Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_no_values() {
        let error = serde_json::from_str::<u32>("\"secret\"").unwrap_err();
        let HandlerError::Retry(text) = HandlerError::from(error) else { panic!("a retry was expected") };
        assert_eq!(text, "JSON: Data error at line 1, column 8");
        let error =
            std::io::Error::other("ERROR: duplicate key\nDETAIL: Key (mail)=(secret) already exists.");
        let HandlerError::Retry(text) = HandlerError::from(error) else { panic!("a retry was expected") };
        assert_eq!(text, "ERROR: duplicate key");
    }
}
