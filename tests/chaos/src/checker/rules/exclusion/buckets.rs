//! Buckets of a fleet: one node for each epoch, and no node still works under an earlier one.

use std::collections::{BTreeMap, HashMap};

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::checker::versions::{Numbered, backwards};
use crate::history::Answer;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut owned: BTreeMap<u32, Vec<Numbered<'_>>> = BTreeMap::new();
    for operation in evidence.operations.iter().filter(|operation| operation.surely()) {
        let Some(Answer::Owned { buckets }) = operation.answer() else { continue };
        for (bucket, epoch) in buckets {
            owned.entry(*bucket).or_default().push(Numbered { operation, number: *epoch });
        }
    }
    let mut violations = Vec::new();
    for (bucket, numbers) in &owned {
        let mut owners: HashMap<i64, &Operation<'_>> = HashMap::new();
        for it in numbers {
            let first = owners.entry(it.number).or_insert(it.operation);
            if first.process != it.operation.process {
                let text = format!("two nodes own bucket {bucket} under epoch {}", it.number);
                let lines = first.lines.iter().chain(&it.operation.lines).copied();
                violations.push(violation(Rule::Exclusion, text, [format!("bucket {bucket}")], lines));
            }
        }
        for conflict in backwards(numbers) {
            let text = format!(
                "a node owned bucket {bucket} under epoch {} after another had it under epoch {}",
                conflict.second.number, conflict.first.number
            );
            violations.push(violation(Rule::Exclusion, text, [format!("bucket {bucket}")], conflict.lines()));
        }
    }
    violations
}
