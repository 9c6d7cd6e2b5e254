//! Asking a server that runs (`--url`): what `mainstay serve` says of itself.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, Uri, header};
use hyper_util::rt::TokioIo;
use mainstay::health::Probe;
use mainstay::server::client_tls;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::failure::{FAILED, Failure, UNREACHABLE};
use crate::output::{self, number};
use crate::settings::{Settings, first};
use crate::text::harmless;

/// No report is longer.
const ANSWER_MAX: usize = 16 << 20;

/// Asks, and tells what was answered. The exit codes are those of a database that is asked directly.
pub(super) async fn run(
    url: &str,
    ca_file: Option<&Path>,
    probe: Probe,
    timeout: Duration,
    settings: &Settings,
) -> anyhow::Result<ExitCode> {
    let uri = parse(url, probe)?;
    let token = first(None, "MAINSTAY_TOKEN", None)?;
    let tls = match uri.scheme_str() {
        Some("https") => Some(TlsConnector::from(client_tls(ca_file)?)),
        _ => None,
    };
    let shown =
        format!("{}://{}", uri.scheme_str().unwrap_or("http"), uri.authority().map_or("", |at| at.as_str()));
    let report = match tokio::time::timeout(timeout, ask(&uri, tls, token.as_deref())).await {
        Ok(report) => report.map_err(|error| {
            Failure::unreachable(format!("{shown} can't be asked")).because(format_args!("{error:#}"))
        })?,
        Err(_) => {
            return Err(Failure::unreachable(format!("{shown} did not answer within {timeout:?}")).into());
        }
    };
    if settings.json {
        output::json(&report)?;
    } else {
        tell(&shown, &report)?;
    }
    Ok(verdict(&report))
}

fn parse(url: &str, probe: Probe) -> Result<Uri, Failure> {
    let path = match probe {
        Probe::Live => "/health/live",
        Probe::Ready => "/health/ready",
        // There is no doctor at a distance.
        Probe::Full | Probe::Doctor => "/health",
    };
    let wrong =
        || Failure::usage("the URL of the server is not valid").hint("it is like http://127.0.0.1:7417");
    let uri: Uri = format!("{}{path}", url.trim_end_matches('/')).parse().map_err(|_| wrong())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    // What stands before an @ may be a password.
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
    if known && plain { Ok(uri) } else { Err(wrong()) }
}

async fn ask(uri: &Uri, tls: Option<TlsConnector>, token: Option<&str>) -> anyhow::Result<Value> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    let Some(tls) = tls else { return exchange(stream, uri, token).await };
    let name = ServerName::try_from(host)?;
    exchange(tls.connect(name, stream).await?, uri, token).await
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    uri: &Uri,
    token: Option<&str>,
) -> anyhow::Result<Value> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driving = tokio::spawn(connection);
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::get(uri.path()).header(header::HOST, host).header(header::CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("the answer can't be read: {error}"))?.to_bytes();
    driving.abort();
    let report: Value = serde_json::from_slice(&body)
        .map_err(|_| anyhow::anyhow!("it answered {status}, and no report: is it Mainstay?"))?;
    if report["stores"].is_array() {
        return Ok(report);
    }
    anyhow::bail!("it answered {status}: {}", report["detail"].as_str().unwrap_or("no report"))
}

fn tell(shown: &str, report: &Value) -> anyhow::Result<()> {
    let mut table = output::table(["store", "status", "check", "took", "found", "do"]);
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| harmless(value.as_str().unwrap_or_default());
    for store in list(&report["stores"]) {
        for check in list(&store["checks"]) {
            table.add_row([
                text(&store["id"]).into(),
                text(&check["status"]).into(),
                text(&check["name"]).into(),
                number(format_args!("{:.2} ms", check["duration_ms"].as_f64().unwrap_or_default())),
                text(&check["summary"]).into(),
                text(&check["advice"]).into(),
            ]);
        }
    }
    output::print(&table)?;
    output::line(format_args!("{shown}: {}", text(&report["status"])))
}

/// What is known to be bad counts before what could not be told, as with databases that are asked directly. A server that calls itself
/// fit is, whatever single databases of its fleet do; one that starts or stops is not.
fn verdict(report: &Value) -> ExitCode {
    match (report["status"].as_str(), report["startup"]["state"].as_str()) {
        (Some("healthy" | "degraded" | "not_applicable"), _) => return ExitCode::SUCCESS,
        (_, Some(state)) if state != "running" => return ExitCode::from(FAILED),
        _ => {}
    }
    let stores = report["stores"].as_array().cloned().unwrap_or_default();
    let codes: Vec<_> = stores
        .iter()
        .map(|store| match (store["status"].as_str(), store["reached"].as_bool()) {
            (Some("unhealthy"), Some(false)) | (Some("unknown"), _) => UNREACHABLE,
            (Some("healthy" | "degraded" | "not_applicable"), _) => 0,
            _ => FAILED,
        })
        .collect();
    let worst = [FAILED, UNREACHABLE].into_iter().find(|code| codes.contains(code));
    worst.map_or(ExitCode::SUCCESS, ExitCode::from)
}
