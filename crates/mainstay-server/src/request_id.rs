//! The id of a request: what its answer, the server's log and the audit trail all name, so that one is found by the other.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use uuid::Uuid;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longer ones are replaced: they go into the audit trail.
const MAX: usize = 128;

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request that is being answered.
pub(crate) fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

/// Takes over the caller's id, or makes one, and sends it back.
pub(crate) async fn carry(request: Request, next: Next) -> Response {
    let given = request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let id = match given {
        Some(id) if is_usable(id) => id.to_owned(),
        _ => Uuid::now_v7().to_string(),
    };
    let mut response = CURRENT.scope(id.clone(), next.run(request)).await;
    // Visible characters only, which a header can always hold.
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

fn is_usable(id: &str) -> bool {
    (1..=MAX).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic())
}
