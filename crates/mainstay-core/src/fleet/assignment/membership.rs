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
