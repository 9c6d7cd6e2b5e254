//! Whether the schema is the one this program wants.

use crate::store::SchemaStatus;

use super::{Finding, HealthStatus};

/// Anything but the current version is unhealthy: no process of this version would start on it.
pub(super) fn judge(status: &SchemaStatus) -> Finding {
    let text = status.to_string();
    if matches!(status, SchemaStatus::Current { .. }) {
        return Finding::healthy(text);
    }
    let finding = Finding::new(HealthStatus::Unhealthy, text);
    match status {
        SchemaStatus::Missing { .. } | SchemaStatus::Outdated { .. } => {
            finding.advise("run `mainstay migrate`")
        }
        SchemaStatus::Newer { .. } => finding.advise("update this program"),
        _ => finding
            .advise("compare it with `mainstay migrate --print`, and restore what differs from a backup"),
    }
}
