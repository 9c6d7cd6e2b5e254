//! The audit trail: which calls of operators were carried out.
//!
//! A call whose process died before the answer leaves open what it did. The trail is written in the
//! call's own transaction, so it tells: what no answered call did, one of the others did, and without a record
//! none of them did anything.

use std::collections::HashMap;
use std::hash::Hash;

use uuid::Uuid;

use super::operations::Operation;
use crate::history::{Action, Answer, Call, Condition, Event, History};

/// What operators did.
#[derive(Debug, Clone, Default)]
struct Deeds {
    /// How often each message was cancelled and requeued.
    cancelled: HashMap<Uuid, u64>,
    requeued: HashMap<Uuid, u64>,
    /// How many messages were purged.
    purged: u64,
    /// How often each lease was taken away.
    released: HashMap<String, u64>,
}

/// What the audit trail tells of the outbox and of leases.
#[derive(Debug, Clone, Default)]
pub(crate) struct Audit {
    recorded: Deeds,
    /// What the answers of calls tell.
    answered: Deeds,
    /// The epochs of leases that operators ended.
    epochs: HashMap<String, Vec<i64>>,
}

fn count<K: Hash + Eq>(counts: &mut HashMap<K, u64>, keys: impl IntoIterator<Item = K>) {
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
}

impl Audit {
    /// Reads the trail. None if the controller did not record it.
    pub(crate) fn of(history: &History, operations: &[Operation<'_>]) -> Option<Self> {
        let mut audit: Option<Self> = None;
        for placed in &history.lines {
            let Event::End(condition) = &placed.line.event else { continue };
            match &**condition {
                Condition::Audited { action, ids, count: purged } => {
                    let recorded = &mut audit.get_or_insert_default().recorded;
                    match action {
                        Action::Cancel => count(&mut recorded.cancelled, ids.iter().copied()),
                        Action::Requeue => count(&mut recorded.requeued, ids.iter().copied()),
                        Action::Purge => recorded.purged += purged,
                    }
                }
                Condition::Released { name, epoch } => {
                    let audit = audit.get_or_insert_default();
                    count(&mut audit.recorded.released, [name.clone()]);
                    audit.epochs.entry(name.clone()).or_default().push(*epoch);
                }
                Condition::Trail { .. } => _ = audit.get_or_insert_default(),
                _ => {}
            }
        }
        let mut audit = audit?;
        for operation in operations {
            let answered = &mut audit.answered;
            match (operation.call, operation.answer()) {
                (Call::Cancel { .. }, Some(Answer::Changed { changed, .. })) => {
                    count(&mut answered.cancelled, changed.iter().copied());
                }
                (Call::Requeue { .. }, Some(Answer::Changed { changed, .. })) => {
                    count(&mut answered.requeued, changed.iter().copied());
                }
                (Call::Purge { .. }, Some(Answer::Count(purged))) => answered.purged += purged,
                (Call::ForceRelease { name }, Some(Answer::Flag(true))) => {
                    count(&mut answered.released, [name.clone()]);
                }
                _ => {}
            }
        }
        Some(audit)
    }

    /// Returns how often a message was requeued.
    pub(crate) fn requeues(&self, id: Uuid) -> u64 {
        self.recorded.requeued.get(&id).copied().unwrap_or(0)
    }

    /// Returns how many messages were purged.
    pub(crate) fn purged(&self) -> u64 {
        self.recorded.purged
    }

    /// Returns the messages that a call without an answer requeued.
    pub(crate) fn requeued_unseen(&self) -> impl Iterator<Item = Uuid> {
        let unseen = self.recorded.requeued.iter();
        let unseen = unseen.filter(|(id, times)| self.answered.requeued.get(id).unwrap_or(&0) < times);
        unseen.map(|(id, _)| *id)
    }

    /// Returns whether a call without an answer cancelled a message.
    pub(crate) fn is_cancelled_unseen(&self, id: Uuid) -> bool {
        self.recorded.cancelled.get(&id) > self.answered.cancelled.get(&id)
    }

    /// Returns whether a call without an answer purged messages.
    pub(crate) fn is_purged_unseen(&self) -> bool {
        self.recorded.purged > self.answered.purged
    }

    /// Returns whether a call without an answer took a lease away.
    pub(crate) fn is_released_unseen(&self, name: &str) -> bool {
        self.recorded.released.get(name) > self.answered.released.get(name)
    }

    /// Returns whether an operator ended an epoch of a lease.
    pub(crate) fn ended(&self, name: &str, epoch: i64) -> bool {
        self.epochs.get(name).is_some_and(|epochs| epochs.contains(&epoch))
    }
}
