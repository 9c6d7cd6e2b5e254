//! How much a request may ask for.

use std::time::Duration;

use mainstay_core::{Error, Result};

/// How much a request may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest body, in bytes, 1 KiB to 1 GiB. Defaults to 8 MiB.
    pub body_bytes: usize,
    /// How long a body may take to arrive, up to a day. Defaults to 30 s.
    pub body_timeout: Duration,
    /// How long a request may be worked on, beside the time it asks to wait for: up to a day. Defaults to 60 s.
    pub request_timeout: Duration,
    /// Messages in one batch, and claims in one settle, 1 to 100,000. Defaults to 1,000.
    pub batch: usize,
    /// The longest wait of a claim or for a lease, up to 10 min. Defaults to 60 s.
    pub wait: Duration,
    /// Requests that wait for work or for a lease at once, up to 100,000; one more is told to come again. Should be below the connections
    /// that there may be, so that others are answered. Defaults to 256.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 8 << 20,
            body_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(60),
            batch: 1_000,
            wait: Duration::from_secs(60),
            waiting: 256,
        }
    }
}

impl Limits {
    /// How much is put into one answer that has payloads, about.
    pub(crate) fn answer_bytes(&self) -> usize {
        self.body_bytes.saturating_mul(4)
    }

    /// Refuses what is outside its bounds, by its field.
    pub fn validate(&self) -> Result<()> {
        const LIMITS: &str = "server.limits";
        if !(1 << 10..=1 << 30).contains(&self.body_bytes) {
            let got = self.body_bytes;
            return Err(Error::invalid(
                LIMITS,
                "body_bytes",
                format_args!("must be 1 KiB to 1 GiB, got {got} bytes"),
            ));
        }
        for (field, time) in [("body_timeout", self.body_timeout), ("request_timeout", self.request_timeout)]
        {
            timeout(LIMITS, field, time)?;
        }
        if !(1..=100_000).contains(&self.batch) {
            return Err(Error::invalid(
                LIMITS,
                "batch",
                format_args!("must be 1 to 100,000, got {}", self.batch),
            ));
        }
        if self.waiting > 100_000 {
            let reason = format_args!("must be at most 100,000, got {}", self.waiting);
            return Err(Error::invalid(LIMITS, "waiting", reason));
        }
        if self.wait > Duration::from_secs(600) {
            return Err(Error::invalid(
                LIMITS,
                "wait",
                format_args!("must be at most 10 min, got {:?}", self.wait),
            ));
        }
        Ok(())
    }
}

/// Refuses a time that is none, or longer than a day: nobody waits for that, and clocks can't tell everything.
pub(crate) fn timeout(operation: &'static str, field: &'static str, time: Duration) -> Result<()> {
    let day = Duration::from_secs(86_400);
    if time.is_zero() || time > day {
        let reason = format_args!("must be above zero and at most a day (86400 s), got {time:?}");
        return Err(Error::invalid(operation, field, reason));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_no_clock_can_tell_is_refused() {
        assert!(Limits::default().validate().is_ok());
        for time in [Duration::ZERO, Duration::from_secs(86_401), Duration::from_secs(u64::MAX)] {
            let body = Limits { body_timeout: time, ..Limits::default() };
            assert_eq!(body.validate().unwrap_err().field(), Some("body_timeout"));
            let request = Limits { request_timeout: time, ..Limits::default() };
            assert_eq!(request.validate().unwrap_err().field(), Some("request_timeout"));
        }
    }
}
