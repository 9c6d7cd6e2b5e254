//! The watchdog: looks at its own process's database now and then, and says what is bad.
//!
//! What is bad is said once, again when it gets worse, again after a while if it stays, and once when it is over. What comes and goes is
//! not said each time. The same is in the metrics, without a pause.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::runtime::{LastDone, Lifecycle, Service, every};
use crate::store::Provider;
use crate::telemetry;

use super::{Check, Health, HealthOptions, HealthStatus, Probe};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);

/// How often the watchdog looks, and how often it says the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct WatchdogOptions {
    /// How often to look, 1 s to 1 day. Defaults to 30 s.
    pub interval: Duration,
    /// How long what is bad and stays so is not said again, 1 s to 30 days. Defaults to 15 min.
    pub cool_down: Duration,
    /// What counts as bad. Defaults to those of [`HealthOptions`].
    pub health: HealthOptions,
}

impl Default for WatchdogOptions {
    fn default() -> Self {
        Self { interval: 30 * SECOND, cool_down: 900 * SECOND, health: HealthOptions::default() }
    }
}

impl WatchdogOptions {
    /// How often to look.
    #[must_use]
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }
    /// How long what is bad and stays so is not said again.
    #[must_use]
    pub fn cool_down(mut self, cool_down: Duration) -> Self {
        self.cool_down = cool_down;
        self
    }
    /// What counts as bad.
    #[must_use]
    pub fn health(mut self, options: HealthOptions) -> Self {
        self.health = options;
        self
    }

    /// Refuses what is out of bounds.
    pub fn validate(&self) -> Result<()> {
        for (field, value, most, bounds) in [
            ("interval", self.interval, DAY, "1 s to 1 day"),
            ("cool_down", self.cool_down, 30 * DAY, "1 s to 30 days"),
        ] {
            if !(SECOND..=most).contains(&value) {
                let reason = format_args!("must be {bounds}, got {value:?}");
                return Err(Error::invalid("watchdog.options", field, reason));
            }
        }
        self.health.validate()
    }
}

/// Looks, and says what is bad.
pub(crate) struct Watchdog {
    health: Health,
    options: WatchdogOptions,
    store: String,
    alarms: Mutex<Alarms>,
    last: LastDone,
}

impl Watchdog {
    pub(crate) fn new(health: Health, options: WatchdogOptions) -> Self {
        let store = health.provider.outbox().identifier().to_owned();
        Self { health, options, store, alarms: Mutex::default(), last: LastDone::default() }
    }

    /// Whether it is this database that it looks at.
    pub(super) fn watches(&self, provider: &Arc<dyn Provider>) -> bool {
        Arc::ptr_eq(&self.health.provider, provider)
    }

    pub(super) async fn look(&self) {
        let report = self.health.check(Probe::Full).await;
        let now = Instant::now();
        // It is whole whatever panicked beside it: one entry a check, each written at once.
        let mut alarms = self.alarms.lock().unwrap_or_else(PoisonError::into_inner);
        for check in &report.checks {
            telemetry::health_status(&self.store, check);
            if let Some(news) = alarms.note(check, now, self.options.cool_down) {
                telemetry::alarm(&self.store, check, news);
            }
        }
    }
}

#[async_trait]
impl Service for Watchdog {
    fn name(&self) -> &'static str {
        "watchdog"
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let chore = || async {
            self.look().await;
            Ok(())
        };
        every((self.options.interval, &self.last), &self.store, "watchdog", lifecycle, chore).await
    }
}

impl std::fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watchdog").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What is new about a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// It is bad, or worse than it was.
    Bad,
    /// It has stayed bad for long.
    StillBad,
    /// It is well again.
    Well,
}

/// What was said of each check.
#[derive(Debug, Default)]
struct Alarms(BTreeMap<&'static str, Alarm>);

#[derive(Debug, Clone, Copy)]
struct Alarm {
    /// How bad it was when that was said last.
    status: HealthStatus,
    at: Instant,
    /// Whether it was said since that it is well again.
    over: bool,
}

impl Alarms {
    fn note(&mut self, check: &Check, now: Instant, cool_down: Duration) -> Option<News> {
        let said = self.0.get_mut(check.name);
        if check.status <= HealthStatus::Healthy {
            let said = said.filter(|said| !said.over)?;
            said.over = true;
            return Some(News::Well);
        }
        let news = match said {
            None => News::Bad,
            Some(said) if check.status > said.status => News::Bad,
            // What comes and goes is as if it had stayed.
            Some(said) if now.saturating_duration_since(said.at) < cool_down => return None,
            Some(said) if said.over => News::Bad,
            Some(_) => News::StillBad,
        };
        self.0.insert(check.name, Alarm { status: check.status, at: now, over: false });
        Some(news)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Finding;
    use super::*;

    const COOL_DOWN: Duration = Duration::from_secs(900);

    fn check(status: HealthStatus) -> Check {
        Check::new("stuck", Finding::new(status, ""), Duration::ZERO)
    }

    /// What is said of these, one each minute.
    fn said(statuses: &[HealthStatus]) -> Vec<Option<News>> {
        let (mut alarms, begun) = (Alarms::default(), Instant::now());
        let at = |minute: usize| begun + 60 * SECOND * minute as u32;
        let note =
            |(minute, status): (usize, &HealthStatus)| alarms.note(&check(*status), at(minute), COOL_DOWN);
        statuses.iter().enumerate().map(note).collect()
    }

    #[test]
    fn what_is_bad_is_said_once_and_when_it_is_over() {
        use HealthStatus::{Degraded, Healthy, NotApplicable, Unhealthy};
        assert_eq!(said(&[Healthy, NotApplicable]), [None, None]);
        let spell = said(&[Degraded, Degraded, Unhealthy, Degraded, Healthy, Healthy]);
        assert_eq!(spell, [Some(News::Bad), None, Some(News::Bad), None, Some(News::Well), None]);
    }

    #[test]
    fn what_stays_bad_is_said_again_after_a_while() {
        let said = said(&[HealthStatus::Unhealthy; 32]);
        let minutes: Vec<_> = said.iter().enumerate().filter_map(|(at, news)| Some((at, (*news)?))).collect();
        assert_eq!(minutes, [(0, News::Bad), (15, News::StillBad), (30, News::StillBad)]);
    }

    #[test]
    fn what_comes_and_goes_is_not_said_each_time() {
        let flapping: Vec<_> = (0..20)
            .map(|n| if n % 2 == 0 { HealthStatus::Degraded } else { HealthStatus::Healthy })
            .collect();
        let said = said(&flapping);
        let news: Vec<_> = said.iter().enumerate().filter_map(|(at, news)| Some((at, (*news)?))).collect();
        assert_eq!(news, [(0, News::Bad), (1, News::Well), (16, News::Bad), (17, News::Well)]);
    }

    #[test]
    fn the_field_and_the_bound_are_named() {
        let options = WatchdogOptions::default();
        options.validate().unwrap();
        for (options, field) in [
            (options.interval(Duration::ZERO), "interval"),
            (options.cool_down(31 * DAY), "cool_down"),
            (options.health(HealthOptions::default().timeout(Duration::ZERO)), "timeout"),
        ] {
            assert_eq!(options.validate().unwrap_err().field(), Some(field));
        }
    }
}
