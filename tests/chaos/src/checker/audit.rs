//! The audit trail: which calls of operators were carried out.
//!
//! A call whose process died before the answer leaves open what it did. The trail is written in the
//! call's own transaction, so it tells.

use std::collections::HashSet;

use uuid::Uuid;

use crate::history::{Action, Condition, Event, History};

/// What the audit trail tells of the outbox.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    pub cancelled: HashSet<Uuid>,
    pub requeued: HashSet<Uuid>,
    /// How many messages were purged.
    pub purged: u64,
}

impl Audit {
    /// Reads the trail. None if the controller did not record it.
    pub(crate) fn of(history: &History) -> Option<Self> {
        let mut audit: Option<Self> = None;
        for placed in &history.lines {
            let Event::End(condition) = &placed.line.event else { continue };
            if let Condition::Audited { action, ids, count } = &**condition {
                let audit = audit.get_or_insert_default();
                match action {
                    Action::Cancel => audit.cancelled.extend(ids),
                    Action::Requeue => audit.requeued.extend(ids),
                    Action::Purge => audit.purged += count,
                }
            }
        }
        audit
    }
}
