//! The trace of a request: whatever is done for it goes on in the trace that the caller names.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use mainstay_core::trace::{TRACEPARENT, TraceContext};

/// Takes over the caller's trace. A malformed one counts as none.
pub(crate) async fn carry(request: Request, next: Next) -> Response {
    let given = request.headers().get(TRACEPARENT).and_then(|value| value.to_str().ok()?.parse().ok());
    TraceContext::within(given, next.run(request)).await
}
