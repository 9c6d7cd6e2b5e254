//! Whether a delivery may begin: so many at once, and none to a receiver that fails time and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_core::breaker::{Breaker, BreakerOptions, BreakerState};
use mainstay_core::{Error, ErrorKind, telemetry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a message is put off at least: claiming it again and giving it back is work, too.
const LEAST: Duration = Duration::from_millis(100);

/// How long a delivery takes, as far as is known before there was one.
const USUALLY: Duration = Duration::from_secs(1);

/// The gate of one route.
pub(super) struct Gate {
    route: Arc<str>,
    room: Arc<Semaphore>,
    concurrency: u32,
    /// How long a delivery may take.
    timeout: Duration,
    state: Mutex<State>,
}

struct State {
    breaker: Breaker,
    /// For how long the receiver was left alone the last time.
    left_alone: Duration,
    /// Since when one tries it, if one does.
    tried_since: Instant,
    /// How long deliveries take, the latest ones above all.
    took: Duration,
    /// When those that were put off for want of room should all have had their turn.
    turn_at: Instant,
    /// What the last failure was.
    trouble: String,
}

/// A delivery that may not begin yet.
#[derive(Debug)]
pub(super) struct PutOff {
    pub(super) pause: Duration,
    pub(super) why: String,
}

impl Gate {
    pub(super) fn new(
        route: Arc<str>,
        concurrency: usize,
        failures: u32,
        timeout: Duration,
        options: BreakerOptions,
    ) -> Self {
        let now = Instant::now();
        let state = State {
            breaker: Breaker::new(options).opening_after(failures),
            left_alone: options.min,
            tried_since: now,
            took: USUALLY.min(timeout),
            turn_at: now,
            trouble: String::new(),
        };
        let room = Arc::new(Semaphore::new(concurrency));
        let concurrency = u32::try_from(concurrency).unwrap_or(u32::MAX).max(1);
        Self { route, room, concurrency, timeout, state: Mutex::new(state) }
    }

    /// Tells how it stands, before anything has passed.
    pub(super) fn publish(&self) {
        telemetry::webhook_breaker(&self.route, self.state().breaker.state());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a delivery begin. The error says for how long it is to be put off, and why.
    ///
    /// A dispatcher begins no more at once than there is room for; those of several databases meet here. Nobody waits: who does keeps a place in
    /// which another route's message could be delivered.
    pub(super) fn pass(&self) -> Result<Pass<'_>, PutOff> {
        let mut state = self.state();
        if let Some(pause) = self.closed_for(&state) {
            let why = format!("the webhook {} leaves its receiver alone: {}", self.route, state.trouble);
            return Err(PutOff { pause, why });
        }
        // Closed by nobody.
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let (route, most) = (&self.route, self.concurrency);
            let why = format!("the webhook {route} has as many deliveries under way as it may: {most}");
            return Err(PutOff { pause: self.line_up(&mut state), why });
        };
        let trial = state.breaker.state() == BreakerState::Open;
        if trial {
            state.tried_since = Instant::now();
        }
        state.breaker.tries();
        telemetry::webhook_breaker(&self.route, state.breaker.state());
        Ok(Pass { gate: self, trial, told: false, began: Instant::now(), _room: room })
    }

    /// For how long nothing may pass; none if something may.
    fn closed_for(&self, state: &State) -> Option<Duration> {
        match state.breaker.state() {
            BreakerState::Closed => None,
            // Until it is known what comes of the trial, and looked at no more often than while nobody tried.
            BreakerState::HalfOpen => {
                let left = self.timeout.saturating_sub(state.tried_since.elapsed());
                Some(left.min(state.left_alone).max(LEAST))
            }
            BreakerState::Open => {
                let left = state.breaker.retry_at()?.saturating_duration_since(Instant::now());
                Some(left).filter(|left| !left.is_zero())
            }
        }
    }

    /// Until about when it has its turn, behind all others that there was no room for: were all to come back at once, most of them would come in vain.
    fn line_up(&self, state: &mut State) -> Duration {
        let now = Instant::now();
        let turn = state.turn_at.max(now) + state.took / self.concurrency;
        state.turn_at = turn.min(now + self.timeout);
        state.turn_at.saturating_duration_since(now).max(LEAST)
    }
}

/// A delivery that has begun. What it says of the receiver counts; if it says nothing, the next one may try.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    /// Whether it tries, alone, if the receiver is well again.
    trial: bool,
    told: bool,
    began: Instant,
    _room: OwnedSemaphorePermit,
}

