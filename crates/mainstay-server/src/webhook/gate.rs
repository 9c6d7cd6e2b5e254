//! Whether a delivery may begin: so many at once, and none to a receiver that fails time and again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use mainstay_core::breaker::{Breaker, BreakerOptions, BreakerState};
use mainstay_core::{Error, ErrorKind, telemetry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a message is put off while another one tries whether the receiver is well again, at least.
const TRIAL: Duration = Duration::from_millis(100);

/// The gate of one route.
pub(super) struct Gate {
    route: Arc<str>,
    room: Arc<Semaphore>,
    breaker: Mutex<Breaker>,
    pause: Duration,
}

impl Gate {
    pub(super) fn new(route: Arc<str>, concurrency: usize, failures: u32, options: BreakerOptions) -> Self {
        let breaker = Breaker::new(options).opening_after(failures);
        let pause = options.min.max(TRIAL);
        Self { route, room: Arc::new(Semaphore::new(concurrency)), breaker: Mutex::new(breaker), pause }
    }

    /// Tells how it stands, before anything has passed.
    pub(super) fn publish(&self) {
        telemetry::webhook_breaker(&self.route, self.breaker().state());
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room, and lets a delivery begin. The error says for how long it is to be put off.
    ///
    /// A dispatcher begins no more at once than there is room for; those of several databases wait for each other here.
    pub(super) async fn pass(&self) -> Result<Pass<'_>, Duration> {
        if let Some(pause) = self.breaker_says(&self.breaker()) {
            return Err(pause);
        }
        // Closed by nobody.
        let room = Arc::clone(&self.room).acquire_owned().await.ok();
        let mut breaker = self.breaker();
        if let Some(pause) = self.breaker_says(&breaker) {
            return Err(pause);
        }
        let trial = breaker.state() == BreakerState::Open;
        breaker.tries();
        telemetry::webhook_breaker(&self.route, breaker.state());
        Ok(Pass { gate: self, trial, told: false, _room: room })
    }

    /// For how long nothing may pass; none if something may.
    fn breaker_says(&self, breaker: &Breaker) -> Option<Duration> {
        match breaker.state() {
            BreakerState::Closed => None,
            BreakerState::HalfOpen => Some(self.pause),
            BreakerState::Open => {
                let left = breaker.retry_at()?.saturating_duration_since(Instant::now());
                Some(left).filter(|left| !left.is_zero())
            }
        }
    }
}

/// A delivery that has begun. What it says of the receiver counts; if it says nothing, the next one may try.
pub(super) struct Pass<'a> {
    gate: &'a Gate,
    /// Whether it tries, alone, if the receiver is well again.
    trial: bool,
    told: bool,
    _room: Option<OwnedSemaphorePermit>,
}

impl Pass<'_> {
    /// The receiver works.
    pub(super) fn succeeded(mut self) {
        self.told = true;
        let mut breaker = self.gate.breaker();
        if breaker.succeeded() {
            telemetry::webhook_recovered(&self.gate.route);
        }
        telemetry::webhook_breaker(&self.gate.route, breaker.state());
    }

    /// The receiver does not work.
    pub(super) fn failed(mut self, why: &str) {
        self.told = true;
        let mut breaker = self.gate.breaker();
        // What began before it opened says nothing new.
        if breaker.state() != BreakerState::Closed && !self.trial {
            return;
        }
        let (pause, opened) = breaker.failed(&Error::new(ErrorKind::Unavailable, "webhook.deliver", why));
        if opened {
            telemetry::webhook_left_alone(&self.gate.route, breaker.failures(), pause, why);
        }
        telemetry::webhook_breaker(&self.gate.route, breaker.state());
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.trial && !self.told {
            let mut breaker = self.gate.breaker();
            breaker.tried_in_vain();
            telemetry::webhook_breaker(&self.gate.route, breaker.state());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn gate(pause: Duration) -> Gate {
        let mut options = BreakerOptions::default();
        (options.min, options.max) = (pause, pause);
        Gate::new("r".into(), 2, 3, options)
    }

    async fn open(gate: &Gate) {
        for _ in 0..3 {
            gate.pass().await.unwrap_or_else(|_| panic!("it is closed")).failed("down");
        }
    }

    #[tokio::test]
    async fn after_some_failures_in_a_row_nothing_passes() {
        let gate = gate(Duration::from_secs(60));
        gate.pass().await.unwrap_or_else(|_| panic!("it is closed")).failed("down");
        gate.pass().await.unwrap_or_else(|_| panic!("it is closed")).succeeded();
        open(&gate).await;
        let pause = gate.pass().await.err().unwrap();
        assert!(pause <= Duration::from_secs(60) && pause > Duration::from_secs(20), "{pause:?}");
    }

    #[tokio::test]
    async fn one_alone_tries_and_its_word_counts() {
        let gate = gate(Duration::from_nanos(1));
        open(&gate).await;
        let trial = gate.pass().await.unwrap_or_else(|_| panic!("the pause is over"));
        assert_eq!(gate.pass().await.err(), Some(TRIAL), "the others wait for what it says");
        drop(trial);
        // Dropped without a word: the next one tries.
        gate.pass().await.unwrap_or_else(|_| panic!("nobody tries")).failed("still down");
        assert_eq!(gate.breaker().failures(), 4);
        gate.pass().await.unwrap_or_else(|_| panic!("the pause is over")).succeeded();
        assert_eq!(gate.breaker().state(), BreakerState::Closed);
        let (one, other) = (gate.pass().await, gate.pass().await);
        assert!(one.is_ok() && other.is_ok());
    }

    #[tokio::test]
    async fn what_began_before_it_opened_does_not_prolong_the_pause() {
        let gate = gate(Duration::from_secs(60));
        let early = gate.pass().await.unwrap_or_else(|_| panic!("it is closed"));
        open(&gate).await;
        early.failed("down");
        assert_eq!(gate.breaker().failures(), 3);
    }

    #[tokio::test]
    async fn no_more_than_there_is_room_for_pass_at_once() {
        let gate = gate(Duration::from_secs(60));
        let _one = gate.pass().await;
        let other = gate.pass().await;
        let mut third = std::pin::pin!(gate.pass());
        assert!(third.as_mut().now_or_never().is_none());
        drop(other);
        assert!(third.await.is_ok());
    }
}
