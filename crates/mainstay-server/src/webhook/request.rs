//! A message as a request: its payload as it is, and around it who it is, where it comes from, and the proof of both.

use axum::http::{HeaderName, HeaderValue, Request, header};
use bytes::Bytes;
use http_body_util::Full;
use jiff::Timestamp;
use mainstay_core::queue::Context;
use mainstay_core::trace::TRACEPARENT;

use super::secret::Secret;
use super::target::Target;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const TOPIC: HeaderName = HeaderName::from_static("mainstay-topic");
const ATTEMPT: HeaderName = HeaderName::from_static("mainstay-attempt");
const CORRELATION: HeaderName = HeaderName::from_static("mainstay-correlation-id");
const SOURCE: HeaderName = HeaderName::from_static("mainstay-source");
const RECEIVED_ID: HeaderName = HeaderName::from_static("mainstay-received-id");
const PARENT: HeaderName = HeaderName::from_static(TRACEPARENT);
const STATE: HeaderName = HeaderName::from_static("tracestate");

const AGENT: HeaderValue = HeaderValue::from_static(concat!("mainstay/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The payload of a message, without a copy of it.
struct Payload(Context);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload().as_bytes()
    }
}

/// The request that delivers a message, signed with each of the secrets.
pub(super) fn request(
    context: &Context,
    target: &Target,
    secrets: &[Secret],
    content_type: Option<&HeaderValue>,
) -> Request<Full<Bytes>> {
    let id = context.message_id().to_string();
    let sent_at = Timestamp::now().as_second();
    let body = Bytes::from_owner(Payload(context.clone()));
    let signatures: Vec<_> = secrets.iter().map(|secret| secret.sign(&id, sent_at, &body)).collect();
    let kind = content_type.cloned().unwrap_or_else(|| content_type_of(context));

    let length = HeaderValue::from(body.len());
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = axum::http::Method::POST;
    // Checked when the route was made; what can't be read here would be the root.
    *request.uri_mut() = target.path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    let mut set = |name: HeaderName, text: &str| {
        if let Some(value) = readable(text) {
            headers.insert(name, value);
        }
    };
    set(header::HOST, &target.authority);
    set(ID, &id);
    set(TIMESTAMP, &sent_at.to_string());
    set(SIGNATURE, &signatures.join(" "));
    set(TOPIC, context.topic());
    set(ATTEMPT, &context.attempt().to_string());
    set(PARENT, &context.trace().to_string());
    let of_message = |name: HeaderName| Some((name.clone(), context.headers().get(name.as_str())?.as_str()));
    let maybe = [
        // What vendors add goes on with the trace it belongs to.
        context.parent_trace().and_then(|_| of_message(STATE)),
        context.correlation_id().map(|text| (CORRELATION, text)),
        context.source().map(|text| (SOURCE, text)),
        context.received_id().map(|text| (RECEIVED_ID, text)),
    ];
    for (name, text) in maybe.into_iter().flatten() {
        set(name, text);
    }
    headers.insert(header::CONTENT_TYPE, kind);
    // Also where it is nothing: some receivers ask for it.
    headers.insert(header::CONTENT_LENGTH, length);
    headers.insert(header::USER_AGENT, AGENT);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    request
}

/// What the message says, or what its payload is.
fn content_type_of(context: &Context) -> HeaderValue {
    let said = context.headers().iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    let said = said.and_then(|(_, value)| HeaderValue::from_str(value).ok());
    said.unwrap_or_else(|| match serde_json::from_str::<serde::de::IgnoredAny>(context.payload()) {
        Ok(_) => JSON,
        Err(_) => TEXT,
    })
}

/// A text as a header can have it: what is no visible letter of ASCII, and the percent sign, as in a URL.
fn readable(text: &str) -> Option<HeaderValue> {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'%' || byte == b' ';
    if text.bytes().all(plain) && text.trim() == text {
        return HeaderValue::from_str(text).ok();
    }
    let mut encoded = String::with_capacity(text.len() * 3);
    for byte in text.bytes() {
        match byte {
            byte if plain(byte) && byte != b' ' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    HeaderValue::from_str(&encoded).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_can_be_a_header() {
        for (text, wanted) in [
            ("order.paid", "order.paid"),
            ("a b", "a b"),
            ("a\r\nx: y", "a%0D%0Ax:%20y"),
            ("100 %", "100%20%25"),
            ("größe", "gr%C3%B6%C3%9Fe"),
            (" x", "%20x"),
        ] {
            assert_eq!(readable(text).unwrap(), wanted);
        }
    }
}
