//! Waiting a little longer each time.

use std::time::Duration;

/// The pause after a failed database call, first and longest.
pub(crate) const TROUBLE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The same while what is due is not for us. Short: meanwhile no notification is heard.
pub(crate) const BLOCKED: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(250));

/// A delay that doubles with every step and starts anew on success.
#[derive(Debug)]
pub struct Pause {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Pause {
    /// One that begins with `min` and grows to `max`.
    pub fn new((min, max): (Duration, Duration)) -> Self {
        Self { min, max, next: min }
    }

    /// The delay to wait now; the next one is twice as long.
    pub fn step(&mut self) -> Duration {
        let delay = self.next;
        self.next = (self.next * 2).min(self.max);
        delay
    }

    /// The delay that [`Self::step`] will give.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Begins with the shortest again.
    pub fn reset(&mut self) {
        self.next = self.min;
    }
}
