//! When a database that rests is looked at or worked on next.
//!
//! Three things lead to a look: the time at which something is known to fall due, a ring of the doorbell, and a wait that doubles. The
//! last is there because neither of the others can be relied upon: it is only longer where the doorbell works, and never endless.

use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::runtime::Pause;

use super::FleetOptions;

/// How often in a row work may be found by chance that the doorbell should have told of.
const MISSES: u32 = 3;

/// When to do something next.
#[derive(Debug)]
pub(super) struct Plan {
    /// When to work, at the latest: the chores are seen to then.
    pub(super) work_at: Instant,
    pub(super) look_at: Instant,
    pause: Pause,
    /// The longest pause where nobody watches the database.
    unwatched: Duration,
    /// Whether the doorbell is at work.
    watched: bool,
    /// Whether it has rung since the last look.
    rung: bool,
    /// How long it is not heeded after a look for nothing, so that a database that is written to all the time is not looked at all the
    /// time.
    deafness: Pause,
    heeded_at: Instant,
    heeds_at: Instant,
    /// When something falls due, as the last look knew.
    expected: Option<Instant>,
    misses: u32,
}

impl Plan {
    /// Chores first: they check the schema and register jobs.
    pub(super) fn new(options: &FleetOptions, now: Instant) -> Self {
        let first = options.watch.unwrap_or(options.ring_max).min(options.ring_max);
        Self {
            work_at: now,
            look_at: now,
            pause: Pause::new((options.poll_min, options.poll_max.max(options.poll_max_watched))),
            unwatched: options.poll_max,
            watched: false,
            rung: false,
            deafness: Pause::new((first, options.ring_max)),
            heeded_at: now,
            heeds_at: now,
            expected: None,
            misses: 0,
        }
    }

    /// Work is there for certain.
    pub(super) fn work_now(&mut self, now: Instant) {
        self.pause.reset();
        self.work_at = now;
    }

    /// Whatever was known of it, something has happened there.
    pub(super) fn wake(&mut self) {
        self.pause.reset();
    }

    /// The doorbell has rung: somebody has written something.
    pub(super) fn ring(&mut self, now: Instant) {
        if now.saturating_duration_since(self.heeded_at) > self.unwatched {
            self.deafness.reset();
        }
        self.rung = true;
        self.look_at = self.look_at.min(self.heeds_at.max(now));
    }

    /// Whether the doorbell is at work. Without it, a look that was planned for much later comes sooner.
    pub(super) fn set_watched(&mut self, watched: bool, now: Instant) {
        if self.watched && !watched {
            // All databases of a server lose it together, but need not be looked at together.
            self.look_at = self.look_at.min(now + self.unwatched.mul_f64(part()));
        }
        self.watched = watched;
    }

    /// Whether the doorbell's silence means anything.
    pub(super) fn trusts(&self) -> bool {
        self.watched && self.misses < MISSES
    }

    /// What the database does is known from within, for as long as it is worked on.
    pub(super) fn works(&mut self) {
        self.rung = false;
        self.expected = None;
    }

    /// The database was looked at, and something falls due after `next`. Returns whether the doorbell has just lost its trust.
    pub(super) fn looked(&mut self, next: Option<Duration>, now: Instant) -> bool {
        let trusted = self.trusts();
        let rung = std::mem::take(&mut self.rung);
        let found = next.is_some_and(|next| next.is_zero());
        let expected = self.expected.is_some_and(|at| at <= now);
        self.expected = next.map(|next| now + next);
        if found {
            // Work is done with the chores; there is only one way to begin.
            self.work_at = now;
            if rung {
                self.misses = 0;
                self.deafness.reset();
            } else if self.watched && !expected {
                self.misses = self.misses.saturating_add(1);
            }
        }
        let mut pause = self.pause.step();
        if !self.trusts() {
            pause = pause.min(self.unwatched);
        } else if pause > self.unwatched {
            // Those that were let go together need not be looked at together for ever.
            pause = pause.mul_f64(0.75 + part() / 4.0);
        }
        self.look_at = now + next.map_or(pause, |next| next.min(pause));
        if rung && !found {
            let deafness = self.deafness.step();
            (self.heeded_at, self.heeds_at) = (now, now + deafness);
            // Once more: what was written may have been seen before it was committed.
            self.look_at = self.look_at.min(self.heeds_at);
        }
        trusted && !self.trusts()
    }
}

