//! When a shard is due: calculated from its cursor, the policy and the database's clock, and nothing else.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{FanoutCursor, FanoutPolicy, jitter};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Why a coordinator plans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// Each shard is looked at by its own cadence.
    Cadence,
    /// An occurrence of the cron expression has come: this one.
    Cron(Timestamp),
    /// Somebody asked for a run, at this moment.
    Requested(Timestamp),
}

/// When a slice is for, and when it may be handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceTime {
    /// The time it is for: what ids and the next cadence count from.
    pub nominal: Timestamp,
    /// The same and the jitter.
    pub due: Timestamp,
}

impl From<Timestamp> for SliceTime {
    /// Without jitter.
    fn from(nominal: Timestamp) -> Self {
        Self { nominal, due: nominal }
    }
}

/// A shard that may be due. None of its slices is in flight.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Candidate<'a> {
    /// The policy.
    pub policy: &'a FanoutPolicy,
    /// The shard.
    pub shard_key: &'a str,
    /// What is known of it. None if it was never heard of.
    pub cursor: Option<&'a FanoutCursor>,
    /// Why it is looked at.
    pub occasion: Occasion,
    /// The database's clock.
    pub now: Timestamp,
}

impl<'a> Candidate<'a> {
    /// A shard of a fan-out with this policy.
    pub fn new(
        policy: &'a FanoutPolicy,
        shard_key: &'a str,
        cursor: Option<&'a FanoutCursor>,
        occasion: Occasion,
        now: Timestamp,
    ) -> Self {
        Self { policy, shard_key, cursor, occasion, now }
    }

    /// When its next slice is due: now or earlier, or at a time to come. None if this occasion has nothing for it.
    ///
    /// By cadence that is the base ([`FanoutCursor::base`]), the cadence and the jitter of that window; of several that have come, the
    /// last one stands for all. A shard nothing is known about is due now. At an occurrence, all shards are due at its time and the
    /// jitter, but for those that have come so far already, and those whose last slice is less than the cadence away.
    pub fn due(&self) -> Option<SliceTime> {
        match self.occasion {
            Occasion::Cadence => self.by_cadence(),
            Occasion::Cron(at) if self.is_behind(at, self.policy.every) => Some(self.jittered(at, at)),
            Occasion::Requested(at) if self.is_behind(at, Duration::ZERO) => Some(at.into()),
            Occasion::Cron(_) | Occasion::Requested(_) => None,
        }
    }

    /// How far ahead a time may lie and still count. Cursors never go back, so where the clock was set back by little, they are waited
    /// for. What is further ahead than a day, or the cadence if that is more, was written while the clock was wrong, and would keep the shard
    /// waiting for as long.
    pub fn horizon(&self) -> Timestamp {
        let ahead = SignedDuration::from_micros(micros(self.policy.every.max(DAY)));
        self.now.checked_add(ahead).unwrap_or(Timestamp::MAX)
    }

    fn by_cadence(&self) -> Option<SliceTime> {
        let Some(base) = self.cursor.and_then(|cursor| cursor.base(self.horizon())) else {
            return Some(self.now.into());
        };
        let every = micros(self.policy.every).max(1);
        let jitter = micros(self.jitter(base));
        let since = self.now.as_microsecond().saturating_sub(base.as_microsecond()).saturating_sub(jitter);
        let windows = since.div_euclid(every).max(1);
        let nominal = base.as_microsecond().checked_add(windows.checked_mul(every)?)?;
        Some(self.jittered(Timestamp::from_microsecond(nominal).ok()?, base))
    }

    /// Whether neither the cursor nor the last slice has come to `at`, and that slice is at least `distance` before it.
    fn is_behind(&self, at: Timestamp, distance: Duration) -> bool {
        let Some(cursor) = self.cursor else { return true };
        let horizon = self.horizon();
        let completed = cursor.completed_by(horizon).is_some_and(|completed| completed >= at);
        let near = |slice: Timestamp| {
            slice >= at || at.as_microsecond().saturating_sub(slice.as_microsecond()) < micros(distance)
        };
        !completed && !cursor.slice_by(horizon).is_some_and(near)
    }

    fn jittered(&self, nominal: Timestamp, window: Timestamp) -> SliceTime {
        let jitter = SignedDuration::from_micros(micros(self.jitter(window)));
        SliceTime { nominal, due: nominal.checked_add(jitter).unwrap_or(nominal) }
    }

    fn jitter(&self, window: Timestamp) -> Duration {
        jitter(&self.policy.key, self.shard_key, window, self.policy.jitter)
    }
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fanout::FanoutKey;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn policy(every: u64, jitter: u64) -> FanoutPolicy {
        let mut policy = FanoutPolicy::new(FanoutKey::new("etl", "payments").unwrap(), at(0));
        (policy.every, policy.jitter) = (Duration::from_secs(every), Duration::from_secs(jitter));
        policy
    }

    fn cursor(completed: Option<i64>, slice: Option<i64>, slice_cursor: Option<i64>) -> FanoutCursor {
        let mut cursor = FanoutCursor::new("7", at(0));
        cursor.last_completed_at = completed.map(at);
        cursor.slice_due_at = slice.map(at);
        cursor.slice_cursor_at = slice_cursor.map(at);
        cursor
    }