impl<'a> Pass<'a> {
    /// What it tells is about to be noted.
    fn tells(&mut self) -> MutexGuard<'a, State> {
        self.told = true;
        let mut state = self.gate.state();
        state.took = (3 * state.took + self.began.elapsed()) / 4;
        state
    }

    /// The receiver works.
    pub(super) fn succeeded(mut self) {
        let mut state = self.tells();
        if state.breaker.succeeded() {
            telemetry::webhook_recovered(&self.gate.route);
        }
        telemetry::webhook_breaker(&self.gate.route, state.breaker.state());
    }

    /// The receiver does not work.
    pub(super) fn failed(mut self, why: &str) {
        let mut state = self.tells();
        // What began before it opened says nothing new.
        if state.breaker.state() != BreakerState::Closed && !self.trial {
            return;
        }
        let error = Error::new(ErrorKind::Unavailable, "webhook.deliver", why);
        state.trouble = why.to_owned();
        let (pause, opened) = state.breaker.failed(&error);
        state.left_alone = pause;
        if opened {
            telemetry::webhook_left_alone(&self.gate.route, state.breaker.failures(), pause, why);
        }
        telemetry::webhook_breaker(&self.gate.route, state.breaker.state());
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.trial && !self.told {
            let mut state = self.gate.state();
            state.breaker.tried_in_vain();
            telemetry::webhook_breaker(&self.gate.route, state.breaker.state());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(pause: Duration) -> Gate {
        let mut options = BreakerOptions::default();
        (options.min, options.max) = (pause, pause);
        Gate::new("r".into(), 2, 3, Duration::from_secs(30), options)
    }

    fn open(gate: &Gate) {
        for _ in 0..3 {
            gate.pass().unwrap_or_else(|_| panic!("it is closed")).failed("down");
        }
    }

    #[test]
    fn after_some_failures_in_a_row_nothing_passes() {
        let gate = gate(Duration::from_secs(60));
        gate.pass().unwrap_or_else(|_| panic!("it is closed")).failed("down");
        gate.pass().unwrap_or_else(|_| panic!("it is closed")).succeeded();
        open(&gate);
        let pause = gate.pass().err().unwrap().pause;
        assert!(pause <= Duration::from_secs(60) && pause > Duration::from_secs(20), "{pause:?}");
    }

    #[test]
    fn one_alone_tries_and_its_word_counts() {
        let gate = gate(Duration::from_nanos(1));
        open(&gate);
        let trial = gate.pass().unwrap_or_else(|_| panic!("the pause is over"));
        assert_eq!(
            gate.pass().err().map(|put_off| put_off.pause),
            Some(LEAST),
            "the others wait for what it says"
        );
        drop(trial);
        // Dropped without a word: the next one tries.
        gate.pass().unwrap_or_else(|_| panic!("nobody tries")).failed("still down");
        assert_eq!(gate.state().breaker.failures(), 4);
        gate.pass().unwrap_or_else(|_| panic!("the pause is over")).succeeded();
        assert_eq!(gate.state().breaker.state(), BreakerState::Closed);
        let (one, other) = (gate.pass(), gate.pass());
        assert!(one.is_ok() && other.is_ok());
    }

    #[test]
    fn what_began_before_it_opened_does_not_prolong_the_pause() {
        let gate = gate(Duration::from_secs(60));
        let early = gate.pass().unwrap_or_else(|_| panic!("it is closed"));
        open(&gate);
        early.failed("down");
        assert_eq!(gate.state().breaker.failures(), 3);
    }

    #[test]
    fn while_one_tries_the_others_are_put_off_for_as_long_as_it_may_take() {
        let mut options = BreakerOptions::default();
        (options.min, options.max) = (Duration::from_nanos(1), Duration::from_secs(3_600));
        let gate = Gate::new("r".into(), 2, 1, Duration::from_secs(30), options);
        gate.pass().unwrap_or_else(|_| panic!("it is closed")).failed("down");
        // As after a long time of trouble.
        gate.state().left_alone = Duration::from_secs(600);
        let _trial = gate.pass().unwrap_or_else(|_| panic!("the pause is over"));
        let pause = gate.pass().err().unwrap().pause;
        assert!(pause <= Duration::from_secs(30) && pause > Duration::from_secs(10), "{pause:?}");
    }

    #[test]
    fn who_finds_no_room_is_put_off_behind_those_before_him() {
        let gate = gate(Duration::from_secs(60));
        let (_one, other) = (gate.pass(), gate.pass());
        let pauses: Vec<_> = (0..1_000).map(|_| gate.pass().err().unwrap().pause).collect();
        assert!(pauses.is_sorted() && pauses[0] >= LEAST, "{:?}", pauses[0]);
        // A second each, two at once.
        assert!(pauses[9] >= Duration::from_secs(3), "{:?}", pauses[9]);
        assert!(pauses[999] <= Duration::from_secs(30), "{:?}", pauses[999]);
        drop(other);
        assert!(gate.pass().is_ok());
    }
}
