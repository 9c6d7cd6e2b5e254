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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken, claim, done, enqueue, found, id, item, legal, sent};
    use crate::history::{LOST_TAIL, Outcome, Sent};

    fn keyed(n: u128) -> Sent {
        Sent { idempotency_key: Some("k".to_owned()), ..sent(n) }
    }

    /// A message that is sent twice under one key. The second call is answered `id`.
    fn twice(second: u128) -> Book {
        let mut book = Book::new();
        book.enqueue("producer", (10, 11), vec![keyed(1)]);
        book.claim("a", (12, 13), vec![item(1, 1)]);
        book.settle("a", (14, 15), claim(1, 1), Outcome::Ack);
        book.row(done(1));
        let duplicates = if second == 1 { vec![id(2)] } else { vec![] };
        let answer = Answer::Enqueued { ids: vec![id(second)], duplicates };
        book.ok("producer", (20, 21), enqueue(vec![keyed(2)]), answer);
        book
    }

    #[test]
    fn the_second_message_of_a_key_is_the_first_one() {
        legal(&twice(1).history());
        let mut book = twice(2);
        book.claim("a", (22, 23), vec![item(2, 1)]);
        book.settle("a", (24, 25), claim(2, 1), Outcome::Ack);
        book.row(done(2));
        let violations = broken(Rule::Balance, &book.history());
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].ids, [id(1), id(2)].map(|id| id.to_string()));
        assert_eq!(violations[0].lines, ["producer:1", "producer:2", "producer:3", "producer:4"]);
    }

    #[test]
    fn a_key_is_forgotten_with_its_message() {
        let mut book = twice(2);
        book.ok("operator", (16, 17), Call::Purge { age_ms: 0 }, Answer::Count(1));
        assert_eq!(found(Rule::Balance, &book.history()), []);
        let mut book = twice(2);
        book.fault(LOST_TAIL, (10, 15));
        assert_eq!(found(Rule::Balance, &book.history()), []);
    }
}
