//! What goes on behind a lease: renewing it in time, and noticing when that did not work.
//!
//! A renewal that fails or hangs extends nothing: the deadline stands. It is tried again, on another connection if need be, until
//! the deadline strikes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use crate::error::{Error, ErrorKind};

use super::LeaseOptions;
use super::holding::{Holding, Standing};

/// No attempt is given up sooner: a slow answer is better than none.
const ATTEMPT_MIN: Duration = Duration::from_millis(100);

/// Returns when the lease is over.
pub(super) async fn keep(holding: Arc<Holding>) {
    while let Some(standing) = holding.look() {
        let until = match holding.options.renew {
            true => renewal(&holding.options, standing.asked_at),
            false => standing.deadline,
        };
        if holding.over().run_until_cancelled(sleep_until(until)).await.is_none() {
            return;
        }
        // Nothing is due when it was renewed by hand meanwhile.
        let due = |now: &Standing| now.asked_at == standing.asked_at;
        if holding.options.renew && holding.look().as_ref().is_some_and(due) {
            renew(&holding).await;
        }
    }
}

/// Renews until it worked, or the lease is over.
async fn renew(holding: &Holding) {
    let pause = (holding.options.duration / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
    while let Some(standing) = holding.look() {
        let left = standing.deadline.saturating_duration_since(Instant::now());
        let patience = (left / 2).max(ATTEMPT_MIN);
        let attempt = timeout(patience, holding.renew());
        let answer = tokio::select! {
            answer = attempt => answer,
            // The deadline strikes whether or not the database answers.
            () = sleep_until(standing.deadline) => continue,
            () = holding.over().cancelled() => return,
        };
        let error = match answer {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error,
            Err(_) => {
                let text = format!("the database did not answer within {patience:?}");
                Error::new(ErrorKind::Unavailable, "lease.renew", text)
            }
        };
        holding.retrying(&error, pause);
        let next = (Instant::now() + pause).min(standing.deadline);
        if holding.over().run_until_cancelled(sleep_until(next)).await.is_none() {
            return;
        }
    }
}

/// When to renew what was asked for at `asked_at`: at its share of the duration, or by up to the jitter sooner.
fn renewal(options: &LeaseOptions, asked_at: Instant) -> Instant {
    let random = f64::from(Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX);
    asked_at + options.duration.mul_f64(options.renew_at - options.jitter * random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_proportional_and_only_makes_it_sooner() {
        let now = Instant::now();
        for duration in [Duration::from_millis(200), Duration::from_secs(3_600)] {
            let options = LeaseOptions::default().duration(duration);
            let mut times: Vec<f64> = (0..1_000)
                .map(|_| (renewal(&options, now) - now).as_secs_f64() / duration.as_secs_f64())
                .collect();
            times.sort_by(f64::total_cmp);
            assert!(times[0] >= 0.5 - 1e-6 && times[999] <= 0.6 + 1e-6, "{} to {}", times[0], times[999]);
            assert!(times[999] - times[0] > 0.05, "they are spread");
        }
    }
}
