//! The clock that leases are counted by: the monotonic one, and the time during which that one stood still.
//!
//! Databases grant leases by their own clocks, and holders count them by their monotonic clock, which no change of the wall clock moves.
//! But a monotonic clock stands still while its machine is suspended. The wall clock then shows how long that was, sooner or later: it goes
//! on by itself, or is set when the machine resumes. So each reading here compares the two, and a jump of the wall clock ahead of the
//! monotonic one counts as time that has passed.
//!
//! The wall clock may also be set back before the next reading, and so hide a suspension. On Linux the system itself counts most of them
//! (`CLOCK_BOOTTIME`), but not those of a virtual machine by its host. So the larger of the two counts.
//!
//! Nothing can tell a suspension from a wall clock that is set forward. Then leases count as lost too early, by at most that jump,
//! which is safe: no other holder has what a holder gives up too early.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant as Raw, SystemTime};

use tokio::time::Instant;

use crate::telemetry;

/// The smallest jump that counts: shorter ones are noise, and within the margin that holders keep.
const JUMP: Duration = Duration::from_millis(50);

/// How far apart the readings of both clocks may be. A thread that is interrupted between them reads them again.
const APART: Duration = Duration::from_millis(1);

/// The longest sleep without a look at the clock: a suspension is noticed no later after it.
const LOOK: Duration = Duration::from_secs(1);

/// The clock of this process.
static CLOCK: Mutex<Clock> = Mutex::new(Clock { seen: None, skipped: Duration::ZERO });

/// Compares the wall clock with the monotonic one.
#[derive(Debug, Default)]
struct Clock {
    /// The last reading of both.
    seen: Option<Reading>,
    /// How long the monotonic clock stood still, in all.
    skipped: Duration,
}

impl Clock {
    /// Takes a reading in. Returns the jump since the last one, if there was one.
    fn read(&mut self, reading: Reading) -> Option<Duration> {
        let then = self.seen.replace(reading)?;
        // A wall clock that was set back shows no time at all.
        let by_wall = reading.wall.duration_since(then.wall).unwrap_or_default();
        let by_wall = by_wall.saturating_sub(reading.monotonic.saturating_duration_since(then.monotonic));
        // Where both show the suspension it counts once; where one does not, the other does.
        let jump = by_wall.max(reading.suspended.saturating_sub(then.suspended));
        if jump < JUMP {
            return None;
        }
        self.skipped = self.skipped.saturating_add(jump);
        Some(jump)
    }
}

/// All clocks, read at the same moment.
#[derive(Debug, Clone, Copy)]
struct Reading {
    monotonic: Raw,
    wall: SystemTime,
    /// How long the machine was suspended since it was started. Always zero where the system does not tell.
    suspended: Duration,
}

impl Reading {
    fn take() -> Self {
        let mut attempts = 0;
        loop {
            let monotonic = Raw::now();
            let reading = Self { monotonic, wall: SystemTime::now(), suspended: suspended() };
            attempts += 1;
            // On a machine that is too busy, time that passed in between counts twice: on the safe side.
            if monotonic.elapsed() < APART || attempts == 10 {
                return reading;
            }
        }
    }
}

/// By how much the clock that goes on while the machine is suspended is ahead of the one that does not.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, Timespec, clock_gettime};

    let (monotonic, boot) = (clock_gettime(ClockId::Monotonic), clock_gettime(ClockId::Boottime));
    let since_start = |time: Timespec| {
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        )
    };
    since_start(boot).saturating_sub(since_start(monotonic))
}

#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

/// Now, by the clock of leases. Comparable with other moments of this clock only.
pub(crate) fn now() -> Instant {
    Instant::now() + skipped()
}

/// The time that has passed since a moment of this clock.
pub(crate) fn since(moment: Instant) -> Duration {
    now().saturating_duration_since(moment)
}

