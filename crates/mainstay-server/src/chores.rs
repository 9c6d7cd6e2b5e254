//! What happens around every request: a bound on its time, no word of a panic, headers for browsers, and the host it was meant for.

use std::panic::AssertUnwindSafe;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use crate::problem::{Kind, Problem};
use crate::request_id;
use crate::state::Shared;

/// Ends a request that takes too long. What it asked for then happened as a whole or not at all.
pub(crate) async fn bound(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let most = shared.limits.request_timeout + shared.limits.wait;
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(most, answered).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            tracing::error!(request_id = request_id::current(), "a request panicked");
            Problem::new(Kind::Internal, "the server's log says more, under this request_id").into_response()
        }
        Err(_) => {
            let text = format!("there was no answer within {most:?}; it may have been done all the same");
            Problem::new(Kind::Unavailable, text).into_response()
        }
    }
}

/// What browsers are to know, and caches.
pub(crate) async fn secure(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let mut response = next.run(request).await;
    // A request that was refused with its body unread leaves the rest of it on the wire.
    let unread =
        !reads && matches!(response.status(), StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT);
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    if unread {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Refuses what was meant for another host, where nobody has to prove who they are: a page in a browser can have its own name point here.
pub(crate) async fn only_loopback(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    if !shared.loopback_only || host(&request).is_some_and(is_loopback) {
        return next.run(request).await;
    }
    let text =
        "without authentication only requests to localhost, 127.0.0.1 or [::1] are answered; set up tokens";
    Problem::new(Kind::Misdirected, text).into_response()
}

fn host(request: &Request) -> Option<&str> {
    let given = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    given.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_loopback_is_loopback() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1:7417", "127.9.9.9", "[::1]:1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1:80",
            "[fe80::1]",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
