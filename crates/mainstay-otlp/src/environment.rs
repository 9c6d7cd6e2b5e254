//! The standard environment variables of OpenTelemetry, which count before what a file says.

use std::collections::BTreeMap;

use mainstay_core::{Error, Result};
use percent_encoding::percent_decode_str;

use crate::OtlpOptions;

const ENVIRONMENT: &str = "otlp.environment";

impl OtlpOptions {
    /// These options, with what the environment says instead where it says something. Also what it asks for that there is not, to be told to people.
    ///
    /// `OTEL_SDK_DISABLED`, `OTEL_EXPORTER_OTLP_ENDPOINT` (`…_TRACES_ENDPOINT`, `…_METRICS_ENDPOINT`), `…_HEADERS`, `…_TIMEOUT`, `…_CERTIFICATE`, `…_PROTOCOL`, each of
    /// these also as `…_TRACES_HEADERS`, `…_METRICS_HEADERS` and so on,
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
        // What the environment says of both signals counts before what the file says of one.
        if get("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
            (self.traces_endpoint, self.metrics_endpoint) = (None, None);
        }
        if get("OTEL_EXPORTER_OTLP_HEADERS").is_some() {
            (self.traces_headers, self.metrics_headers) = (None, None);
        }
        if get("OTEL_EXPORTER_OTLP_CERTIFICATE").is_some() {
            (self.traces_certificate, self.metrics_certificate) = (None, None);
        }
        if get("OTEL_EXPORTER_OTLP_TIMEOUT").is_some() {
            (self.traces_timeout_seconds, self.metrics_timeout_seconds) = (None, None);
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
        for (name, field) in [
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", &mut self.certificate),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", &mut self.traces_certificate),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", &mut self.metrics_certificate),
        ] {
            *field = get(name).map(Into::into).or(field.take());
        }
        if let Some(text) = get("OTEL_EXPORTER_OTLP_HEADERS") {
            self.headers = pairs("OTEL_EXPORTER_OTLP_HEADERS", &text)?;
        }
        for (name, field) in [
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", &mut self.traces_headers),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", &mut self.metrics_headers),
        ] {
            if let Some(text) = get(name) {
                *field = Some(pairs(name, &text)?);
            }
        }
        if let Some(text) = get("OTEL_RESOURCE_ATTRIBUTES") {
            self.resource_attributes.extend(pairs("OTEL_RESOURCE_ATTRIBUTES", &text)?);
        }
        if let Some(ratio) = number("OTEL_TRACES_SAMPLER_ARG", &get)? {
            self.sampler_argument = Some(ratio);
        }
        for (name, field) in [
            ("OTEL_EXPORTER_OTLP_TIMEOUT", &mut self.timeout_seconds),
            ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", &mut self.traces_timeout_seconds),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", &mut self.metrics_timeout_seconds),
            ("OTEL_METRIC_EXPORT_INTERVAL", &mut self.metric_interval_seconds),
        ] {
            if let Some(milliseconds) = number(name, &get)? {
                *field = Some(milliseconds / 1_000.0);
            }
        }
        for (name, field) in
            [("OTEL_TRACES_EXPORTER", &mut self.traces), ("OTEL_METRICS_EXPORTER", &mut self.metrics)]
        {
            if let Some(exporters) = get(name) {
                *field = Some(exporters.split(',').any(|exporter| exporter.trim() == "otlp"));
            }
        }
        for (signal, endpoint, wanted) in [
            ("TRACES", &self.traces_endpoint, &mut self.traces),
            ("METRICS", &self.metrics_endpoint, &mut self.metrics),
        ] {
            let is_on = self.endpoint.is_some() || endpoint.is_some();
            // The variable of one signal, or else that of both.
            let of = |what: &str| {
                let names =
                    [format!("OTEL_EXPORTER_OTLP_{signal}_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
                names.into_iter().find_map(|name| Some((get(&name)?, name))).filter(|_| is_on)
            };
            let what = signal.to_ascii_lowercase();
            if let Some((protocol, name)) = of("PROTOCOL").filter(|(protocol, _)| protocol != "http/protobuf")
            {
                *wanted = Some(false);
                told.push(format!(
                    "{name} is {protocol:?}, and only http/protobuf is spoken here: no {what} are exported"
                ));
            } else if let Some((kind, name)) = of("COMPRESSION").filter(|(kind, _)| kind != "none") {
                told.push(format!("{name} is {kind:?}: {what} are not compressed"));
            }
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
        let (half, told) = with(&[endpoint, ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc")]).unwrap();
        assert!(half.traces_to().unwrap().is_some() && half.metrics_to().unwrap().is_none());
        assert!(told.len() == 1 && told[0].starts_with("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"), "{told:?}");
        let one = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"),
        ];
        let (traces, _) = with(&[&[endpoint], &one[..]].concat()).unwrap();
        assert!(traces.traces_to().unwrap().is_some() && traces.metrics_to().unwrap().is_none());
    }

    #[test]
    fn each_signal_has_variables_of_its_own() {
        let (options, told) = with(&[
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces/in"),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "k=v"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "m.pem"),
            ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip"),
        ])
        .unwrap();
        assert_eq!(options.traces_headers.unwrap()["k"], "v");
        assert_eq!((options.metrics_timeout_seconds, options.traces_timeout_seconds), (Some(2.5), None));
        assert_eq!(options.metrics_certificate.unwrap().to_str(), Some("m.pem"));
        assert!(told.len() == 1 && told[0].contains("TRACES_COMPRESSION"), "{told:?}");
    }

    #[test]
    fn what_the_environment_says_of_both_counts_before_what_the_file_says_of_one() {
        let file: OtlpOptions = toml::from_str(
            "traces_endpoint = 'http://old/in'\nmetrics_headers = { a = '1' }\ntraces_timeout_seconds = 1.0",
        )
        .unwrap();
        let variables = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://new".to_owned()),
            "OTEL_EXPORTER_OTLP_HEADERS" => Some("b=2".to_owned()),
            "OTEL_EXPORTER_OTLP_TIMEOUT" => Some("3000".to_owned()),
            _ => None,
        };
        let (options, _) = file.with_variables(variables).unwrap();
        assert_eq!(options.traces_to().unwrap().unwrap(), "http://new/v1/traces");
        assert_eq!((options.metrics_headers, options.traces_timeout_seconds), (None, None));
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
