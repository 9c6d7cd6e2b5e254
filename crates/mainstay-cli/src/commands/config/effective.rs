//! The settings that count, and where each comes from. Nothing secret: a database without its password, tokens by their names.

use std::collections::BTreeMap;

use mainstay::otlp::OtlpOptions;
use serde::Serialize;

use crate::cli::Flags;
use crate::database::Database;
use crate::redact::redact;
use crate::settings::File;
use crate::user;

/// A setting as it counts.
#[derive(Debug, Serialize)]
pub(super) struct Effective {
    pub(super) name: String,
    pub(super) value: String,
    /// A flag, a variable, the file, or the default.
    pub(super) from: String,
}

pub(super) fn collect(flags: &Flags, file: &File, shown: &str) -> Vec<Effective> {
    let mut found = Vec::new();
    let mut add = |name: &str, flag: Option<&str>, in_file: Option<&str>, default: &str| {
        let variable = format!("MAINSTAY_{}", name.to_uppercase());
        let set = std::env::var(&variable).ok().filter(|value| !value.is_empty());
        let (value, from) = match (flag, set, in_file) {
            (Some(flag), ..) => (flag.to_owned(), format!("--{}", name.replace('_', "-"))),
            (None, Some(value), _) => (value, variable),
            (None, None, Some(value)) => (value.to_owned(), shown.to_owned()),
            (None, None, None) => (default.to_owned(), "default".to_owned()),
        };
        found.push(Effective { name: name.to_owned(), value, from });
    };
    add("database", flags.database.as_deref(), file.database.as_deref(), "none");
    add("schema", flags.schema.as_deref(), file.schema.as_deref(), "infra");
    add("outbox_table", flags.outbox_table.as_deref(), file.outbox_table.as_deref(), "outbox");
    add("fleet", None, file.fleet.as_deref(), "none");
    add("actor", flags.actor.as_deref(), None, &format!("cli:{}", user::name()));
    let verbose = ["info", "debug", "trace"].get(usize::from(flags.verbose).wrapping_sub(1)).copied();
    let verbose = verbose.or((flags.verbose > 3).then_some("trace"));
    match (flags.quiet, verbose) {
        (true, _) => add("log", Some("error"), None, ""),
        (false, level) => add("log", level, file.log.as_deref(), "warn"),
    }
    for setting in &mut found {
        match setting.name.as_str() {
            "database" if setting.from != "default" => {
                // Its own words leave the password out. What can't be read is not shown at all.
                let told = Database::parse(&setting.value).map(|database| database.to_string());
                setting.value = told.unwrap_or_else(|_| "(can't be read)".to_owned());
            }
            "log" if setting.from == "--log" => {
                setting.from = if flags.quiet { "-q".to_owned() } else { "-v".to_owned() };
            }
            _ => {}
        }
    }
    found.extend(serve(file, shown));
    found.extend(telemetry(file, shown));
    found
}

/// What stands in `[telemetry]`, and what the environment says instead. Of headers and attributes only the names: the values may be secret.
fn telemetry(file: &File, shown: &str) -> Vec<Effective> {
    let of_file = file.telemetry.clone().unwrap_or_default();
    let in_file = told(&of_file);
    let Ok((options, _)) = of_file.with_environment() else {
        // What is wrong is told as that.
        return in_file
            .into_iter()
            .map(|(name, value)| Effective { name, value, from: shown.to_owned() })
            .collect();
    };
    let from =
        |name: &str, value: &str| match in_file.iter().any(|(known, said)| known == name && said == value) {
            true => shown.to_owned(),
            false => "OTEL_…".to_owned(),
        };
    let counts = told(&options);
    counts.into_iter().map(|(name, value)| Effective { from: from(&name, &value), name, value }).collect()
}

fn told(options: &OtlpOptions) -> Vec<(String, String)> {
    let names = |map: &BTreeMap<String, String>| {
        let names: Vec<_> = map.keys().map(String::as_str).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let number = |number: Option<f64>| number.map(|number| number.to_string());
    let flag = |flag: Option<bool>| flag.map(|on| on.to_string());
    let all = [
        ("endpoint", options.endpoint.clone()),
        ("traces_endpoint", options.traces_endpoint.clone()),
        ("metrics_endpoint", options.metrics_endpoint.clone()),
        ("headers", names(&options.headers)),
        ("certificate", options.certificate.as_ref().map(|path| path.display().to_string())),
        ("timeout_seconds", number(options.timeout_seconds)),
        ("service_name", options.service_name.clone()),
        ("resource_attributes", names(&options.resource_attributes)),
        ("sampler", options.sampler.clone()),
        ("sampler_argument", number(options.sampler_argument)),
        ("traces", flag(options.traces)),
        ("metrics", flag(options.metrics)),
        ("metric_interval_seconds", number(options.metric_interval_seconds)),
    ];
    // An endpoint may have a password in it, where none belongs.
    let shown = all.into_iter().filter_map(|(name, value)| Some((name, redact(&value?))));
    shown.map(|(name, value)| (format!("telemetry.{name}"), value)).collect()
}

/// What stands in `[serve]`, and what the environment says instead. The default of each is in the reference.
fn serve(file: &File, shown: &str) -> Vec<Effective> {
    let mut found = Vec::new();
    let told = file.serve.as_ref().map(crate::commands::serve::settings::ServeFile::told).unwrap_or_default();
    for (name, value) in told {
        found.push(Effective { name: format!("serve.{name}"), value, from: shown.to_owned() });
    }
    for (name, variable) in [
        ("listen", "MAINSTAY_LISTEN"),
        ("tls_certificate", "MAINSTAY_TLS_CERTIFICATE"),
        ("tls_key", "MAINSTAY_TLS_KEY"),
    ] {
        let Some(value) = std::env::var(variable).ok().filter(|value| !value.is_empty()) else { continue };
        let name = format!("serve.{name}");
        found.retain(|setting| setting.name != name);
        found.push(Effective { name, value, from: variable.to_owned() });
    }
    let tokens = std::env::var("MAINSTAY_TOKENS").unwrap_or_default();
    for entry in tokens.split([',', ' ', '\n']).filter(|entry| !entry.is_empty()) {
        let mut parts = entry.splitn(3, ':');
        if let (Some(name), Some(role), Some(_)) = (parts.next(), parts.next(), parts.next()) {
            let (name, value) = (format!("serve.token.{name}"), role.to_owned());
            found.push(Effective { name, value, from: "MAINSTAY_TOKENS".to_owned() });
        }
    }
    found
}
