//! Whether the schema is the one this program wants.

use crate::store::SchemaStatus;

use super::{Finding, HealthStatus};

/// A schema that this program cannot use is unhealthy: no process of this version would start on it.
pub(super) fn judge(status: &SchemaStatus) -> Finding {
    let text = status.to_string();
    if status.is_usable() {
        return Finding::healthy(text);
    }
    let finding = Finding::new(HealthStatus::Unhealthy, text);
    match status {
        SchemaStatus::Missing { .. } | SchemaStatus::Outdated { .. } => {
            finding.advise("run `mainstay migrate`")
        }
        SchemaStatus::Newer { .. } => {
            finding.advise("update this program, or restore a backup from before the migration")
        }
        _ => finding
            .advise("compare it with `mainstay migrate --print`, and restore what differs from a backup"),
    }
}
