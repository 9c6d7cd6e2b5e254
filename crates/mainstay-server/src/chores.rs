//! What happens around every request: a bound on its time, no word of a panic, headers for browsers, and the host it was meant for.

use std::panic::AssertUnwindSafe;
use std::pin::pin;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use tokio::time::Instant;

use crate::patience::Patience;
use crate::problem::{Kind, Problem};
use crate::request_id;
use crate::state::Shared;

/// Ends a request that takes too long. What it asked for then happened as a whole or not at all.
pub(crate) async fn bound(State(shared): State<Shared>, mut request: Request, next: Next) -> Response {
    let (begun, patience) = (Instant::now(), Patience::default());
    request.extensions_mut().insert(patience.clone());
    let mut answered = pin!(AssertUnwindSafe(next.run(request)).catch_unwind());
    let mut most = shared.limits.request_timeout;
    loop {
        match tokio::time::timeout_at(begun + most, answered.as_mut()).await {
            Ok(Ok(response)) => return response,
            Ok(Err(_)) => {
                tracing::error!(request_id = request_id::current(), "a request panicked");
                let text = "the server's log says more, under this request_id";
                return Problem::new(Kind::Internal, text).into_response();
            }
            // By now it is known what it asks to wait for.
            Err(_) if most < shared.limits.request_timeout + patience.asked() => {
                most = shared.limits.request_timeout + patience.asked();
            }
            Err(_) => {
                let text = format!("there was no answer within {most:?}; it may have been done all the same");
                return Problem::new(Kind::Unavailable, text).into_response();
            }
        }
    }
}

/// The header with which a request is done once, however often it is sent.
pub(crate) const KEY_HEADER: &str = "idempotency-key";

/// Refuses a key where it would have no effect: whoever gives one relies on it.
pub(crate) async fn without_key(request: Request, next: Next) -> Response {
    if !request.headers().contains_key(KEY_HEADER) {
        return next.run(request).await;
    }
    let text = "must not be given here: it has no effect. It has with POST /v1/outbox/messages and /v1/timers; each message of a batch has \
                an idempotency_key in the body, a received one its source and message_id";
    Problem::invalid("Idempotency-Key", text).into_response()
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

/// Refuses what a page of another site lets a browser send: whoever looks at that page would change things here without knowing. Programs
/// send no such headers.
pub(crate) async fn same_site(request: Request, next: Next) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if reads || is_same_site(&request) {
        return next.run(request).await;
    }
    let text = "a page of another site sent this; only programs, and pages of this host, may change things";
    Problem::new(Kind::Forbidden, text).into_response()
}

fn is_same_site(request: &Request) -> bool {
    let text = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    if let Some(site) = text("sec-fetch-site") {
        return matches!(site, "same-origin" | "none");
    }
    match text("origin") {
        None => true,
        Some(origin) => origin.split_once("://").map(|(_, there)| there) == host(request),
    }
}

/// Refuses what was meant for another host, where nobody has to prove who they are: a page in a browser can have its own name point here.
pub(crate) async fn only_loopback(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    // What a proxy on this machine passes on comes from anywhere.
    let passed_on = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];
    let passed_on = passed_on.iter().any(|name| request.headers().contains_key(*name));
    if !shared.loopback_only || !passed_on && is_meant_for_loopback(&request) {
        return next.run(request).await;
    }
    let text = "without authentication only requests of this machine to localhost, 127.0.0.1 or [::1] are answered, and none that a proxy \
                passes on; set up tokens";
    Problem::new(Kind::Misdirected, text).into_response()
}

fn host(request: &Request) -> Option<&str> {
    let given = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    given.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Whether each host that it names, in its first line and in its one header, is this machine, and it names one.
fn is_meant_for_loopback(request: &Request) -> bool {
    let named = request.uri().authority().map(|authority| is_loopback(authority.as_str()));
    let mut given = request.headers().get_all(header::HOST).iter();
    let first = given.next().map(|value| value.to_str().is_ok_and(is_loopback));
    given.next().is_none()
        && (named.is_some() || first.is_some())
        && named.unwrap_or(true)
        && first.unwrap_or(true)
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
    use axum::body::Body;

    use super::{Request, is_loopback, is_same_site};

    #[test]
    fn pages_of_other_sites_change_nothing() {
        let with = |headers: &[(&str, &str)]| {
            let request = Request::post("/v1/jobs/j/trigger").header("host", "127.0.0.1:7417");
            let request =
                headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
            is_same_site(&request.body(Body::empty()).unwrap())
        };
        assert!(with(&[]), "a program");
        assert!(with(&[("origin", "http://127.0.0.1:7417")]));
        assert!(with(&[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:7417")]));
        for headers in [
            &[("origin", "https://evil.example")][..],
            &[("origin", "null")],
            &[("origin", "http://127.0.0.1:8000")],
            &[("sec-fetch-site", "cross-site")],
            &[("sec-fetch-site", "same-site"), ("origin", "http://127.0.0.1:7417")],
        ] {
            assert!(!with(headers), "{headers:?}");
        }
    }

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
