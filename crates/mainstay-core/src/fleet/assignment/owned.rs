//! What a node owns.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::lease::Tenure;

use super::Buckets;

/// The databases a node owns: all, those in the buckets it holds, or those a rule of the application names.
///
/// What it says of a database is true at the moment it is asked, however old the value is: a bucket that was given up or may have
/// lapsed is no longer owned. What was gained since is in a newer value. Cheap to clone.
#[derive(Clone)]
pub struct Owned(Extent);

#[derive(Clone)]
enum Extent {
    All,
    By(Arc<dyn Fn(&str) -> bool + Send + Sync>),
    In(Buckets, Arc<BTreeMap<u32, Holding>>),
}

/// A bucket that is held.
#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub(super) epoch: i64,
    /// Of the bucket.
    pub(super) bucket: Arc<Tenure>,
    /// Of the node itself: who is not a member owns nothing.
    pub(super) seat: Arc<Tenure>,
}

impl Holding {
    fn lasts(&self) -> bool {
        self.bucket.holds() && self.seat.holds()
    }

    /// When it ends unless it is renewed.
    pub(super) fn deadline(&self) -> tokio::time::Instant {
        self.bucket.deadline().min(self.seat.deadline())
    }
}

impl Owned {
    /// All databases: what a node owns that shares them with nobody, because no home database was given.
    pub fn all() -> Self {
        Self(Extent::All)
    }

    /// Those whose identifiers `owned` says yes to, for applications that share their databases by rules of their own. It must not
    /// block.
    pub fn by(owned: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self(Extent::By(Arc::new(owned)))
    }

    /// No database.
    pub fn none() -> Self {
        Self::of(Buckets::default(), BTreeMap::new())
    }

    pub(super) fn of(buckets: Buckets, held: BTreeMap<u32, Holding>) -> Self {
        Self(Extent::In(buckets, Arc::new(held)))
    }

    /// Whether the node owns this database now. Asks nobody.
    pub fn owns(&self, database: &str) -> bool {
        match &self.0 {
            Extent::All => true,
            Extent::By(owned) => owned(database),
            Extent::In(buckets, held) => held.get(&buckets.of(database)).is_some_and(Holding::lasts),
        }
    }

    /// Whether it owns all databases because it shares them with nobody.
    pub fn is_all(&self) -> bool {
        matches!(self.0, Extent::All)
    }

    /// The buckets that are held now, each with the epoch of its lease. Empty where no buckets are needed.
    pub fn buckets(&self) -> BTreeMap<u32, i64> {
        self.lasting().map(|(bucket, holding)| (bucket, holding.epoch)).collect()
    }

    fn lasting(&self) -> impl Iterator<Item = (u32, &Holding)> {
        let held = match &self.0 {
            Extent::All | Extent::By(_) => None,
            Extent::In(_, held) => Some(held.iter()),
        };
        held.into_iter()
            .flatten()
            .map(|(bucket, holding)| (*bucket, holding))
            .filter(|(_, holding)| holding.lasts())
    }

    /// When the first of what is held ends unless it is renewed. None when nothing is held.
    pub(super) fn deadline(&self) -> Option<tokio::time::Instant> {
        self.lasting().map(|(_, holding)| holding.deadline()).min()
    }

    /// The same without what has lapsed; none when nothing has.
    pub(super) fn without_lapsed(&self) -> Option<Self> {
        let Extent::In(buckets, held) = &self.0 else { return None };
        let left: BTreeMap<u32, Holding> =
            self.lasting().map(|(bucket, holding)| (bucket, holding.clone())).collect();
        (left.len() < held.len()).then(|| Self::of(*buckets, left))
    }

    /// Whether the two hold the same buckets by the same acquisitions.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Extent::All, Extent::All) => true,
            (Extent::By(one), Extent::By(other)) => Arc::ptr_eq(one, other),
            (Extent::In(buckets, held), Extent::In(others, theirs)) => {
                let same = |((a, one), (b, other)): ((&u32, &Holding), (&u32, &Holding))| {
                    a == b && Arc::ptr_eq(&one.bucket, &other.bucket) && Arc::ptr_eq(&one.seat, &other.seat)
                };
                buckets == others && held.len() == theirs.len() && held.iter().zip(theirs.iter()).all(same)
            }
            _ => false,
        }
    }
}

impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Extent::All => f.write_str("Owned(all)"),
            Extent::By(_) => f.write_str("Owned(…)"),
            Extent::In(buckets, _) => {
                write!(f, "Owned({:?} of {})", self.buckets().keys().collect::<Vec<_>>(), buckets.count())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    fn tenure() -> Arc<Tenure> {
        Arc::new(Tenure::new(Instant::now() + Duration::from_secs(600)))
    }

    #[test]
    fn an_old_value_tells_the_truth() {
        let (buckets, seat) = (Buckets::default(), tenure());
        let (first, second) = (tenure(), tenure());
        let holding =
            |bucket: &Arc<Tenure>| Holding { epoch: 1, bucket: Arc::clone(bucket), seat: Arc::clone(&seat) };
        let id = "tenant-1";
        let held = BTreeMap::from([(buckets.of(id), holding(&first)), (60, holding(&second))]);
        let owned = Owned::of(buckets, held);
        assert!(owned.owns(id) && owned.without_lapsed().is_none());
        assert!(owned.deadline().is_some() && owned.is_same(&owned.clone()));
        first.end();
        assert!(!owned.owns(id), "its bucket is lost");
        let left = owned.without_lapsed().unwrap();
        assert_eq!(left.buckets().into_keys().collect::<Vec<_>>(), [60]);
        assert!(!left.is_same(&owned));
        seat.end();
        assert!(owned.buckets().is_empty(), "who is not a member owns nothing");
        assert_eq!(left.deadline(), None);
    }

    #[test]
    fn it_may_be_all_none_or_by_a_rule() {
        assert!(Owned::all().owns("a") && Owned::all().is_all());
        assert!(!Owned::none().owns("a") && !Owned::none().is_all());
        let rule = Owned::by(|id| id.starts_with('a'));
        assert!(rule.owns("ab") && !rule.owns("b") && !rule.is_all() && rule.without_lapsed().is_none());
    }
}
