//! Where traces and metrics go, and how.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use mainstay_core::{Error, Result};
use opentelemetry_sdk::trace::Sampler;
use serde::Deserialize;

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
    /// Certificates, in PEM, that an `https` endpoint must be signed by. Defaults to those the system trusts.
    pub certificate: Option<PathBuf>,
    /// How long one export may take, trying again included. Defaults to 10 s.
    pub timeout_seconds: Option<f64>,
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

impl OtlpOptions {
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

    pub(crate) fn timeout(&self) -> Result<Duration> {
        seconds("timeout_seconds", self.timeout_seconds, 10.0)
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

    pub(crate) fn header_map(&self) -> Result<HeaderMap> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            // Neither is quoted: a value in the wrong place may be a password.
            let wrong = || Error::invalid(OPTIONS, "headers", "must be names and values that HTTP allows");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| wrong())?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(map)
    }
}

impl fmt::Debug for OtlpOptions {
    /// Without the headers' values, which may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpOptions")
            .field("endpoint", &self.endpoint)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .finish_non_exhaustive()
    }
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
        assert_eq!(field(options("timeout_seconds = 0.0").timeout().unwrap_err()), "timeout_seconds");
        let secret = options("headers = { authorization = \"s3cret\\n\" }");
        assert!(!secret.header_map().unwrap_err().to_string().contains("s3cret"));
        assert!(!format!("{secret:?}").contains("s3cret"));
    }
}
