//! How a lease is acquired and kept.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::text::{validate_name, validate_nul};

const ACQUIRE: &str = "lease.acquire";

/// The shortest lease: below it, the round trips that keep it cost more than it is worth.
const DURATION_MIN: Duration = Duration::from_millis(100);

/// The longest lease: after a crash it is how long nobody else can have it.
const DURATION_MAX: Duration = Duration::from_secs(24 * 3_600);

/// The longest context, in characters.
const CONTEXT_MAX: usize = 4_096;

/// How a lease is acquired and kept.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LeaseOptions {
    /// How long it is held without a renewal, 100 ms to 24 h; also how long a crash keeps it from others. Defaults to 30 s.
    pub duration: Duration,
    /// Whether it is renewed in the background. Defaults to true.
    pub renew: bool,
    /// The share of the duration after which it is renewed, 0.1 to 0.9. Defaults to 0.6.
    pub renew_at: f64,
    /// The share of the duration by which a renewal may come sooner, at random, so that many holders don't renew at the same
    /// moment; 0 to below `renew_at`. Defaults to 0.1.
    pub jitter: f64,
    /// Who holds it, 1 to 255 characters. Defaults to none: host, process id and a random number.
    pub owner: Option<String>,
    /// A text for people who look at the lease, up to 4,096 characters. Defaults to none.
    pub context: Option<String>,
    /// Whether an owner may take the lease from an earlier instance of the same owner that still holds it. It is a new
    /// acquisition with a new epoch, and the earlier instance has lost the lease. Give it to owners whose name outlives a
    /// process, so that a restart need not wait until its own lease lapses. Defaults to false: held is held, whoever asks.
    pub reentrant: bool,
    /// How long to wait for a lease that somebody else holds. Defaults to zero: not at all.
    pub wait: Duration,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(30),
            renew: true,
            renew_at: 0.6,
            jitter: 0.1,
            owner: None,
            context: None,
            reentrant: false,
            wait: Duration::ZERO,
        }
    }
}

impl LeaseOptions {
    /// How long it is held without a renewal.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        self.duration = duration;
        self
    }
    /// Whether it is renewed in the background.
    #[must_use]
    pub fn renew(mut self, renew: bool) -> Self {
        self.renew = renew;
        self
    }
    /// The share of the duration after which it is renewed.
    #[must_use]
    pub fn renew_at(mut self, share: f64) -> Self {
        self.renew_at = share;
        self
    }
    /// The share of the duration by which a renewal may come sooner.
    #[must_use]
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }
    /// Who holds it.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }
    /// A text for people who look at the lease. An empty one is none.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into()).filter(|text| !text.is_empty());
        self
    }
    /// Whether an owner may take the lease from an earlier instance of the same owner.
    #[must_use]
    pub fn reentrant(mut self, reentrant: bool) -> Self {
        self.reentrant = reentrant;
        self
    }
    /// How long to wait for a lease that somebody else holds.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Refuses what is outside its bounds, by its field.
    pub fn validate(&self) -> Result<()> {
        if !(DURATION_MIN..=DURATION_MAX).contains(&self.duration) {
            let got = self.duration;
            return Err(Error::invalid(
                ACQUIRE,
                "duration",
                format_args!("must be 100 ms to 24 h, got {got:?}"),
            ));
        }
        if !(0.1..=0.9).contains(&self.renew_at) {
            let got = self.renew_at;
            return Err(Error::invalid(ACQUIRE, "renew_at", format_args!("must be 0.1 to 0.9, got {got}")));
        }
        if !(self.jitter >= 0.0 && self.jitter < self.renew_at) {
            let (most, got) = (self.renew_at, self.jitter);
            let reason = format_args!("must be at least 0 and below renew_at ({most}), got {got}");
            return Err(Error::invalid(ACQUIRE, "jitter", reason));
        }
        if let Some(owner) = &self.owner {
            validate_name(ACQUIRE, "owner", owner)?;
        }
        if let Some(context) = &self.context {
            validate_nul(ACQUIRE, "context", context)?;
            let got = context.chars().count();
            if got > CONTEXT_MAX {
                let reason = format_args!("must be at most 4,096 characters, got {got}");
                return Err(Error::invalid(ACQUIRE, "context", reason));
            }
        }
        Ok(())
    }

    /// When to renew what was asked for at `asked_at`: at its share of the duration, or by up to the jitter sooner.
    pub(super) fn renewal(&self, asked_at: Instant) -> Instant {
        let random = f64::from(Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX);
        asked_at + self.duration.mul_f64(self.renew_at - self.jitter * random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_bounds_is_refused_by_its_field() {
        let fine = LeaseOptions::default;
        for (options, field) in [
            (fine().duration(Duration::from_millis(99)), "duration"),
            (fine().duration(Duration::from_secs(24 * 3_600 + 1)), "duration"),
            (fine().renew_at(0.05), "renew_at"),
            (fine().renew_at(f64::NAN), "renew_at"),
            (fine().jitter(-0.1), "jitter"),
            (fine().jitter(0.6), "jitter"),
            (fine().jitter(f64::NAN), "jitter"),
            (fine().owner(""), "owner"),
            (fine().owner("ü".repeat(256)), "owner"),
            (fine().context("ü".repeat(4_097)), "context"),
            (fine().context("a\0b"), "context"),
        ] {
            assert_eq!(options.validate().unwrap_err().field(), Some(field), "{options:?}");
        }
        fine().duration(Duration::from_millis(200)).context("ü".repeat(4_096)).validate().unwrap();
        assert_eq!(fine().context("").context, None);
    }

    #[test]
    fn jitter_is_proportional_and_only_makes_it_sooner() {
        let now = Instant::now();
        for duration in [Duration::from_millis(200), Duration::from_secs(3_600)] {
            let options = LeaseOptions::default().duration(duration);
            let mut times: Vec<f64> = (0..1_000)
                .map(|_| (options.renewal(now) - now).as_secs_f64() / duration.as_secs_f64())
                .collect();
            times.sort_by(f64::total_cmp);
            assert!(times[0] >= 0.5 - 1e-6 && times[999] <= 0.6 + 1e-6, "{} to {}", times[0], times[999]);
            assert!(times[999] - times[0] > 0.05, "they are spread");
        }
    }
}
