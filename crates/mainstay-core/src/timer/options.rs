//! How due timers are fired.

use std::time::Duration;

use crate::bounds::validate_batch;
use crate::error::{Error, Result};

const CONFIG: &str = "timers.options";

/// How due timers are fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerOptions {
    /// Timers fired per transaction, 1 to 100,000. Defaults to 200.
    pub batch: u32,
    /// The first wait when nothing is due; it doubles with every wait that ends for nothing. Defaults to 0.25 s.
    pub poll_min: Duration,
    /// The longest wait when nothing is due, at most 24 h. Defaults to 5 s. A nearer timer ends a wait at once, unless the
    /// database can't tell: then it fires up to this late. That is so behind a pooler which keeps notifications back.
    pub poll_max: Duration,
}

impl Default for TimerOptions {
    fn default() -> Self {
        Self { batch: 200, poll_min: Duration::from_millis(250), poll_max: Duration::from_secs(5) }
    }
}

impl TimerOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        validate_batch(CONFIG, self.batch)?;
        if self.poll_max > Duration::from_secs(24 * 3_600) {
            let got = self.poll_max;
            return Err(Error::invalid(
                CONFIG,
                "poll_max",
                format_args!("must be at most 24 h, got {got:?}"),
            ));
        }
        if self.poll_min.is_zero() || self.poll_max < self.poll_min {
            let (min, max) = (self.poll_min, self.poll_max);
            let reason = format_args!("must be above zero and at most poll_max, got {min:?} and {max:?}");
            return Err(Error::invalid(CONFIG, "poll_min", reason));
        }
        Ok(())
    }
}
