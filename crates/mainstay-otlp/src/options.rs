//! Where traces and metrics go, and how.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use mainstay_core::{Error, Result};
use opentelemetry_sdk::trace::Sampler;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::collector::Collector;

const OPTIONS: &str = "otlp.options";

/// Where traces and metrics go, and how. Without an endpoint nothing is gathered and nothing is sent.
///
/// Times are seconds. The fields are those of the section `[telemetry]` of the program's configuration file.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct OtlpOptions {
    /// Where the collector is, as in `http://127.0.0.1:4318`; `/v1/traces` and `/v1/metrics` are appended. Defaults to none.
    pub endpoint: Option<String>,
    /// Where traces go, in full. Defaults to what `endpoint` says.
    pub traces_endpoint: Option<String>,
    /// Where metrics go, in full. Defaults to what `endpoint` says.
    pub metrics_endpoint: Option<String>,
    /// Sent with every request; never logged.
    pub headers: BTreeMap<String, String>,
    /// Sent with traces instead of `headers`. Defaults to none.
    pub traces_headers: Option<BTreeMap<String, String>>,
    /// Sent with metrics instead of `headers`. Defaults to none.
    pub metrics_headers: Option<BTreeMap<String, String>>,
    /// Certificates, in PEM, that an `https` endpoint must be signed by. Defaults to those the system trusts.
    pub certificate: Option<PathBuf>,
    /// The same where traces go. Defaults to `certificate`.
    pub traces_certificate: Option<PathBuf>,
    /// The same where metrics go. Defaults to `certificate`.
    pub metrics_certificate: Option<PathBuf>,
    /// How long one export may take, trying again included. Defaults to 10 s.
    pub timeout_seconds: Option<f64>,
    /// The same of traces. Defaults to `timeout_seconds`.
    pub traces_timeout_seconds: Option<f64>,
    /// The same of metrics. Defaults to `timeout_seconds`.
    pub metrics_timeout_seconds: Option<f64>,
    /// What this process is called. Defaults to `mainstay`.
    pub service_name: Option<String>,
    /// More about this process.
    pub resource_attributes: BTreeMap<String, String>,
    /// Which traces are kept: `always_on`, `always_off`, `traceidratio`, or one of these after `parentbased_`. Defaults to `parentbased_always_on`.
    pub sampler: Option<String>,
    /// The share of traces that a ratio keeps, 0 to 1. Defaults to 1.
    pub sampler_argument: Option<f64>,
    /// Whether traces are sent. Defaults to true.
    pub traces: Option<bool>,
    /// Whether metrics are sent. Defaults to true.
    pub metrics: Option<bool>,
    /// How often metrics are sent. Defaults to 60 s.
    pub metric_interval_seconds: Option<f64>,
}

/// A kind of data: what is said of it counts before what is said of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }
}

impl OtlpOptions {
    /// Refuses what [`Otlp::start`](crate::Otlp::start) would refuse. Nobody is asked, and nothing is sent.
    pub fn validate(&self) -> Result<()> {
        self.sampler()?;
        self.metric_interval()?;
        for (signal, uri) in [(Signal::Traces, self.traces_to()?), (Signal::Metrics, self.metrics_to()?)] {
            if let Some(uri) = uri {
                Collector::new(signal, uri, self, CancellationToken::new())?;
            }
        }
        Ok(())
    }

    /// Where traces go; none when they don't.
    pub(crate) fn traces_to(&self) -> Result<Option<Uri>> {
        let wanted = self.traces.unwrap_or(true);
        let endpoint = self.signal("traces_endpoint", self.traces_endpoint.as_deref(), "/v1/traces")?;
        Ok(endpoint.filter(|_| wanted))
    }

    /// Where metrics go; none when they don't.
    pub(crate) fn metrics_to(&self) -> Result<Option<Uri>> {
        let wanted = self.metrics.unwrap_or(true);
        let endpoint = self.signal("metrics_endpoint", self.metrics_endpoint.as_deref(), "/v1/metrics")?;
        Ok(endpoint.filter(|_| wanted))
    }

