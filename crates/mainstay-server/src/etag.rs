//! ETags, made of the content: who asks again for what has not changed gets no body.

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use crate::problem::{Kind, Problem};

/// A tag that is known already, as an extension of the response: nobody has to look through the content for it.
#[derive(Debug, Clone)]
pub(crate) struct Tag(String);

impl Tag {
    /// That of this content.
    pub(crate) fn of(content: &[u8]) -> Self {
        let digest = Sha256::digest(content);
        let tag: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(format!("\"{tag}\""))
    }
}

/// What caches may do with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caching {
    /// A cache may keep it, and has to ask every time.
    Ask,
    /// It may have a payload in it, which is to be in the database only. Programs can still compare.
    Never,
}

impl Caching {
    const fn directives(self) -> &'static str {
        match self {
            Self::Ask => "private, no-cache",
            Self::Never => "no-store",
        }
    }
}

/// Adds an ETag to what was found, and leaves the body out where the caller has it.
pub(crate) async fn compare(caching: Caching, request: Request, next: Next) -> Response {
    let known = request.headers().clone();
    let response = next.run(request).await;
    if response.status() != StatusCode::OK {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // Made here, and in memory already.
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return Problem::new(Kind::Internal, "the answer could not be put together").into_response();
    };
    let Tag(tag) = parts.extensions.remove::<Tag>().unwrap_or_else(|| Tag::of(&bytes));
    if let Ok(value) = HeaderValue::from_str(&tag) {
        parts.headers.insert(header::ETAG, value);
    }
    parts.headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(caching.directives()));
    if is_known(&known, &tag) {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_TYPE);
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, Body::from(bytes))
}

fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let given = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    given
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .any(|one| one == "*" || one.trim_start_matches("W/") == tag)
}