/// Sleeps until this clock shows `when`.
pub(crate) async fn sleep_until(when: Instant) {
    loop {
        let left = when.saturating_duration_since(now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LOOK)).await;
    }
}

/// When to look at this clock again, by the runtime's, for what is due at `when`.
pub(crate) fn look_at(when: Instant) -> Instant {
    Instant::now() + when.saturating_duration_since(now()).min(LOOK)
}

/// How long the monotonic clock stood still while this process has run, as far as anybody has looked.
fn skipped() -> Duration {
    let (jump, skipped) = {
        // Read within the lock, so that readings are taken in in their order.
        let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
        (clock.read(Reading::take()), clock.skipped)
    };
    if let Some(jump) = jump {
        telemetry::clock_jumped(jump);
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A clock, and what it is moved by.
    struct Hands {
        clock: Clock,
        reading: Reading,
    }

    impl Hands {
        fn new() -> Self {
            let mut hands = Self { clock: Clock::default(), reading: Reading::take() };
            hands.pass(Duration::ZERO, Duration::ZERO);
            hands
        }

        /// How much is skipped after so much time by either clock.
        fn pass(&mut self, monotonic: Duration, wall: Duration) -> Duration {
            self.reading.monotonic += monotonic;
            self.reading.wall += wall;
            self.clock.read(self.reading);
            self.clock.skipped
        }
    }

    #[test]
    fn time_that_passes_by_both_clocks_is_not_skipped() {
        let mut hands = Hands::new();
        for _ in 0..100_000 {
            // The wall clock is a little fast, as one is while it is slewed.
            let slewed = hands.pass(SECOND, SECOND + Duration::from_micros(500));
            assert_eq!(slewed, Duration::ZERO);
        }
        assert_eq!(hands.pass(Duration::ZERO, Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_suspension_is_skipped_time_and_counts_once() {
        let mut hands = Hands::new();
        let minute = 60 * SECOND;
        assert_eq!(hands.pass(SECOND, minute), minute - SECOND);
        assert_eq!(hands.pass(minute, minute), minute - SECOND);
        assert_eq!(hands.pass(Duration::ZERO, minute), 2 * minute - SECOND);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_hides_no_later_suspension() {
        let mut hands = Hands::new();
        hands.reading.wall -= 3_600 * SECOND;
        assert_eq!(hands.pass(SECOND, SECOND), Duration::ZERO);
        assert_eq!(hands.pass(SECOND, 60 * SECOND), 59 * SECOND);
    }

    #[test]
    fn a_wall_clock_that_is_set_back_after_a_suspension_does_not_hide_it() {
        let mut hands = Hands::new();
        hands.reading.suspended += 40 * SECOND;
        assert_eq!(hands.pass(SECOND, 11 * SECOND), 40 * SECOND);
        // What both clocks show counts once.
        hands.reading.suspended += 40 * SECOND;
        assert_eq!(hands.pass(SECOND, 41 * SECOND), 80 * SECOND);
    }

    #[test]
    fn the_system_s_own_count_of_suspensions_stands_still_while_none_happens() {
        let before = Reading::take();
        let after = Reading::take();
        assert!(after.suspended.abs_diff(before.suspended) < JUMP);
    }

    #[test]
    fn jumps_below_the_bound_do_not_count() {
        let mut hands = Hands::new();
        assert_eq!(hands.pass(SECOND, SECOND + JUMP - Duration::from_nanos(1)), Duration::ZERO);
        assert_eq!(hands.pass(SECOND, SECOND + JUMP), JUMP);
    }

    #[tokio::test]
    async fn sleeps_end_when_this_clock_shows_their_time() {
        let later = now() + 3_600 * SECOND;
        assert!(look_at(later) <= Instant::now() + LOOK);
        let soon = now() + Duration::from_millis(20);
        sleep_until(soon).await;
        assert!(now() >= soon && look_at(soon) <= Instant::now());
    }
}
