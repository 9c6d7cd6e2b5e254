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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::membership::holder;
    use super::*;

    proptest! {
        /// Whatever members there are and whoever holds what: what a node takes is its own and free, what it gives is not its own, and
        /// no two nodes take the same.
        #[test]
        fn nobody_takes_what_is_held_or_is_another_s(
            seats in prop::collection::btree_set(0..50_u32, 1..6),
            holders in prop::collection::btree_map(0..64_u32, 0..8_u32, 0..64),
        ) {
            let buckets = Buckets::default();
            let name = |seat: u32| format!("node-{seat}");
            let held = |seat| holders.iter().filter(move |(_, by)| **by == seat).map(|(bucket, _)| *bucket);
            let view = View {
                buckets: holders.iter().map(|(bucket, by)| (*bucket, holder(&name(*by)))).collect(),
                ..View::default()
            };
            let mut after: BTreeMap<u32, u32> = holders.clone();
            for seat in &seats {
                let own: BTreeSet<u32> = held(*seat).collect();
                let plan = Plan::new(buckets, seats.clone(), &view, *seat, &name(*seat), &own);
                for bucket in &plan.take {
                    prop_assert!(!holders.contains_key(bucket));
                    prop_assert!(after.insert(*bucket, *seat).is_none(), "another takes it too");
                }
                for bucket in &plan.give {
                    prop_assert!(own.contains(bucket));
                    after.remove(bucket);
                }
                let share = buckets.all().filter(|bucket| {
                    Buckets::wanted_by(*bucket, seats.iter().copied()) == Some(*seat)
                });
                let kept = own.len() - plan.give.len();
                prop_assert_eq!(share.count(), kept + plan.take.len() + plan.awaited, "all of its share");
            }
            // Everybody has done so once; the second time they take what was given, and nothing is left over but what strangers hold.
            let strangers = |bucket: &u32| after.get(bucket).is_some_and(|by| !seats.contains(by));
            let view = View {
                buckets: after.iter().map(|(bucket, by)| (*bucket, holder(&name(*by)))).collect(),
                ..View::default()
            };
            for seat in &seats {
                let own: BTreeSet<u32> = after.iter().filter(|(_, by)| *by == seat).map(|(bucket, _)| *bucket).collect();
                let plan = Plan::new(buckets, seats.clone(), &view, *seat, &name(*seat), &own);
                prop_assert_eq!(plan.give.len(), 0);
                let wanted = |bucket: &u32| Buckets::wanted_by(*bucket, seats.iter().copied()) == Some(*seat);
                prop_assert_eq!(plan.awaited, buckets.all().filter(|bucket| wanted(bucket) && strangers(bucket)).count());
            }
        }
    }

    #[test]
    fn what_it_holds_without_knowing_is_taken_again() {
        let view = View { buckets: BTreeMap::from([(5, holder("me"))]), ..View::default() };
        let plan = Plan::new(Buckets::default(), BTreeSet::new(), &view, 0, "me", &BTreeSet::new());
        assert_eq!((plan.take.len(), plan.awaited), (64, 0));
    }
}
