//! Where exports go: one POST each, over a connection of its own, within a time limit.
//!
//! What the collector does not take in that time is lost, and nobody waits for it longer. It may answer anything, or nothing.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use mainstay_core::{Error, ErrorKind, Result};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::OtlpOptions;
use crate::options::{Signal, place};
use crate::trouble::{News, Trouble};

/// All that is read of an answer. A right one has a few bytes.
const ANSWER_MAX: usize = 64 << 10;

/// The pause before the first further try, doubled with each.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// A collector, for one kind of data.
pub(crate) struct Collector {
    what: &'static str,
    uri: Uri,
    /// What the log is told of where that is: a path or a query may be what lets one in.
    place: String,
    headers: HeaderMap,
    tls: Option<TlsConnector>,
    timeout: Duration,
    /// Once this process is about to end there is one try only.
    closing: CancellationToken,
    trouble: Trouble,
    /// The same of exports that it takes in part.
    leavings: Trouble,
}

/// Why an export was not taken.
enum Refused {
    /// Trying again can't help.
    Final(String),
    /// It may help, after this time if it said one.
    Later(String, Option<Duration>),
}

/// Taken, and what the collector says of what it left out, if it did.
type Answer = std::result::Result<Option<String>, Refused>;

impl Collector {
    pub(crate) fn new(
        signal: Signal,
        uri: Uri,
        options: &OtlpOptions,
        closing: CancellationToken,
    ) -> Result<Self> {
        let tls = match uri.scheme_str() {
            Some("https") => Some(TlsConnector::from(tls(options.certificate(signal))?)),
            _ => None,
        };
        let mut headers = options.header_map(signal)?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let (timeout, place) = (options.timeout(signal)?, place(&uri));
        let (trouble, leavings) = (Trouble::default(), Trouble::default());
        Ok(Self { what: signal.name(), uri, place, headers, tls, timeout, closing, trouble, leavings })
    }

    /// Sends an export. False when it was not taken, which the log is told of.
    pub(crate) async fn send(&self, body: Vec<u8>) -> bool {
        let sent = self.try_until_taken(body.into()).await;
        let (what, endpoint, now) = (self.what, &self.place, Instant::now());
        match (self.trouble.note(sent.is_ok(), now), &sent) {
            (News::Lost(lost), Err(error)) => {
                tracing::warn!(what, %endpoint, error, lost, "the collector takes no exports; they are lost, and work goes on");
            }
            (News::Over(lost), _) => {
                tracing::info!(what, %endpoint, lost, "the collector takes exports again");
            }
            _ => {}
        }
        let Ok(left_out) = sent else { return false };
        // Sending it again would bring what was taken twice, and the rest no further.
        match (self.leavings.note(left_out.is_none(), now), left_out) {
            (News::Lost(exports), Some(why)) => {
                tracing::warn!(what, %endpoint, why, exports, "the collector takes exports, but leaves out part of them");
            }
            (News::Over(exports), _) => {
                tracing::info!(what, %endpoint, exports, "the collector takes exports as a whole again");
            }
            _ => {}
        }
        true
    }

    async fn try_until_taken(&self, body: Bytes) -> std::result::Result<Option<String>, String> {
        let deadline = tokio::time::Instant::now() + self.timeout;
        let mut pause = FIRST_PAUSE;
        loop {
            let answer = tokio::time::timeout_at(deadline, self.post(body.clone())).await;
            let (why, wait) = match answer {
                Ok(Ok(left_out)) => return Ok(left_out),
                Ok(Err(Refused::Final(why))) => return Err(why),
                Ok(Err(Refused::Later(why, wait))) => (why, wait.unwrap_or(pause)),
                Err(_) => return Err(format!("no answer within {:?}", self.timeout)),
            };
            // Not by adding: it may ask for longer than a clock can tell.
            let is_late = wait >= deadline.saturating_duration_since(tokio::time::Instant::now());
            if is_late || self.closing.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return Err(why);
            }
            pause *= 2;
        }
    }

    async fn post(&self, body: Bytes) -> Answer {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = self.uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(later)?;
        let Some(tls) = &self.tls else { return self.exchange(stream, body).await };
        let name = ServerName::try_from(host).map_err(|error| Refused::Final(error.to_string()))?;
        let stream = tls.connect(name, stream).await.map_err(later)?;
        self.exchange(stream, body).await
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        body: Bytes,
    ) -> Answer {
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(later)?;
        let _driving = AbortOnDropHandle::new(tokio::spawn(connection));
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = hyper::Method::POST;
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = Uri::try_from(path).map_err(|error| Refused::Final(error.to_string()))?;
        *request.headers_mut() = self.headers.clone();
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::try_from(authority).map_err(|error| Refused::Final(error.to_string()))?;
        request.headers_mut().insert(header::HOST, host);
        let response = sender.send_request(request).await.map_err(later)?;
        let status = response.status();
        if !status.is_success() {
            return Err(refused(status, response.headers()));
        }
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
        // Whatever it says, it has taken the export; or part of it, and says so.
        Ok(body.ok().and_then(|body| left_out(&body.to_bytes())))
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("what", &self.what)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

fn later(error: impl fmt::Display) -> Refused {
    Refused::Later(error.to_string(), None)
}

fn refused(status: StatusCode, headers: &HeaderMap) -> Refused {
    let why = format!("it answered {status}");
    if !matches!(status.as_u16(), 429 | 502 | 503 | 504) {
        return Refused::Final(why);
    }
    let wait = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    Refused::Later(why, wait.map(Duration::from_secs))
}

/// The answers for traces and for metrics are the same on the wire.
fn left_out(body: &[u8]) -> Option<String> {
    let answer = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    let partial = answer.partial_success.filter(|partial| partial.rejected_spans > 0)?;
    let why: String = partial.error_message.chars().filter(|c| !c.is_control()).take(200).collect();
    Some(format!("it left {} out: {why}", partial.rejected_spans))
}

/// Whoever the system trusts, or those in the file.
fn tls((field, certificate): (&'static str, Option<&Path>)) -> Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    let failed = |why: String| Error::new(ErrorKind::Config, "otlp.tls", why);
    match certificate {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        Some(path) => {
            let wrong = |why: &dyn fmt::Display| {
                Error::invalid("otlp.options", field, format_args!("{} can't be used: {why}", path.display()))
            };
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            for certificate in certificates {
                roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed(error.to_string()))?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}
