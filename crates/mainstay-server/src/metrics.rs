//! Metrics for Prometheus, and those of the server itself. What the engine counts is listed in `mainstay_core::telemetry::names`.

use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use mainstay_core::telemetry::BUCKETS;
use mainstay_core::{Error, ErrorKind, Result};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::layers::FanoutBuilder;

use crate::endpoint::{Endpoint, Endpoints};
use crate::problem::{Kind, Problem};
use crate::state::Shared;

/// Counter, by `method`, `path` (as the document has it) and `status`: requests answered, and with 499 those whose caller hung up before.
pub const REQUESTS: &str = "mainstay_http_requests_total";
/// Histogram in seconds, by `method` and `path`: how long answers took, waiting included.
pub const REQUEST_SECONDS: &str = "mainstay_http_request_seconds";
/// Gauge: requests that are being answered, those that wait included.
pub const REQUESTS_RUNNING: &str = "mainstay_http_requests_running";
/// Counter: tokens that were not known.
pub const AUTHENTICATION_FAILURES: &str = "mainstay_http_authentication_failures_total";
/// Gauge: open connections.
pub const CONNECTIONS: &str = "mainstay_http_connections";

/// The status of those who hung up, as proxies have it.
const HUNG_UP: &str = "499";

/// How often histograms are put together when nobody asks.
const UPKEEP: Duration = Duration::from_secs(5);

/// Makes Prometheus' the recorder of this process. Once only.
pub fn install() -> Result<PrometheusHandle> {
    install_beside(None::<::metrics::NoopRecorder>)
}

/// The same beside another recorder, which is told everything too.
pub fn install_beside(
    other: Option<impl ::metrics::Recorder + Send + Sync + 'static>,
) -> Result<PrometheusHandle> {
    let failed = |error: &dyn std::fmt::Display| {
        Error::new(
            ErrorKind::Config,
            "server.metrics",
            format!("the recorder of metrics can't be set up: {error}"),
        )
    };
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
        .map_err(|error| failed(&error))?;
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    match other {
        None => ::metrics::set_global_recorder(recorder).map_err(|error| failed(&error))?,
        Some(other) => {
            let both = FanoutBuilder::default().add_recorder(recorder).add_recorder(other).build();
            ::metrics::set_global_recorder(both).map_err(|error| failed(&error))?;
        }
    }
    Ok(handle)
}

/// Puts histograms together now and then, so that they don't grow while nobody asks. Never ends.
pub async fn upkeep(handle: PrometheusHandle) {
    loop {
        tokio::time::sleep(UPKEEP).await;
        handle.run_upkeep();
    }
}

pub(crate) fn endpoints(all: &mut Endpoints) {
    all.add(
        Endpoint::get("/metrics", "metrics", "Metrics for Prometheus")
            .note("404 where the application that mounts the router publishes its own.")
            .of_all()
            .text(200, "text/plain", "The metrics, in Prometheus' text format."),
        metrics,
    );
}

async fn metrics(State(shared): State<Shared>) -> Result<Response, Problem> {
    let handle = shared.metrics.as_ref();
    let handle = handle.ok_or_else(|| Problem::new(Kind::NotFound, "this server publishes no metrics"))?;
    let mut response = handle.render().into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    Ok(response)
}

/// Counts what was answered.
pub(crate) async fn count(request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    // Of the methods that nobody has, there are as many as anybody sends.
    let method = match request.method().as_str() {
        known @ ("GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD" | "OPTIONS") => known.to_owned(),
        _ => "other".to_owned(),
    };
    let running = ::metrics::gauge!(REQUESTS_RUNNING);
    running.increment(1.0);
    let _ended = Deferred(Some(|| running.decrement(1.0)));
    let mut counted = Counted { method, path, begun: Instant::now(), status: None };
    let response = next.run(request).await;
    counted.status = Some(response.status());
    response
}

/// A request that is counted when this is dropped: when it is answered, or when the caller hangs up, and all of it is dropped.
struct Counted {
    method: String,
    path: String,
    begun: Instant,
    status: Option<StatusCode>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let (method, path) = (std::mem::take(&mut self.method), std::mem::take(&mut self.path));
        let status = self.status.as_ref().map_or(HUNG_UP, StatusCode::as_str).to_owned();
        ::metrics::counter!(REQUESTS, "method" => method.clone(), "path" => path.clone(), "status" => status)
            .increment(1);
        if self.status.is_some() {
            ::metrics::histogram!(REQUEST_SECONDS, "method" => method, "path" => path)
                .record(self.begun.elapsed().as_secs_f64());
        }
    }
}

/// Does something when it is dropped.
pub(crate) struct Deferred<F: FnOnce()>(pub(crate) Option<F>);

impl<F: FnOnce()> Drop for Deferred<F> {
    fn drop(&mut self) {
        if let Some(work) = self.0.take() {
            work();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use axum::body::Body;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn one_who_hangs_up_is_counted() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let _here = ::metrics::set_default_local_recorder(&recorder);
        let router = axum::Router::new()
            .route("/slow", get(|| async { pending::<()>().await }))
            .route("/fast", get(|| async {}))
            .layer(from_fn(count));
        let ask = |path: &str| router.clone().oneshot(Request::get(path).body(Body::empty()).unwrap());
        ask("/fast").await.unwrap();
        {
            let mut slow = Box::pin(ask("/slow"));
            assert!(futures_util::poll!(slow.as_mut()).is_pending());
        }
        let told = handle.render();
        let has = |path: &str, status: &str| {
            let counted = |line: &&str| line.contains(path) && line.contains(&format!("status=\"{status}\""));
            told.lines().any(|line| line.starts_with(REQUESTS) && counted(&line))
        };
        assert!(has("/fast", "200") && has("/slow", "499"), "{told}");
        assert!(told.contains(&format!("{REQUESTS_RUNNING} 0")), "{told}");
    }
}
