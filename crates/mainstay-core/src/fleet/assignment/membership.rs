//! Who is in the fleet, and who holds what, as the home database tells.
//!
//! A member holds a numbered seat. Seats are numbered, not named after nodes: the row of a lease stays for ever, and nodes that get a
//! new name with every start would leave a row behind each time. It also gives a node that comes back the buckets that its
//! predecessor had.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Result;
use crate::lease::{LeaseFilter, LeaseRecord};
use crate::store::LeaseStore;

const PAGE: u32 = 1_000;

/// The names of a fleet's leases.
#[derive(Debug, Clone)]
pub(super) struct LeaseNames(String);

impl LeaseNames {
    pub(super) fn of(fleet: &str) -> Self {
        Self(format!("fleet:{fleet}:"))
    }

    pub(super) fn seat(&self, number: u32) -> String {
        format!("{}node:{number}", self.0)
    }

    pub(super) fn bucket(&self, number: u32) -> String {
        format!("{}bucket:{number}", self.0)
    }

    pub(super) fn bucket_of(&self, name: &str) -> Option<u32> {
        number(name.strip_prefix(&self.0)?.strip_prefix("bucket:")?)
    }

    fn seat_of(&self, name: &str) -> Option<u32> {
        number(name.strip_prefix(&self.0)?.strip_prefix("node:")?)
    }
}

/// A number as it is written into a name, and in no other way.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) owner: String,
    pub(super) epoch: i64,
    /// What it says about itself.
    context: Option<String>,
    until: Timestamp,
}

#[cfg(test)]
pub(super) fn holder(owner: &str) -> Holder {
    Holder { owner: owner.to_owned(), epoch: 1, context: None, until: Timestamp::UNIX_EPOCH }
}

/// The members and the buckets that somebody holds, at one moment.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) seats: BTreeMap<u32, Holder>,
    pub(super) buckets: BTreeMap<u32, Holder>,
}

impl View {
    /// Asks the home database.
    pub(super) async fn look(store: &dyn LeaseStore, names: &LeaseNames) -> Result<Self> {
        let mut view = Self::default();
        let mut after = None;
        loop {
            let page = LeaseFilter::all().held_only(true).prefix(&names.0).limit(PAGE).after(after.take());
            let records = store.list(&page).await?;
            let full = records.len() == PAGE as usize;
            after = records.last().map(|last| last.name.clone());
            records.into_iter().for_each(|record| view.add(names, record));
            if !full {
                return Ok(view);
            }
        }
    }

    fn add(&mut self, names: &LeaseNames, record: LeaseRecord) {
        let LeaseRecord { name, owner, epoch, context, expires_at: until, .. } = record;
        let Some(owner) = owner else { return };
        let holder = Holder { owner, epoch, context, until };
        if let Some(bucket) = names.bucket_of(&name) {
            self.buckets.insert(bucket, holder);
        } else if let Some(seat) = names.seat_of(&name) {
            self.seats.insert(seat, holder);
        }
    }

    /// A seat to ask for: one that is this owner's without its knowledge, or one of the first that are free. More of them after each
    /// failure: others ask at the same time.
    pub(super) fn seat_for(&self, owner: &str, failures: u32) -> u32 {
        if let Some((seat, _)) = self.seats.iter().find(|(_, holder)| holder.owner == owner) {
            return *seat;
        }
        let choice = 1_usize << failures.min(10);
        let nth = (Uuid::new_v4().as_u128() % choice as u128) as usize;
        let free = (0..).filter(|seat| !self.seats.contains_key(seat));
        // There are more numbers than seats that can be taken.
        free.into_iter().nth(nth).unwrap_or(u32::MAX)
    }

    /// A member with whom one can't share, because it calculates otherwise.
    pub(super) fn dissenter(&self, agreement: &str) -> Option<(u32, &str)> {
        let dissents = |(_, holder): &(&u32, &Holder)| holder.context.as_deref() != Some(agreement);
        let (seat, holder) = self.seats.iter().find(dissents)?;
        Some((*seat, holder.context.as_deref().unwrap_or("nothing")))
    }

    /// When the first of what others hold lapses, unless they renew it.
    pub(super) fn others_until(&self, owner: &str) -> Option<Timestamp> {
        let all = self.seats.values().chain(self.buckets.values());
        all.filter(|holder| holder.owner != owner).map(|holder| holder.until).min()
    }

    /// The seats of all members that calculate alike.
    pub(super) fn members(&self, agreement: &str) -> BTreeSet<u32> {
        let agree = |(_, holder): &(&u32, &Holder)| holder.context.as_deref() == Some(agreement);
        self.seats.iter().filter(agree).map(|(seat, _)| *seat).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, owner: &str, context: &str, until: i64) -> LeaseRecord {
        let mut record = LeaseRecord::new(name.to_owned(), Timestamp::UNIX_EPOCH);
        record.owner = Some(owner.to_owned());
        record.context = Some(context.to_owned());
        record.expires_at = Timestamp::from_second(until).unwrap();
        record
    }

    fn view(records: impl IntoIterator<Item = LeaseRecord>) -> View {
        let mut view = View::default();
        records.into_iter().for_each(|record| view.add(&LeaseNames::of("f"), record));
        view
    }

    #[test]
    fn only_names_that_are_written_so_count() {
        let names = LeaseNames::of("f");
        assert_eq!(
            (names.seat(3).as_str(), names.bucket(4).as_str()),
            ("fleet:f:node:3", "fleet:f:bucket:4")
        );
        assert_eq!(names.bucket_of("fleet:f:bucket:4"), Some(4));
        for other in [
            "fleet:f:bucket:04",
            "fleet:f:bucket:+4",
            "fleet:f:bucket:",
            "fleet:f:bucket:4:5",
            "fleet:g:bucket:4",
        ] {
            assert_eq!(names.bucket_of(other), None, "{other}");
        }
        let others =
            ["fleet:f:node:x", "fleet:f:bucket:-1", "fleet:f:other:1"].map(|name| record(name, "a", "", 1));
        let view = view(others);
        assert!(view.seats.is_empty() && view.buckets.is_empty());
    }

    #[test]
    fn a_newcomer_asks_for_the_first_free_seat_or_its_own() {
        let view = view([record("fleet:f:node:0", "a", "", 1), record("fleet:f:node:2", "b", "", 1)]);
        assert_eq!(view.seat_for("c", 0), 1);
        assert_eq!(view.seat_for("b", 5), 2, "one that it does not know of");
        let asked: BTreeSet<u32> = (0..200).map(|_| view.seat_for("c", 2)).collect();
        assert_eq!(asked, BTreeSet::from([1, 3, 4, 5]), "one of the first four");
    }

    #[test]
    fn whoever_counts_otherwise_is_no_member() {
        let view = view([
            record("fleet:f:node:0", "a", "64", 30),
            record("fleet:f:node:1", "b", "32", 20),
            record("fleet:f:bucket:1", "a", "", 10),
        ]);
        assert_eq!(view.members("64"), BTreeSet::from([0]));
        assert_eq!(view.dissenter("64"), Some((1, "32")));
        assert_eq!(view.others_until("b"), Some(Timestamp::from_second(10).unwrap()));
        assert_eq!(view.others_until("a"), Some(Timestamp::from_second(20).unwrap()));
    }
}