    fn signal(&self, field: &'static str, own: Option<&str>, path: &str) -> Result<Option<Uri>> {
        match (own, &self.endpoint) {
            (Some(own), _) => uri(field, own).map(Some),
            (None, Some(base)) => uri("endpoint", &format!("{}{path}", base.trim_end_matches('/'))).map(Some),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn timeout(&self, of: Signal) -> Result<Duration> {
        let (field, own) = match of {
            Signal::Traces => ("traces_timeout_seconds", self.traces_timeout_seconds),
            Signal::Metrics => ("metrics_timeout_seconds", self.metrics_timeout_seconds),
        };
        let field = if own.is_some() { field } else { "timeout_seconds" };
        seconds(field, own.or(self.timeout_seconds), 10.0)
    }

    /// The certificates to trust, and the field that names them.
    pub(crate) fn certificate(&self, of: Signal) -> (&'static str, Option<&Path>) {
        let (field, own) = match of {
            Signal::Traces => ("traces_certificate", &self.traces_certificate),
            Signal::Metrics => ("metrics_certificate", &self.metrics_certificate),
        };
        let field = if own.is_some() { field } else { "certificate" };
        (field, own.as_deref().or(self.certificate.as_deref()))
    }

    pub(crate) fn metric_interval(&self) -> Result<Duration> {
        seconds("metric_interval_seconds", self.metric_interval_seconds, 60.0)
    }

    pub(crate) fn sampler(&self) -> Result<Sampler> {
        let ratio = self.sampler_argument.unwrap_or(1.0);
        if !(0.0..=1.0).contains(&ratio) {
            return Err(Error::invalid(
                OPTIONS,
                "sampler_argument",
                format_args!("must be from 0 to 1, got {ratio}"),
            ));
        }
        let name = self.sampler.as_deref().unwrap_or("parentbased_always_on");
        let root = match name.strip_prefix("parentbased_").unwrap_or(name) {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(ratio),
            _ => {
                let reason = format_args!(
                    "must be always_on, always_off or traceidratio, or one of these after parentbased_, got {name:?}"
                );
                return Err(Error::invalid(OPTIONS, "sampler", reason));
            }
        };
        Ok(if name.starts_with("parentbased_") { Sampler::ParentBased(Box::new(root)) } else { root })
    }

    pub(crate) fn header_map(&self, of: Signal) -> Result<HeaderMap> {
        let (field, own) = match of {
            Signal::Traces => ("traces_headers", &self.traces_headers),
            Signal::Metrics => ("metrics_headers", &self.metrics_headers),
        };
        let (field, headers) = own.as_ref().map_or(("headers", &self.headers), |own| (field, own));
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            // Neither is quoted: a value in the wrong place may be a password.
            let wrong = || Error::invalid(OPTIONS, field, "must be names and values that HTTP allows");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(map)
    }
}

impl fmt::Debug for OtlpOptions {
    /// Without the headers' values and the paths of endpoints, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |text: Option<&String>| {
            text.map(|text| text.parse().map_or_else(|_| "?".to_owned(), |uri| place(&uri)))
        };
        f.debug_struct("OtlpOptions")
            .field("endpoint", &told(self.endpoint.as_ref()))
            .field("traces_endpoint", &told(self.traces_endpoint.as_ref()))
            .field("metrics_endpoint", &told(self.metrics_endpoint.as_ref()))
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
}

/// Where a URL leads, without what may be secret in it: a user, a path, a query.
pub(crate) fn place(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{}://{host}", uri.scheme_str().unwrap_or_default())
}

fn uri(field: &'static str, text: &str) -> Result<Uri> {
    let wrong =
        |reason: &str| Error::invalid(OPTIONS, field, format_args!("{reason}, as in http://127.0.0.1:4318"));
    // The text itself is not quoted: what stands before an @ may be a password.
    let uri: Uri = text.parse().map_err(|_| wrong("must be a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
        return Err(wrong("must begin with http:// or https:// and name a host"));
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(wrong("must not have a user or a password in it; use headers"));
    }
    Ok(uri)
}

fn seconds(field: &'static str, given: Option<f64>, default: f64) -> Result<Duration> {
    let seconds = given.unwrap_or(default);
    if !(0.001..=86_400.0).contains(&seconds) {
        return Err(Error::invalid(
            OPTIONS,
            field,
            format_args!("must be from 0.001 to 86400, got {seconds}"),
        ));
    }
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> OtlpOptions {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn without_an_endpoint_nothing_is_sent() {
        let none = options("service_name = 'shop'");
        assert_eq!((none.traces_to().unwrap(), none.metrics_to().unwrap()), (None, None));
    }

    #[test]
    fn each_signal_has_its_path() {
        let both = options("endpoint = 'http://collector:4318/'\nmetrics_endpoint = 'https://other/in'");
        assert_eq!(both.traces_to().unwrap().unwrap(), "http://collector:4318/v1/traces");
        assert_eq!(both.metrics_to().unwrap().unwrap(), "https://other/in");
        let one = options("endpoint = 'http://collector:4318'\ntraces = false");
        assert_eq!(one.traces_to().unwrap(), None);
        assert!(one.metrics_to().unwrap().is_some());
    }

    #[test]
    fn mistakes_name_their_field_and_no_secret() {
        let field = |error: Error| error.field().unwrap_or_default().to_owned();
        for wrong in ["collector:4318", "ftp://collector", "http://me:s3cret@collector", "http://"] {
            let error = options(&format!("endpoint = '{wrong}'")).traces_to().unwrap_err();
            assert!(!error.to_string().contains("s3cret"), "{error}");
            assert_eq!(field(error), "endpoint");
        }
        assert_eq!(field(options("sampler = 'sometimes'").sampler().unwrap_err()), "sampler");
        assert_eq!(field(options("sampler_argument = 2.0").sampler().unwrap_err()), "sampler_argument");
        assert_eq!(
            field(options("timeout_seconds = 0.0").timeout(Signal::Traces).unwrap_err()),
            "timeout_seconds"
        );
        let secret = options("headers = { authorization = \"s3cret\\n\" }");
        assert!(!secret.header_map(Signal::Traces).unwrap_err().to_string().contains("s3cret"));
        assert!(!format!("{secret:?}").contains("s3cret"));
        let path = options("endpoint = 'https://me:s3cret@in.example/s3cret?key=s3cret'");
        assert!(format!("{path:?}").contains("https://in.example\""), "{path:?}");
        assert!(!format!("{path:?}").contains("s3cret"), "{path:?}");
    }

    #[test]
    fn what_is_said_of_one_signal_counts_before_what_is_said_of_both() {
        let both = options(
            "timeout_seconds = 1.0\nheaders = { a = '1' }\ncertificate = 'all.pem'\n\
             metrics_timeout_seconds = 2.0\nmetrics_headers = { b = '2' }\nmetrics_certificate = 'm.pem'",
        );
        assert_eq!(both.timeout(Signal::Traces).unwrap(), Duration::from_secs(1));
        assert_eq!(both.timeout(Signal::Metrics).unwrap(), Duration::from_secs(2));
        assert!(both.header_map(Signal::Traces).unwrap().contains_key("a"));
        let metrics = both.header_map(Signal::Metrics).unwrap();
        assert!(metrics.contains_key("b") && !metrics.contains_key("a"));
        assert_eq!(both.certificate(Signal::Traces), ("certificate", Some(Path::new("all.pem"))));
        assert_eq!(both.certificate(Signal::Metrics), ("metrics_certificate", Some(Path::new("m.pem"))));
        let wrong = options("traces_timeout_seconds = 0.0").timeout(Signal::Traces).unwrap_err();
        assert_eq!(wrong.field(), Some("traces_timeout_seconds"));
    }
}
