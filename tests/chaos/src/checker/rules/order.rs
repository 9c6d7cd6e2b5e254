//! Messages of an ordering key are handled in order.
//!
//! The order is that of the sequence numbers. A message is open for certain from the answer to its
//! enqueue to the first call that may have ended it; while it is, nothing behind it is claimed.
//! Messages of concurrent transactions have no order between them: the later one may be claimed before
//! the earlier one commits, and the rule says nothing then. Neither does it judge what follows a
//! requeue, which gives a message its old place back.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::violation;
use crate::checker::evidence::Evidence;
use crate::checker::operations::{NEVER, Operation};
use crate::checker::story::Story;
use crate::history::QueueName;
use crate::verdict::{Rule, Violation};

pub(super) fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let mut lanes: BTreeMap<(QueueName, &str), Lane<'_>> = BTreeMap::new();
    for ((queue, id), story) in &evidence.stories {
        let Some(state) = story.finally.map(|state| state.what) else { continue };
        let (Some(key), Some(seq)) = (&state.key, state.seq) else { continue };
        let lane = lanes.entry((*queue, key)).or_default();
        let claims = story.claims.iter().map(|claim| (claim.operation, seq, *id));
        lane.claims.extend(claims);
        lane.open.extend(open(evidence, *queue, *id, seq, story));
    }
    lanes.into_iter().flat_map(|((queue, key), lane)| lane.judge(queue, key)).collect()
}

/// A message while it was open for certain.
struct Open<'a> {
    seq: i64,
    id: Uuid,
    from: u64,
    to: u64,
    add: &'a Operation<'a>,
}

/// The messages of an ordering key.
#[derive(Default)]
struct Lane<'a> {
    open: Vec<Open<'a>>,
    claims: Vec<(&'a Operation<'a>, i64, Uuid)>,
}

fn open<'a>(
    evidence: &Evidence<'_>,
    queue: QueueName,
    id: Uuid,
    seq: i64,
    story: &Story<'a>,
) -> Option<Open<'a>> {
    let add = story.sure_add()?;
    if story.is_added_again() || evidence.may_be_rejected_unseen(queue, story) {
        return None;
    }
    let terminals = story.terminals();
    let to = terminals.iter().map(|terminal| terminal.operation.invoked).min().unwrap_or(NEVER);
    Some(Open { seq, id, from: add.returned, to, add })
}

impl Lane<'_> {
    fn judge(mut self, queue: QueueName, key: &str) -> Vec<Violation> {
        self.claims.sort_by_key(|(operation, seq, _)| (operation.invoked, *seq));
        self.open.sort_by_key(|open| open.from);
        let mut begins = 0;
        // Open at the time of the claim: by sequence number, and by when they end.
        let mut ahead: BTreeSet<(i64, usize)> = BTreeSet::new();
        let mut by_end: BTreeSet<(u64, usize)> = BTreeSet::new();
        let mut violations = Vec::new();
        for (claim, seq, id) in self.claims {
            while let Some(open) = self.open.get(begins).filter(|open| open.from <= claim.invoked) {
                ahead.insert((open.seq, begins));
                by_end.insert((open.to, begins));
                begins += 1;
            }
            while let Some(&(to, index)) = by_end.first().filter(|(to, _)| *to < claim.invoked) {
                by_end.remove(&(to, index));
                ahead.remove(&(self.open[index].seq, index));
            }
            // Those that ended while the claim was under way may have ended before it.
            let mut earlier = ahead.range(..(seq, 0)).map(|(_, index)| &self.open[*index]);
            if let Some(first) = earlier.find(|open| open.to > claim.returned) {
                let text = format!(
                    "{queue:?}: of ordering key {key}, number {seq} was claimed while {} was open",
                    first.seq
                );
                let lines = first.add.lines.iter().chain(&claim.lines).copied();
                violations.push(violation(Rule::Order, text, [first.id, id], lines));
            }
        }
        violations
    }
}
