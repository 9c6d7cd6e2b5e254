//! The metrics' reference is made of the code, and what is deployed asks for metrics that exist.

#![allow(clippy::unwrap_used, reason = "a test fails by them")]

use std::collections::BTreeMap;

const ENGINE: &str = include_str!("../../mainstay-core/src/telemetry/names.rs");
const SERVER: &str = include_str!("../src/metrics.rs");
const REFERENCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
const ALERTS: &str = include_str!("../../../deploy/grafana/alerts.yaml");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/dashboard.json");

/// The metrics that a file names, with what it says of each.
fn metrics(file: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut comment = String::new();
    for line in file.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            comment.push_str(text);
            comment.push(' ');
            continue;
        }
        let named = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(": &str = \""));
        if let Some((_, name)) = named {
            let name = name.strip_suffix("\";").unwrap();
            found.insert(name.to_owned(), comment.trim().to_owned());
        }
        comment.clear();
    }
    found
}

fn all() -> BTreeMap<String, String> {
    let mut all = metrics(ENGINE);
    all.extend(metrics(SERVER));
    all
}

/// Counter, by `topic`: messages added. → the kind, the labels, what it tells.
fn row(name: &str, text: &str) -> String {
    let (what, told) = text.split_once(": ").unwrap_or_else(|| panic!("{name}: {text}"));
    let (kind, labels) = what.split_once(", ").unwrap_or((what, ""));
    assert!(
        ["Counter", "Gauge", "Histogram", "Gauge in seconds", "Histogram in seconds"].contains(&kind),
        "{name}: {text}"
    );
    format!(
        "| `{name}` | {} | {} | {} |\n",
        kind.to_lowercase(),
        labels.strip_prefix("by ").unwrap_or(labels),
        told.trim_end_matches('.')
    )
}

fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\nMade of the code by a test (`UPDATE_METRICS=1 cargo test -p mainstay-server metrics`); edit the comments there.\n\n\
         Mainstay records through the `metrics` facade: an application installs the exporter of its choice, `mainstay serve` publishes them at `/metrics`, and sends\n\
         them over OTLP under the same names, with the same buckets, if a [collector](configuration.md#telemetry) is named. Counters count rows that really changed. Alert rules and a dashboard are in `deploy/grafana`.\n\n\
         Retried messages are `mainstay_outbox_settled_total{outcome=\"abandon\"}`, dead ones `{outcome=\"fail\"}` and `mainstay_outbox_rejected_total`. The queue of the inbox is a `store` of its own in the metrics of the outbox.\n\
         Spans are in [Tracing](../guides/tracing.md).\n",
    );
    for (title, file) in [("The engine, each with the label `store`", ENGINE), ("The HTTP interface", SERVER)]
    {
        text.push_str(&format!("\n## {title}\n\n| Name | Kind | By | |\n|---|---|---|---|\n"));
        text.extend(metrics(file).iter().map(|(name, told)| row(name, told)));
    }
    text
}

#[test]
fn the_reference_of_metrics_is_what_the_code_says() {
    if std::env::var_os("UPDATE_METRICS").is_some() {
        std::fs::write(REFERENCE, reference()).unwrap();
    }
    let committed = std::fs::read_to_string(REFERENCE).unwrap_or_default();
    assert!(committed == reference(), "run UPDATE_METRICS=1 cargo test -p mainstay-server metrics");
}

#[test]
fn the_six_gauges_that_are_asked_for_by_name_are_there() {
    let all = all();
    for name in [
        "outbox_pending_messages",
        "outbox_processing_messages",
        "outbox_failed_messages",
        "timers_pending",
        "timers_overdue",
        "active_leases",
    ] {
        assert!(all.contains_key(name), "{name}");
    }
}

#[test]
fn alerts_and_dashboard_ask_for_metrics_that_exist() {
    let all = all();
    let starts = ["mainstay_", "outbox_", "inbox_", "timers_", "active_leases"];
    let lines = ALERTS.lines().filter(|line| line.trim_start().starts_with("expr:"));
    let dashboard = DASHBOARD
        .lines()
        .filter(|line| line.trim_start().starts_with("\"expr\"") || line.contains("label_values"));
    let mut asked = 0;
    for line in lines.chain(dashboard) {
        let words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        for word in words.filter(|word| starts.iter().any(|start| word.starts_with(start))) {
            asked += 1;
            let whole = ["_bucket", "_sum", "_count"].iter().find_map(|end| word.strip_suffix(end));
            assert!(
                all.contains_key(word) || whole.is_some_and(|name| all.contains_key(name)),
                "{word} in {line}"
            );
        }
    }
    assert!(asked > 30, "only {asked} were found");
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
}
