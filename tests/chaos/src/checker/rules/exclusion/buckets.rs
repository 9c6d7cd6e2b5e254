//! Buckets of a fleet: one node for each epoch, and no node still works under an earlier one.

use std::collections::{BTreeMap, HashMap};

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::Operation;
use crate::checker::versions::{Conflict, Numbered, backwards, unless_lost};
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
    // A lease that was granted in a tail that is lost is unknown to the new server, and is held until it lapses.
    let lease_ns = evidence.run.map_or(0, |run| run.what.lease_ms * 1_000_000);
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
        let known = |conflict: &Conflict<'_>| {
            let looked = conflict.second.operation.invoked;
            !evidence.lost_tails.touch(looked.saturating_sub(lease_ns), looked)
        };
        for conflict in backwards(numbers, unless_lost).into_iter().filter(known) {
            let text = format!(
                "a node owned bucket {bucket} under epoch {} after another had it under epoch {}",
                conflict.second.number, conflict.first.number
            );
            violations.push(violation(Rule::Exclusion, text, [format!("bucket {bucket}")], conflict.lines()));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checker::testing::{Book, found};
    use crate::history::{Call, LOST_TAIL};

    /// Nodes that look, one after the other, what they own of bucket 3.
    fn looked(looks: &[(&str, (u64, u64), Option<i64>)]) -> Vec<Violation> {
        let mut book = Book::new();
        for (node, at, epoch) in looks {
            let buckets = epoch.map(|epoch| (3, epoch)).into_iter().chain([(7, 1)]).take(1).collect();
            let call = Call::Own { lease_ms: 1_000 };
            book.ok(node, *at, call, Answer::Owned { buckets });
        }
        found(Rule::Exclusion, &book.history())
    }

    #[test]
    fn a_lease_of_a_lost_tail_is_held_until_it_lapses() {
        let looked = |tail: (u64, u64)| {
            let mut book = Book::new();
            for (node, at, epoch) in [("node-1.1", 10, 1), ("node-2.1", 2_000, 2), ("node-1.1", 2_500, 1)] {
                let answer = Answer::Owned { buckets: [(3, epoch)].into() };
                book.ok(node, (at, at + 1), Call::Own { lease_ms: 1_000 }, answer);
            }
            book.fault(LOST_TAIL, tail);
            found(Rule::Exclusion, &book.history()).len()
        };
        assert_eq!(looked((1_000, 1_900)), 0);
        assert_eq!(looked((1_000, 1_400)), 1);
    }

    #[test]
    fn a_bucket_goes_from_node_to_node() {
        let looks = [
            ("node-1.1", (10, 11), Some(1)),
            ("node-1.1", (20, 21), Some(1)),
            ("node-2.1", (2_000, 2_001), Some(2)),
            ("node-1.2", (4_000, 4_001), Some(3)),
        ];
        assert_eq!(looked(&looks), []);
    }

    #[test]
    fn two_nodes_do_not_share_an_epoch() {
        let violations = looked(&[("node-1.1", (10, 11), Some(1)), ("node-1.2", (2_000, 2_001), Some(1))]);
        assert_eq!(violations.len(), 1);
        assert_eq!(violations[0].lines, ["node-1.1:1", "node-1.1:2", "node-1.2:1", "node-1.2:2"]);
    }

    #[test]
    fn a_node_whose_bucket_another_one_has_does_not_own_it() {
        let one = ("node-1.1", (10, 11), Some(1));
        let two = ("node-2.1", (2_000, 2_001), Some(2));
        assert_eq!(looked(&[one, two, ("node-1.1", (2_002, 2_003), Some(1))]).len(), 1);
        // It may have looked just before.
        assert_eq!(looked(&[one, two, ("node-1.1", (2_000, 2_003), Some(1))]), []);
    }
}
