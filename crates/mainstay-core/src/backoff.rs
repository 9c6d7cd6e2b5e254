//! How long a failed message waits before it is tried again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The ceiling of the default policy.
const DEFAULT_CAP: Duration = Duration::from_secs(60);

/// A retry policy: from the number of retries so far to a delay.
///
/// Defaults to `min(2^retries, 60)` seconds: 1, 2, 4, 8, 16, 32, 60 (R7, OBX-062). Jitter is opt-in.
#[derive(Clone)]
pub struct Backoff {
    curve: Curve,
    jitter: f64,
}

#[derive(Clone)]
enum Curve {
    Exponential { base: Duration, cap: Duration },
    Fixed(Duration),
    Custom(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Default for Backoff {
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), DEFAULT_CAP)
    }
}

impl Backoff {
    /// `base * 2^retries`, never above `cap`.
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self::with_curve(Curve::Exponential { base, cap })
    }

    /// Always the same delay.
    pub fn fixed(delay: Duration) -> Self {
        Self::with_curve(Curve::Fixed(delay))
    }

    /// Any function of the number of retries so far (0 for the first failure).
    pub fn custom(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self::with_curve(Curve::Custom(Arc::new(delay)))
    }

    fn with_curve(curve: Curve) -> Self {
        Self { curve, jitter: 0.0 }
    }

    /// Spreads each delay over `delay ± fraction * delay`. Clamped to 0..=1. Defaults to 0.
    #[must_use]
    pub fn jitter(mut self, fraction: f64) -> Self {
        self.jitter = if fraction.is_finite() { fraction.clamp(0.0, 1.0) } else { 0.0 };
        self
    }

    /// The delay after a failure that was preceded by `retries` retries. Never zero: a delay of zero is not a
    /// delay, and the store refuses it.
    pub fn delay(&self, retries: u32) -> Duration {
        let delay = match &self.curve {
            Curve::Exponential { base, cap } => {
                let factor = 2u32.checked_pow(retries).unwrap_or(u32::MAX);
                base.checked_mul(factor).unwrap_or(*cap).min(*cap)
            }
            Curve::Fixed(delay) => *delay,
            Curve::Custom(delay) => delay(retries),
        };
        self.spread(delay).max(Duration::from_millis(1))
    }

    fn spread(&self, delay: Duration) -> Duration {
        if self.jitter == 0.0 {
            return delay;
        }
        // The random bits of a fresh UUIDv4 spare a dependency on a random number generator.
        let bits = uuid::Uuid::new_v4().as_u128() as u32;
        let unit = f64::from(bits) / f64::from(u32::MAX) * 2.0 - 1.0;
        Duration::try_from_secs_f64(delay.as_secs_f64() * (1.0 + self.jitter * unit)).unwrap_or(delay)
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let curve = match &self.curve {
            Curve::Exponential { base, cap } => format!("exponential from {base:?} to {cap:?}"),
            Curve::Fixed(delay) => format!("fixed at {delay:?}"),
            Curve::Custom(_) => "custom".to_owned(),
        };
        f.debug_struct("Backoff").field("curve", &curve).field("jitter", &self.jitter).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_doubles_from_one_second_to_sixty() {
        let backoff = Backoff::default();
        let seconds: Vec<u64> = (0..8).map(|n| backoff.delay(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.delay(u32::MAX), Duration::from_secs(60));
    }

    #[test]
    fn jitter_stays_within_its_fraction_and_is_off_unless_asked_for() {
        let plain = Backoff::fixed(Duration::from_secs(10));
        assert_eq!(plain.delay(3), Duration::from_secs(10));
        let spread = plain.jitter(0.5);
        for _ in 0..100 {
            let delay = spread.delay(0).as_secs_f64();
            assert!((5.0..=15.0).contains(&delay), "{delay}");
        }
    }

    #[test]
    fn a_delay_is_never_zero() {
        assert!(!Backoff::custom(|_| Duration::ZERO).delay(0).is_zero());
    }
}
