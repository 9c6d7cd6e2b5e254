//! What retention takes for the present: the database's clock, unless that has jumped ahead.
//!
//! A clock that jumps a month ahead would let a sweep delete, within minutes, all that was to be kept for a month. So the clock that a
//! page of a sweep saw is stored in the database, and the next one counts no more time since then than has passed by that clock, and of a long gap only
//! a part. What a sweep takes for the present so falls behind the database's clock after a jump, and after a time in which no sweep ran: the two
//! look the same. It catches up by going twice as fast as the clock, so that all is deleted in the end, a little later.
//!
//! The state of all sweeps of a database is the context of one lease, which is theirs for good: each sweep acquires it anew. Of two that write it
//! at the same moment one may be forgotten, which is as if it had not swept.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use crate::audit::AuditRetention;
use crate::error::{Error, ErrorKind, Result};
use crate::inbox::InboxRetention;
use crate::join::JoinRetention;
use crate::lease::{LeaseAnswer, LeaseRequest};
use crate::operation::OperationRetention;
use crate::outbox::Retention;
use crate::store::Provider;

use super::purge::Kept;

/// A gap of this length is believed at once, however short the retention.
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Of a longer gap, this part of the retention is believed at once.
const PART: u32 = 4;

/// How many times as fast as the database's clock a sweep catches up.
const CATCH_UP: u32 = 2;

/// The lease that keeps the state, and its holder.
const LEASE: &str = "mainstay:retention";

/// Longer than any time without a sweep: a lease that lapses looks like one whose holder died.
const FOR_GOOD: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

impl Kept for Retention {
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration> {
        [&mut self.done, &mut self.failed].into_iter().flatten()
    }

    fn is_last(&self, deleted: u64) -> bool {
        deleted < u64::from(self.batch)
    }
}

impl Kept for InboxRetention {
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration> {
        [&mut self.done, &mut self.dead].into_iter().flatten()
    }

    fn is_last(&self, deleted: u64) -> bool {
        deleted < u64::from(self.batch)
    }
}

impl Kept for JoinRetention {
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration> {
        self.ended.iter_mut()
    }

    // A join and its members may be deleted in several pages.
    fn is_last(&self, deleted: u64) -> bool {
        deleted == 0
    }
}

impl Kept for OperationRetention {
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration> {
        self.ended.iter_mut()
    }

    fn is_last(&self, deleted: u64) -> bool {
        deleted < u64::from(self.batch)
    }
}

impl Kept for AuditRetention {
    fn ages(&mut self) -> impl Iterator<Item = &mut Duration> {
        self.age.iter_mut()
    }

    fn is_last(&self, deleted: u64) -> bool {
        deleted < u64::from(self.batch)
    }
}

/// What the sweeps of one kind of records take for the present.
#[derive(Clone)]
pub struct SweepClock {
    provider: Arc<dyn Provider>,
    what: &'static str,
    /// The sweeps of a process don't overwrite each other's state.
    writing: Arc<Mutex<()>>,
}

impl SweepClock {
    /// That of a database's sweeps, of its outbox first.
    pub fn new(provider: &Arc<dyn Provider>) -> Self {
        Self { provider: Arc::clone(provider), what: "outbox", writing: Arc::default() }
    }

    /// That of the sweeps of other records of the same database.
    #[must_use]
    pub fn of(&self, what: &'static str) -> Self {
        Self { what, ..self.clone() }
    }

    /// The database, for logs.
    pub(super) fn identifier(&self) -> String {
        self.provider.leases().identifier().to_owned()
    }

    /// The kind of records.
    pub(super) fn what(&self) -> &'static str {
        self.what
    }

    /// Notes the database's clock. Returns how far sweeps of these records, kept for `shortest` at least, are behind it.
    pub(super) async fn tick(&self, shortest: Duration) -> Result<Duration> {
        let leases = self.provider.leases();
        let _alone = self.writing.lock().await;
        let now = self.provider.now().await?;
        let mut states = read(leases.get(LEASE).await?.and_then(|record| record.context));
        let state = State::next(states.get(self.what).copied(), now, shortest);
        states.insert(self.what.to_owned(), state);
        let request = LeaseRequest {
            name: LEASE.to_owned(),
            owner: LEASE.to_owned(),
            duration: FOR_GOOD,
            context: Some(serde_json::json!(states).to_string()),
            reentrant: true,
        };
        match leases.acquire(&request).await? {
            LeaseAnswer::Granted(_) => Ok(state.behind()),
            LeaseAnswer::Held(holder) => {
                let text = format!("the lease {LEASE:?}, which is kept for retention, is {holder}");
                Err(Error::new(ErrorKind::Unavailable, "retention", text))
            }
        }
    }
}

