//! How a topic is handled, and how the dispatcher works as a whole.

use std::time::Duration;

use crate::backoff::Backoff;
use crate::error::{Error, Result};

use super::ClaimRequest;

const CONFIG: &str = "dispatcher.options";

/// How one topic is handled.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct TopicPolicy {
    /// Handlers of this topic at once, in this process. Defaults to none: only the total bounds it.
    pub concurrency: Option<usize>,
    /// Deliveries before the message is failed. Defaults to the dispatcher's delivery limit.
    pub attempts: Option<u32>,
    /// The delay after a failed attempt. Defaults to 1, 2, 4, … 60 s.
    pub backoff: Backoff,
    /// How long a handler may run before the attempt counts as failed. Defaults to none: the claim is renewed for as
    /// long as it takes.
    pub timeout: Option<Duration>,
}

impl TopicPolicy {
    /// Handlers of this topic at once, in this process.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = Some(handlers);
        self
    }
    /// Deliveries before the message is failed.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }
    /// The delay after a failed attempt.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }
    /// How long a handler may run.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Refuses zeros.
    pub fn validate(&self) -> Result<()> {
        if self.concurrency == Some(0) {
            return Err(Error::invalid(CONFIG, "topic concurrency", "must be at least 1, got 0"));
        }
        if let Some(attempts) = self.attempts {
            validate_attempts("topic attempts", attempts)?;
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(Error::invalid(CONFIG, "topic timeout", "must be above zero"));
        }
        Ok(())
    }
}

/// How the dispatcher works.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct DispatcherOptions {
    /// Handlers at once, in this process, 1 to 100,000. Defaults to 16.
    pub concurrency: usize,
    /// Rows per claim, 1 to 100,000. Defaults to 50.
    pub batch: u32,
    /// Messages held beyond those being handled, so that handlers never wait for a claim. Defaults to 100.
    pub prefetch: usize,
    /// How long a claim holds unless renewed: 1 ms to 24 h. Defaults to 30 s.
    pub lease: Duration,
    /// At which part of the lease it is renewed, above 0 and at most 0.8. Defaults to 0.6.
    pub renew_at: f64,
    /// Deliveries before a message is failed. Defaults to 10.
    pub delivery_limit: u32,
    /// The first wait when nothing is due; it doubles with every empty claim. Defaults to 0.25 s.
    pub poll_min: Duration,
    /// The longest wait when nothing is due and no notification comes. Defaults to 30 s.
    pub poll_max: Duration,
    /// How long running handlers may go on after a stop, at most 24 h. Defaults to 30 s.
    pub grace: Duration,
    /// How long a message without a handler in this process is put back for. Defaults to 60 s.
    pub no_handler_delay: Duration,
    /// Whether messages of topics without a handler here are left to others, instead of being put back for a while: right where others take
    /// them. Defaults to false.
    pub own_topics_only: bool,
}

impl Default for DispatcherOptions {
    fn default() -> Self {
        Self {
            concurrency: 16,
            batch: 50,
            prefetch: 100,
            lease: Duration::from_secs(30),
            renew_at: 0.6,
            delivery_limit: 10,
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(30),
            grace: Duration::from_secs(30),
            no_handler_delay: Duration::from_secs(60),
            own_topics_only: false,
        }
    }
}

impl DispatcherOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        let whole = |field, value: usize| {
            if (1..=100_000).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(CONFIG, field, format_args!("must be 1 to 100,000, got {value}")))
        };
        whole("concurrency", self.concurrency)?;
        whole("batch", self.batch as usize)?;
        whole("prefetch", self.prefetch.max(1))?;
        if self.lease < Duration::from_millis(1) || self.lease > Duration::from_secs(24 * 3_600) {
            let got = self.lease;
            return Err(Error::invalid(CONFIG, "lease", format_args!("must be 1 ms to 24 h, got {got:?}")));
        }
        // The rest of the lease must leave time for the renewal to arrive, and for another try.
        if !(self.renew_at > 0.0 && self.renew_at <= 0.8) {
            let got = self.renew_at;
            return Err(Error::invalid(
                CONFIG,
                "renew_at",
                format_args!("must be above 0 and at most 0.8, got {got}"),
            ));
        }
        validate_attempts("delivery_limit", self.delivery_limit)?;
        let day = Duration::from_secs(24 * 3_600);
        for (field, value) in
            [("grace", self.grace), ("poll_max", self.poll_max), ("no_handler_delay", self.no_handler_delay)]
        {
            if value > day {
                return Err(Error::invalid(
                    CONFIG,
                    field,
                    format_args!("must be at most 24 h, got {value:?}"),
                ));
            }
        }
        if self.poll_min.is_zero() || self.poll_max < self.poll_min {
            let (min, max) = (self.poll_min, self.poll_max);
            let reason = format_args!("must be above zero and at most poll_max, got {min:?} and {max:?}");
            return Err(Error::invalid(CONFIG, "poll_min", reason));
        }
        if self.no_handler_delay.is_zero() {
            return Err(Error::invalid(CONFIG, "no_handler_delay", "must be above zero"));
        }
        Ok(())
    }
}

fn validate_attempts(field: &'static str, attempts: u32) -> Result<()> {
    if (1..ClaimRequest::DELIVERY_LIMIT_MAX).contains(&attempts) {
        return Ok(());
    }
    Err(Error::invalid(CONFIG, field, format_args!("must be 1 to 999,999, got {attempts}")))
}
