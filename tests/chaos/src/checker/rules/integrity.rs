//! The database's own checks find nothing.

use super::violation;
use crate::checker::evidence::Evidence;
use crate::history::Condition;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut is_checked = false;
    for noted in &evidence.conditions {
        let Condition::Check { name, found } = noted.what else { continue };
        is_checked = true;
        if !found.is_empty() {
            let text = format!("{name}: {}", found.join("; "));
            violations.push(violation(Rule::Integrity, text, [""; 0], [noted.line]));
        }
    }
    if !is_checked {
        let text = "no check of the database's own was run at the end";
        violations.push(violation(Rule::Integrity, text, [""; 0], []));
    }
    violations
}