impl fmt::Debug for SweepClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweepClock").field("what", &self.what).finish_non_exhaustive()
    }
}

/// The states of all sweeps of a database, as they were written. Without them the next sweep is like the first.
fn read(context: Option<String>) -> BTreeMap<String, State> {
    context.and_then(|context| serde_json::from_str(&context).ok()).unwrap_or_default()
}

/// What a sweep leaves for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The database's clock at the sweep.
    swept_at: Timestamp,
    /// What the sweep took for the present.
    present: Timestamp,
}

impl State {
    /// That of a sweep at `now`, whose shortest retention is `shortest`.
    fn next(before: Option<Self>, now: Timestamp, shortest: Duration) -> Self {
        let Some(before) = before else { return Self { swept_at: now, present: now } };
        // A clock that was set back has shown no time.
        let passed = Duration::try_from(now.duration_since(before.swept_at)).unwrap_or_default();
        let most = (shortest / PART).max(DAY);
        let step = passed.saturating_mul(CATCH_UP).min(most);
        let present = before.present.checked_add(step).unwrap_or(now);
        Self { swept_at: now, present: present.min(now) }
    }

    fn behind(self) -> Duration {
        Duration::try_from(self.swept_at.duration_since(self.present)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const MONTH: Duration = Duration::from_secs(30 * 24 * 3_600);

    fn start() -> (State, Timestamp) {
        let now: Timestamp = "2026-03-01T00:00:00Z".parse().unwrap();
        (State::next(None, now, MONTH), now)
    }

    #[test]
    fn sweeps_that_come_in_time_are_not_behind() {
        let (mut state, mut now) = start();
        assert_eq!(state.behind(), Duration::ZERO, "the first one");
        for gap in [Duration::ZERO, HOUR, DAY, MONTH / 4] {
            now += gap;
            state = State::next(Some(state), now, MONTH);
            assert_eq!(state.behind(), Duration::ZERO, "{gap:?}");
        }
        // However short the retention is.
        state = State::next(Some(state), now + DAY, HOUR);
        assert_eq!(state.behind(), Duration::ZERO);
    }

    #[test]
    fn a_jump_moves_a_sweep_by_a_part_of_the_retention() {
        let (state, now) = start();
        let ahead = now + 100 * MONTH;
        let state = State::next(Some(state), ahead, MONTH);
        assert_eq!(state.present, now + MONTH / 4);
        // However many processes sweep at that moment.
        let same = (0..100).fold(state, |state, _| State::next(Some(state), ahead, MONTH));
        assert_eq!(same, state);
        // The clock is right again.
        let back = State::next(Some(state), now + HOUR, MONTH);
        assert_eq!((back.behind(), back.present), (Duration::ZERO, now + HOUR));
        // Two servers that disagree take turns: they get no further than one jump.
        let again = State::next(Some(back), ahead, MONTH);
        assert_eq!(again.present, now + HOUR + MONTH / 4);
    }

    #[test]
    fn after_a_gap_it_catches_up_twice_as_fast_as_time_passes() {
        let (state, now) = start();
        let gap = 2 * MONTH;
        let mut state = State::next(Some(state), now + gap, MONTH);
        let behind = state.behind();
        assert_eq!(behind, gap - MONTH / 4);
        for hour in 1..=behind.as_secs() / 3_600 {
            state = State::next(Some(state), now + gap + HOUR * u32::try_from(hour).unwrap(), MONTH);
            assert_eq!(state.behind(), behind - Duration::from_secs(hour * 3_600));
        }
        assert_eq!(state.behind(), Duration::ZERO);
    }

    #[test]
    fn states_survive_their_text() {
        let (state, now) = start();
        let state = State::next(Some(state), now + MONTH, MONTH);
        let states = BTreeMap::from([("outbox".to_owned(), state), ("inbox".to_owned(), start().0)]);
        assert_eq!(read(Some(serde_json::json!(states).to_string())), states);
        assert_eq!((read(None), read(Some("by hand".to_owned()))), (BTreeMap::new(), BTreeMap::new()));
    }
}