/// Between none and all.
fn part() -> f64 {
    f64::from(Uuid::new_v4().as_u128() as u16) / f64::from(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Option<Duration> = None;
    const DUE: Option<Duration> = Some(Duration::ZERO);

    fn plan() -> (Plan, Instant) {
        let now = Instant::now();
        (Plan::new(&FleetOptions::default(), now), now)
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// Looks when it is time to, `times` times. The waits in between.
    fn waits(plan: &mut Plan, now: &mut Instant, times: usize) -> Vec<Duration> {
        let wait = |_| {
            let wait = plan.look_at.saturating_duration_since(*now);
            *now += wait;
            plan.looked(NOTHING, *now);
            wait
        };
        (0..times).map(wait).collect()
    }

    #[test]
    fn looks_are_rarer_where_the_doorbell_works_but_never_end() {
        let (mut plan, mut now) = plan();
        assert_eq!(waits(&mut plan, &mut now, 20).last(), Some(&seconds(30.0)));
        plan.set_watched(true, now);
        let last = waits(&mut plan, &mut now, 20).pop().unwrap();
        assert!(last > seconds(200.0) && last <= seconds(300.0), "{last:?}");
        plan.set_watched(false, now);
        assert!(plan.look_at <= now + seconds(30.0), "one that has fallen silent is not waited for");
        assert_eq!(waits(&mut plan, &mut now, 20).last(), Some(&seconds(30.0)));
    }

    #[test]
    fn a_ring_is_looked_at_at_once_and_once_more() {
        let (mut plan, mut now) = plan();
        plan.set_watched(true, now);
        waits(&mut plan, &mut now, 20);
        plan.ring(now);
        assert_eq!(plan.look_at, now);
        plan.looked(NOTHING, now);
        assert_eq!(plan.look_at, now + seconds(0.5));
        now = plan.look_at;
        plan.looked(NOTHING, now);
        assert!(plan.look_at > now + seconds(200.0), "and that was all");
    }

    #[test]
    fn one_that_is_written_to_all_the_time_is_not_looked_at_all_the_time() {
        let (mut plan, mut now) = plan();
        plan.set_watched(true, now);
        waits(&mut plan, &mut now, 20);
        let mut looks = 0;
        for _ in 0..120 {
            plan.ring(now);
            if plan.look_at <= now {
                plan.looked(NOTHING, now);
                looks += 1;
            }
            now += seconds(0.5);
        }
        assert!((12..20).contains(&looks), "{looks} looks in a minute");
        plan.ring(now);
        assert!(plan.look_at <= now + seconds(5.0));
        now = plan.look_at;
        plan.looked(DUE, now);
        assert_eq!(plan.work_at, now);
        plan.ring(now);
        plan.looked(NOTHING, now);
        assert!(plan.look_at <= now + seconds(0.5), "a ring for something makes up for many for nothing");
    }

    #[test]
    fn after_some_quiet_every_ring_counts_again() {
        let (mut plan, mut now) = plan();
        plan.set_watched(true, now);
        for _ in 0..10 {
            plan.ring(now);
            now = plan.look_at;
            plan.looked(NOTHING, now);
        }
        now += seconds(31.0);
        plan.ring(now);
        plan.looked(NOTHING, now);
        assert_eq!(plan.look_at, now + seconds(0.5));
    }

    #[test]
    fn a_doorbell_that_misses_what_looks_find_is_no_longer_trusted() {
        let (mut plan, mut now) = plan();
        plan.set_watched(true, now);
        for miss in 1..=MISSES {
            waits(&mut plan, &mut now, 20);
            assert!(plan.trusts());
            now = plan.look_at;
            assert_eq!(plan.looked(DUE, now), miss == MISSES);
            plan.works();
            plan.wake();
        }
        assert!(!plan.trusts());
        assert_eq!(waits(&mut plan, &mut now, 20).last(), Some(&seconds(30.0)));
        plan.ring(now);
        plan.looked(DUE, now);
        assert!(plan.trusts(), "until it rings for something");
    }

    #[test]
    fn what_was_known_to_fall_due_is_not_the_doorbells_to_tell() {
        let (mut plan, mut now) = plan();
        plan.set_watched(true, now);
        for _ in 0..10 {
            plan.looked(Some(seconds(2.0)), now);
            now = plan.look_at.max(now + seconds(2.0));
            plan.looked(DUE, now);
        }
        assert!(plan.trusts());
    }
}
