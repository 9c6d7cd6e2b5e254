//! The standard environment variables of OpenTelemetry, which count before what a file says.

use std::collections::BTreeMap;

use mainstay_core::{Error, Result};
use percent_encoding::percent_decode_str;

use crate::OtlpOptions;

const ENVIRONMENT: &str = "otlp.environment";

impl OtlpOptions {
    /// These options, with what the environment says instead where it says something. Also what it asks for that there is not, to be told to people.
    ///
    /// `OTEL_SDK_DISABLED`, `OTEL_EXPORTER_OTLP_ENDPOINT` (`…_TRACES_ENDPOINT`, `…_METRICS_ENDPOINT`), `…_HEADERS`, `…_TIMEOUT`, `…_CERTIFICATE`, `…_PROTOCOL`,
    /// `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG`,
    /// `OTEL_METRIC_EXPORT_INTERVAL`. The `OTEL_BSP_…` of batches and the `OTEL_SPAN_…` of limits count too.
    pub fn with_environment(self) -> Result<(Self, Vec<String>)> {
        self.with_variables(|name| std::env::var(name).ok())
    }

    fn with_variables(mut self, variable: impl Fn(&str) -> Option<String>) -> Result<(Self, Vec<String>)> {
        // Set to nothing is the same as not set.
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut told = Vec::new();
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            (self.traces, self.metrics) = (Some(false), Some(false));
            return Ok((self, told));
        }
        for (name, field) in [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &mut self.endpoint),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &mut self.traces_endpoint),
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &mut self.metrics_endpoint),
            ("OTEL_SERVICE_NAME", &mut self.service_name),
            ("OTEL_TRACES_SAMPLER", &mut self.sampler),
        ] {
            *field = get(name).or(field.take());
        }
        self.certificate = get("OTEL_EXPORTER_OTLP_CERTIFICATE").map(Into::into).or(self.certificate);
        if let Some(text) = get("OTEL_EXPORTER_OTLP_HEADERS") {
            self.headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", &text)?;
        }
        if let Some(text) = get("OTEL_RESOURCE_ATTRIBUTES") {
            self.resource_attributes.extend(pairs("OTEL_RESOURCE_ATTRIBUTES", &text)?);
        }
        if let Some(ratio) = number("OTEL_TRACES_SAMPLER_ARG", &get)? {
            self.sampler_argument = Some(ratio);
        }
        if let Some(milliseconds) = number("OTEL_EXPORTER_OTLP_TIMEOUT", &get)? {
            self.timeout_seconds = Some(milliseconds / 1_000.0);
        }
        if let Some(milliseconds) = number("OTEL_METRIC_EXPORT_INTERVAL", &get)? {
            self.metric_interval_seconds = Some(milliseconds / 1_000.0);
        }
        for (name, field) in
            [("OTEL_TRACES_EXPORTER", &mut self.traces), ("OTEL_METRICS_EXPORTER", &mut self.metrics)]
        {
            if let Some(exporters) = get(name) {
                *field = Some(exporters.split(',').any(|exporter| exporter.trim() == "otlp"));
            }
        }
        let is_on =
            self.endpoint.is_some() || self.traces_endpoint.is_some() || self.metrics_endpoint.is_some();
        match get("OTEL_EXPORTER_OTLP_PROTOCOL") {
            Some(protocol) if is_on && protocol != "http/protobuf" => {
                (self.traces, self.metrics) = (Some(false), Some(false));
                told.push(format!(
                    "OTEL_EXPORTER_OTLP_PROTOCOL is {protocol:?}, and only http/protobuf is spoken here: nothing is exported"
                ));
            }
            _ => {}
        }
        match get("OTEL_EXPORTER_OTLP_COMPRESSION") {
            Some(kind) if is_on && kind != "none" => {
                told.push(format!(
                    "OTEL_EXPORTER_OTLP_COMPRESSION is {kind:?}: what is exported is not compressed"
                ));
            }
            _ => {}
        }
        Ok((self, told))
    }
}

/// `name=value,name=value`, with what is not allowed there percent-encoded.
fn pairs(variable: &'static str, text: &str) -> Result<BTreeMap<String, String>> {
    // Not quoted: it may be a secret.
    let wrong = || Error::invalid(ENVIRONMENT, variable, "must be name=value, separated by commas");
    let decoded = |part: &str| percent_decode_str(part.trim()).decode_utf8().map(|text| text.into_owned());
    let entries = text.split(',').filter(|entry| !entry.trim().is_empty());
    let read = entries.map(|entry| {
        let (name, value) = entry.split_once('=').ok_or_else(wrong)?;
        Ok((decoded(name).map_err(|_| wrong())?, decoded(value).map_err(|_| wrong())?))
    });
    read.collect()
}

fn number(variable: &'static str, get: &impl Fn(&str) -> Option<String>) -> Result<Option<f64>> {
    let Some(text) = get(variable) else { return Ok(None) };
    let wrong = |_| Error::invalid(ENVIRONMENT, variable, format_args!("must be a number, got {text:?}"));
    text.trim().parse().map(Some).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<(OtlpOptions, Vec<String>)> {
        let file: OtlpOptions =
            toml::from_str("service_name = 'file'\nresource_attributes = { a = '1', b = '2' }").unwrap();
        file.with_variables(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_environment_counts_before_the_file() {
        let (options, told) = with(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x%2Cy, k = v"),
            ("OTEL_SERVICE_NAME", "shop"),
            ("OTEL_RESOURCE_ATTRIBUTES", "b=3,c=a%20b"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_METRIC_EXPORT_INTERVAL", ""),
        ])
        .unwrap();
        assert_eq!(told, [""; 0]);
        assert_eq!(options.headers["authorization"], "Bearer x,y");
        assert_eq!(options.headers["k"], "v");
        assert_eq!(options.service_name.as_deref(), Some("shop"));
        let attributes: Vec<_> =
            options.resource_attributes.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(attributes, ["a=1", "b=3", "c=a b"]);
        assert_eq!((options.sampler_argument, options.timeout_seconds), (Some(0.25), Some(2.5)));
        assert_eq!(options.metric_interval_seconds, None);
        assert!(options.traces_to().unwrap().is_some() && options.metrics_to().unwrap().is_some());
    }

    #[test]
    fn it_can_be_turned_off() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317");
        let (off, _) = with(&[endpoint, ("OTEL_SDK_DISABLED", "TRUE")]).unwrap();
        assert_eq!((off.traces_to().unwrap(), off.metrics_to().unwrap()), (None, None));
        let (traces, _) = with(&[endpoint, ("OTEL_METRICS_EXPORTER", "none")]).unwrap();
        assert!(traces.traces_to().unwrap().is_some() && traces.metrics_to().unwrap().is_none());
        let (grpc, told) = with(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]).unwrap();
        assert!(grpc.traces_to().unwrap().is_none() && told[0].contains("http/protobuf"), "{told:?}");
    }

    #[test]
    fn mistakes_name_the_variable_and_no_secret() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_TRACES_SAMPLER_ARG", "half"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert_eq!(error.field(), Some(name));
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
}