    fn due(
        policy: &FanoutPolicy,
        cursor: Option<&FanoutCursor>,
        occasion: Occasion,
        now: i64,
    ) -> Option<SliceTime> {
        Candidate::new(policy, "7", cursor, occasion, at(now)).due()
    }

    fn by_cadence(cursor: &FanoutCursor, now: i64) -> Timestamp {
        due(&policy(10, 0), Some(cursor), Occasion::Cadence, now).unwrap().due
    }

    #[test]
    fn an_unknown_shard_is_due_now() {
        assert_eq!(due(&policy(10, 5), None, Occasion::Cadence, 3), Some(at(3).into()));
        assert_eq!(by_cadence(&cursor(None, None, None), 3), at(3));
    }

    #[test]
    fn the_cadence_counts_from_the_last_completion() {
        let completed = cursor(Some(100), Some(95), None);
        assert_eq!(by_cadence(&completed, 101), at(110));
        assert_eq!(by_cadence(&completed, 110), at(110));
        // One slice stands for all that were missed.
        assert_eq!(by_cadence(&completed, 139), at(130));
    }

    #[test]
    fn a_slice_that_ended_in_vain_counts_too() {
        assert_eq!(by_cadence(&cursor(Some(100), Some(110), Some(100)), 111), at(120));
        assert_eq!(by_cadence(&cursor(None, Some(110), None), 111), at(120));
        // One that moved the cursor does not: what it left undone is due by the cursor.
        assert_eq!(by_cadence(&cursor(Some(50), Some(110), Some(40)), 111), at(110));
    }

    #[test]
    fn jitter_comes_on_top_and_stays_within_its_bound() {
        let policy = policy(10, 5);
        for completed in 0..100 {
            let cursor = cursor(Some(completed), None, None);
            let time = due(&policy, Some(&cursor), Occasion::Cadence, completed).unwrap();
            assert_eq!(time.nominal, at(completed + 10));
            assert!(time.due >= time.nominal && time.due < at(completed + 15), "{time:?}");
            // It is due from then on and not before.
            let before =
                Candidate::new(&policy, "7", Some(&cursor), Occasion::Cadence, time.due).due().unwrap();
            assert_eq!(before, time);
        }
    }

    #[test]
    fn an_occurrence_has_one_slice_for_each_shard() {
        let (policy, cron) = (policy(0, 5), Occasion::Cron(at(100)));
        let slice = due(&policy, None, cron, 101).unwrap();
        assert!(slice.nominal == at(100) && slice.due < at(105));
        assert_eq!(due(&policy, Some(&cursor(None, Some(100), None)), cron, 101), None);
        assert_eq!(due(&policy, Some(&cursor(Some(100), None, None)), cron, 101), None);
        assert!(due(&policy, Some(&cursor(Some(99), Some(90), Some(80))), cron, 101).is_some());
    }

    #[test]
    fn what_was_written_while_the_clock_was_far_ahead_does_not_count() {
        const YEAR: i64 = 365 * 86_400;
        let policy = policy(10, 0);
        let mut ahead = cursor(Some(YEAR), Some(YEAR), Some(YEAR - 10));
        ahead.updated_at = at(YEAR);
        for occasion in [Occasion::Cadence, Occasion::Cron(at(100)), Occasion::Requested(at(100))] {
            assert!(due(&policy, Some(&ahead), occasion, 100).is_some_and(|slice| slice.due <= at(100)));
        }
        // The slice that was planned then. It can't move the cursor, which never goes back, and counts all the same.
        ahead.slice_id = Some(crate::id::WorkItemId::new());
        (ahead.slice_due_at, ahead.slice_cursor_at, ahead.updated_at) =
            (Some(at(100)), Some(at(YEAR)), at(100));
        assert_eq!(by_cadence(&ahead, 101), at(110));
        assert_eq!(due(&policy, Some(&ahead), Occasion::Cron(at(100)), 101), None);
        assert!(due(&policy, Some(&ahead), Occasion::Cron(at(110)), 110).is_some());
    }

    #[test]
    fn a_clock_that_was_set_back_by_little_is_waited_for() {
        let mut ahead = cursor(Some(500), Some(500), Some(490));
        ahead.updated_at = at(500);
        assert_eq!(by_cadence(&ahead, 100), at(510));
        assert_eq!(due(&policy(0, 0), Some(&ahead), Occasion::Cron(at(100)), 100), None);
    }

    #[test]
    fn what_an_application_has_done_ahead_of_time_counts() {
        const YEAR: i64 = 365 * 86_400;
        let mut done = cursor(Some(YEAR), Some(90), Some(80));
        (done.slice_id, done.updated_at) = (Some(crate::id::WorkItemId::new()), at(95));
        assert_eq!(by_cadence(&done, 100), at(YEAR + 10));
        assert_eq!(due(&policy(0, 0), Some(&done), Occasion::Cron(at(100)), 100), None);
    }

    #[test]
    fn the_cadence_is_the_least_distance_between_two_occurrences_of_a_shard() {
        let policy = policy(600, 0);
        let done = |slice| cursor(Some(slice + 1), Some(slice), None);
        assert_eq!(due(&policy, Some(&done(1)), Occasion::Cron(at(600)), 600), None);
        // Counted from one nominal time to the next: how long the work took does not matter.
        assert!(due(&policy, Some(&done(0)), Occasion::Cron(at(600)), 600).is_some());
        assert!(due(&policy, Some(&done(1)), Occasion::Requested(at(600)), 600).is_some());
    }
}
