//! What a node should do about its buckets, calculated from what it saw.

use std::collections::BTreeSet;

use super::Buckets;
use super::membership::View;

/// What a node should do about its buckets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// To be given to others.
    pub(super) give: Vec<u32>,
    /// To be taken: nobody holds them.
    pub(super) take: Vec<u32>,
    /// To be taken once others have given them up.
    pub(super) awaited: usize,
}

impl Plan {
    /// For the member in `seat`, called `owner`, that holds `held`, among `members`.
    pub(super) fn new(
        buckets: Buckets,
        mut members: BTreeSet<u32>,
        view: &View,
        seat: u32,
        owner: &str,
        held: &BTreeSet<u32>,
    ) -> Self {
        members.insert(seat);
        let mut plan = Self::default();
        for bucket in buckets.all() {
            let mine = Buckets::wanted_by(bucket, members.iter().copied()) == Some(seat);
            let others = view.buckets.get(&bucket).is_some_and(|holder| holder.owner != owner);
            match (mine, held.contains(&bucket)) {
                (true, false) if others => plan.awaited += 1,
                (true, false) => plan.take.push(bucket),
                (false, true) => plan.give.push(bucket),
                (true, true) | (false, false) => {}
            }
        }
        plan
    }
}
