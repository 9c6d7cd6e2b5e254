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
