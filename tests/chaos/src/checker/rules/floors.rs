//! Nothing due lies below a floor, no ordering key is stuck.
//!
//! The controller looks for such items itself, when all is quiet and nothing sweeps.

use super::violation;
use crate::checker::evidence::Evidence;
use crate::history::Condition;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    for noted in &evidence.conditions {
        if let Condition::Stuck { queue, ids, why } = noted.what {
            let text = format!("{queue:?}: no claim would find {} due items: {why}", ids.len());
            violations.push(violation(Rule::Floors, text, ids, [noted.line]));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, broken_by, id};
    use crate::history::QueueName;

    #[test]
    fn an_item_that_no_claim_would_find_is_reported() {
        let mut book = Book::new();
        let why = "below the floor".to_owned();
        book.end(Condition::Stuck { queue: QueueName::Outbox, ids: vec![id(1), id(2)], why });
        let ids = [1, 2].map(|n| id(n).to_string());
        broken_by(Rule::Floors, &book.history(), &[&ids[0], &ids[1]], &["controller:5"]);
    }
}
