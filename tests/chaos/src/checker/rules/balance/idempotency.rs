//! Idempotency keys: one message for each.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::history::{Answer, Call, QueueName};
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    // The message that calls with a key were answered, with the first such call.
    let mut answered: BTreeMap<(QueueName, &str), (Uuid, &Operation<'_>)> = BTreeMap::new();
    let mut violations = Vec::new();
    for operation in evidence.operations.iter().filter(|operation| operation.surely()) {
        let (queue, messages) = match operation.call {
            Call::Enqueue { messages, .. } => (QueueName::Outbox, messages),
            Call::Schedule { messages } => (QueueName::Timers, messages),
            _ => continue,
        };
        let Some(Answer::Enqueued { ids, .. }) = operation.answer() else { continue };
        for (sent, id) in messages.iter().zip(ids) {
            let Some(key) = &sent.idempotency_key else { continue };
            let (known, first) = *answered.entry((queue, key)).or_insert((*id, operation));
            if known == *id {
                continue;
            }
            // A purge forgets the key with its message.
            let is_forgotten = evidence
                .stories
                .get(&(queue, known))
                .is_some_and(|story| evidence.may_be_purged(story, first.invoked, operation.returned));
            if !is_forgotten {
                let text = format!("{queue:?}: the idempotency key {key} has two messages");
                let lines = first.lines.iter().chain(&operation.lines).copied();
                violations.push(violation(Rule::Balance, text, [known, *id], lines));
            }
            answered.insert((queue, key), (*id, operation));
        }
    }
    violations
}
