//! What goes on behind that which is held until a deadline, a lease or a reservation: renewing it in time, and noticing when that did
//! not work.
//!
//! Whether it is still held is answered without asking the database, from a deadline on the [`clock`] of leases that is counted from before
//! the request that got or renewed it. A renewal that fails or hangs extends nothing: the deadline stands. It is tried again, on another
//! connection if need be, until the deadline strikes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::error::{Error, Result};

/// No attempt is given up sooner: a slow answer is better than none.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);

/// The time limit of a turn, a maintenance task or one page of it. A call that takes longer has most likely lost its connection.
pub(crate) const TURN_LIMIT: Duration = Duration::from_secs(60);

/// How much longer than it was asked for a wait may take before its connection counts as silent.
pub(crate) const WAIT_SPARE: Duration = Duration::from_secs(5);

/// The time limit of a call that work waits for: two leases, within bounds. Neither a slow answer nor a long lease is a reason to give up
/// too early or too late.
pub(crate) fn call_limit(lease: Duration) -> Duration {
    lease.saturating_mul(2).clamp(Duration::from_secs(1), TURN_LIMIT)
}

/// Until when something is surely held.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Term {
    /// When the request was sent that got or last renewed it.
    pub(crate) asked_at: Instant,
    /// From when on the database may give it to somebody else.
    pub(crate) deadline: Instant,
}

impl Term {
    /// What was granted for `duration` by an answer to a request of then.
    pub(crate) fn new(asked_at: Instant, duration: Duration) -> Self {
        Self { asked_at, deadline: deadline(asked_at, duration) }
    }

    /// Answers of two renewals may come in any order.
    pub(crate) fn extend(&mut self, other: Self) {
        self.asked_at = self.asked_at.max(other.asked_at);
        self.deadline = self.deadline.max(other.deadline);
    }
}

/// Counted from before the request, and a little less than was granted: clocks differ in how fast they run and how finely they
/// count, and what depends on it needs a moment to stop.
pub(crate) fn deadline(asked_at: Instant, duration: Duration) -> Instant {
    asked_at + duration - (duration / 20).min(Duration::from_secs(1))
}

/// What is held until a deadline unless it is renewed.
pub(crate) trait Held: Send + Sync {
    /// What its renewal is called.
    const RENEWAL: &'static str;

    /// Until when it is held, or none when it is over. Notices when it has lapsed.
    fn term(&self) -> Option<Term>;
    /// How long a renewal holds.
    fn duration(&self) -> Duration;
    /// When to renew what was asked for at `asked_at`. None: never.
    fn renewal(&self, asked_at: Instant) -> Option<Instant>;
    /// Renews it once. False when it is no longer held.
    fn renew_once(&self) -> impl Future<Output = Result<bool>> + Send;
    /// Cancelled once it is over.
    fn over(&self) -> &CancellationToken;
    /// A renewal failed, and is tried again after the pause.
    fn retrying(&self, error: &Error, pause: Duration);
}

/// Renews it at its times, and notices when that did not work. Returns when it is over.
pub(crate) async fn keep<H: Held>(held: Arc<H>) {
    while let Some(term) = held.term() {
        let renewal = held.renewal(term.asked_at);
        let until = renewal.unwrap_or(term.deadline);
        if held.over().run_until_cancelled(clock::sleep_until(until)).await.is_none() {
            return;
        }
        // Nothing is due when it was renewed by hand meanwhile.
        let due = |now: Term| now.asked_at == term.asked_at;
        if renewal.is_some() && held.term().is_some_and(due) {
            renew(held.as_ref()).await;
        }
    }
}

/// One attempt at a call that may be tried again, on another connection if need be: a connection that is dead without a word answers nothing.
pub(crate) async fn attempt<T>(
    operation: &'static str,
    patience: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    let patience = patience.max(ATTEMPT_MIN);
    timeout(patience, call).await.unwrap_or_else(|_| {
        let text = format!("the database did not answer within {patience:?}");
        Err(Error::unanswered(operation, text))
    })
}

/// Renews until it worked, or it is over.
async fn renew<H: Held>(held: &H) {
    let pause = (held.duration() / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
    while let Some(term) = held.term() {
        let left = term.deadline.saturating_duration_since(clock::now());
        let patience = left / 2;
        let answer = tokio::select! {
            biased;
            () = held.over().cancelled() => return,
            // The deadline strikes whether or not the database answers.
            () = clock::sleep_until(term.deadline) => continue,
            answer = attempt(H::RENEWAL, patience, held.renew_once()) => answer,
        };
        let Err(error) = answer else { return };
        held.retrying(&error, pause);
        let next = (clock::now() + pause).min(term.deadline);
        if held.over().run_until_cancelled(clock::sleep_until(next)).await.is_none() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::error::ErrorKind;

    const DURATION: Duration = Duration::from_millis(200);

    /// Its renewals get no answer.
    struct Unanswered {
        term: Term,
        over: CancellationToken,
        tried: AtomicUsize,
        given_up: AtomicUsize,
    }

    impl Held for Unanswered {
        const RENEWAL: &'static str = "test.renew";

        fn term(&self) -> Option<Term> {
            if clock::now() >= self.term.deadline {
                self.over.cancel();
            }
            (!self.over.is_cancelled()).then_some(self.term)
        }
        fn duration(&self) -> Duration {
            DURATION
        }
        fn renewal(&self, asked_at: Instant) -> Option<Instant> {
            Some(asked_at + DURATION.mul_f64(0.6))
        }
        async fn renew_once(&self) -> Result<bool> {
            self.tried.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        }
        fn over(&self) -> &CancellationToken {
            &self.over
        }
        fn retrying(&self, _: &Error, _: Duration) {
            self.given_up.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[tokio::test]
    async fn a_call_that_hangs_is_given_up_and_known_as_such() {
        let hung = attempt::<()>("test.call", DURATION, std::future::pending()).await.unwrap_err();
        assert_eq!((hung.kind(), hung.is_retryable()), (ErrorKind::Unavailable, true));
        assert!(hung.is_unanswered());
        let refused = || Error::new(ErrorKind::Unavailable, "test.call", "no");
        let refused = attempt::<()>("test.call", DURATION, async { Err(refused()) }).await.unwrap_err();
        assert!(!refused.is_unanswered());
    }

    #[tokio::test]
    async fn a_renewal_that_hangs_does_not_hold_up_the_deadline() {
        // Once more where the machine stood still, so that nothing was tried.
        loop {
            let held = Arc::new(Unanswered {
                term: Term::new(clock::now(), DURATION),
                over: CancellationToken::new(),
                tried: AtomicUsize::new(0),
                given_up: AtomicUsize::new(0),
            });
            keep(Arc::clone(&held)).await;
            assert!(held.over.is_cancelled());
            if held.tried.load(Ordering::SeqCst) == 0 {
                continue;
            }
            // The attempt may last longer than what was left: nobody waited for its end.
            assert_eq!(held.given_up.load(Ordering::SeqCst), 0);
            return;
        }
    }
}
