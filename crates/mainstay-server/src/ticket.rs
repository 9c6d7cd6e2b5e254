//! Tickets: what a client is given for something that it holds, and proves with it that it does. Opaque to him.
//!
//! They are no secrets kept by a signature: the database compares everything in them with what stands there.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// Writes one. `kind` keeps one thing's from being taken for another's.
pub(crate) fn write(kind: &str, what: &impl Serialize) -> String {
    // Ids, texts and numbers only, which can always be written.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&(kind, what)).unwrap_or_default())
}

/// Reads one.
pub(crate) fn read<T: DeserializeOwned>(kind: &str, field: &str, ticket: &str) -> Result<T, Problem> {
    let read = || {
        let bytes = URL_SAFE_NO_PAD.decode(ticket).ok()?;
        let (of, what): (String, T) = serde_json::from_slice(&bytes).ok()?;
        (of == kind).then_some(what)
    };
    read().ok_or_else(|| wrong(field))
}

/// One that this server has not given.
pub(crate) fn wrong(field: &str) -> Problem {
    Problem::invalid(field, "must be as the server gave it")
}
