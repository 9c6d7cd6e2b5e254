//! Health, as the watchdog sees it.

use metrics::{counter, gauge};

use crate::health::{Check, HealthStatus, News};

use super::names;

pub(crate) fn health_status(store: &str, check: &Check) {
    let value = match check.status {
        HealthStatus::NotApplicable | HealthStatus::Healthy => 0.0,
        HealthStatus::Degraded => 1.0,
        HealthStatus::Unknown => 2.0,
        HealthStatus::Unhealthy => 3.0,
    };
    gauge!(names::HEALTH_STATUS, "store" => store.to_owned(), "check" => check.name).set(value);
}

pub(crate) fn alarm(store: &str, check: &Check, news: News) {
    let Check { name, status, summary, .. } = check;
    let advice = check.advice.as_deref().unwrap_or_default();
    if news == News::Well {
        return tracing::info!(store, check = name, summary, "well again");
    }
    let status = status.as_str();
    counter!(names::HEALTH_ALARMS, "store" => store.to_owned(), "check" => *name, "status" => status)
        .increment(1);
    let text = if news == News::StillBad { "still bad" } else { "bad" };
    match check.status {
        HealthStatus::Unhealthy => tracing::error!(store, check = name, status, summary, advice, "{text}"),
        _ => tracing::warn!(store, check = name, status, summary, advice, "{text}"),
    }
}
