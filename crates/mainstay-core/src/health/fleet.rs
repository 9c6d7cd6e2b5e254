//! The health of many databases: each on its own, the worst first.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use serde::Serialize;

use crate::breaker::BreakerState;
use crate::error::Result;
use crate::fleet::{Fleet, StoreState, StoreStatus};
use crate::store::Provider;

use super::check::milliseconds;
use super::{Check, Finding, Health, HealthOptions, HealthReport, HealthStatus, Probe, Startup};

/// One database of many.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DatabaseHealth {
    /// Its id.
    pub id: String,
    /// What the checks found.
    #[serde(flatten)]
    pub report: HealthReport,
}

impl DatabaseHealth {
    /// A database of this id.
    pub fn new(id: impl Into<String>, report: HealthReport) -> Self {
        Self { id: id.into(), report }
    }

    /// One that could not be asked at all, and why.
    pub fn unreachable(id: impl Into<String>, probe: Probe, database: impl Into<String>, why: &str) -> Self {
        let finding = Finding::new(HealthStatus::Unhealthy, format!("the database can't be reached: {why}"));
        let finding = finding.advise("see whether it is up, and whether its address is right");
        let check = Check::new("connectivity", finding, Duration::ZERO);
        let mut report = HealthReport::new(probe, database, "unknown").with_checks(vec![check]);
        report.reached = Some(false);
        Self::new(id, report)
    }

    /// One that is not asked now, by what a fleet knows of it.
    fn known(store: &StoreStatus, probe: Probe, provider: &'static str) -> Self {
        let why = store.last_error.as_deref().unwrap_or_default();
        let finding = match (store.state, store.breaker) {
            (StoreState::Refused, _) => {
                return Self::unreachable(store.id.clone(), probe, store.id.clone(), why);
            }
            (StoreState::Elsewhere, _) => Finding::healthy("another process works on it"),
            (_, BreakerState::Open | BreakerState::HalfOpen) => {
                let text = format!("it has failed {} times in a row: {why}", store.failures);
                Finding::new(HealthStatus::Unhealthy, text)
                    .advise("see whether it is up, and whether its address and its schema are right")
            }
            _ if !store.known => Finding::unknown("it has not been looked at yet"),
            _ => Finding::healthy("it answered when it was last looked at"),
        };
        let check = Check::new("connectivity", finding, Duration::ZERO);
        let report = HealthReport::new(probe, store.id.clone(), provider).with_checks(vec![check]);
        Self::new(store.id.clone(), report).with_entry(store)
    }

    /// Adds a check of its entry if the fleet can't use it.
    fn with_entry(mut self, store: &StoreStatus) -> Self {
        if let Some(why) = &store.entry_error {
            let text = format!("its changed entry can't be used, and it runs by the previous one: {why}");
            let finding = Finding::new(HealthStatus::Degraded, text);
            let finding =
                finding.advise("fix its entry in the fleet's discovery; the next refresh tries it again");
            let mut checks = std::mem::take(&mut self.report.checks);
            checks.push(Check::new("entry", finding, Duration::ZERO));
            self.report = self.report.with_checks(checks);
        }
        self
    }
}

/// The health of many databases.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct FleetHealth {
    /// That of the worst database. Of a process that works on them: as [`Fleet::health`] says.
    pub status: HealthStatus,
    /// Where the process stands, if it is one that works on the databases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// How long all of it took; in milliseconds where it is serialised.
    #[serde(rename = "duration_ms", serialize_with = "milliseconds")]
    pub duration: Duration,
    /// The databases, the worst first, then by id.
    pub databases: Vec<DatabaseHealth>,
}

impl FleetHealth {
    /// Of these databases, which took so long.
    pub fn new(mut databases: Vec<DatabaseHealth>, duration: Duration) -> Self {
        databases.sort_by(|a, b| (Reverse(a.report.status), &a.id).cmp(&(Reverse(b.report.status), &b.id)));
        let status = HealthStatus::worst(databases.iter().map(|database| database.report.status));
        Self { status, startup: None, duration, databases }
    }

    /// Asks these databases, up to `at_once` (at least one) at a time. One that is down is told as that, and the others still are.
    /// Refuses options that are out of bounds.
    pub async fn check(
        databases: impl IntoIterator<Item = (String, Arc<dyn Provider>)>,
        probe: Probe,
        options: HealthOptions,
        at_once: usize,
    ) -> Result<Self> {
        let databases = databases.into_iter().map(|(id, provider)| (id, Health::new(provider)));
        Self::check_each(databases.collect(), probe, options, at_once).await
    }

    async fn check_each(
        databases: Vec<(String, Health)>,
        probe: Probe,
        options: HealthOptions,
        at_once: usize,
    ) -> Result<Self> {
        options.validate()?;
        let begun = Instant::now();
        let asked = databases.into_iter().map(|(id, health)| async move {
            let health = Health { options, ..health };
            DatabaseHealth::new(id, health.check(probe).await)
        });
        // Not kept as an iterator: the compiler can't see then that this may be spawned.
        let asked: Vec<_> = asked.collect();
        let databases = stream::iter(asked).buffer_unordered(at_once.max(1)).collect().await;
        Ok(Self::new(databases, begun.elapsed()))
    }

    /// The same as a process tells it that works on them and stands there.
    fn of_process(mut self, probe: Probe, startup: Startup) -> Self {
        let fit = |database: &DatabaseHealth| database.report.status.is_fit();
        // A load balancer must not take all tenants away because of one that is down.
        if probe == Probe::Ready && self.databases.iter().any(fit) {
            self.status = self.status.min(HealthStatus::Degraded);
        }
        self.status = self.status.max(startup.judge(probe).status);
        self.startup = Some(startup);
        self
    }

    /// The database of this id.
    pub fn database(&self, id: &str) -> Option<&HealthReport> {
        self.databases.iter().find(|database| database.id == id).map(|database| &database.report)
    }
}

impl Fleet {
    /// The health of this process and of all databases, asked through the fleet's budget, up to `at_once` (at least one) at a time. One
    /// that was refused is told with why.
    ///
    /// [`Probe::Live`] tells how the process stands and asks no database: a restart would heal none. [`Probe::Ready`] asks none either, and tells
    /// what is known, as [`Fleet::known_health`] does. The others ask all of them, and tell the worst.
    pub async fn health(&self, probe: Probe, options: HealthOptions, at_once: usize) -> Result<FleetHealth> {
        options.validate()?;
        let (begun, startup) = (Instant::now(), self.startup());
        if matches!(probe, Probe::Live | Probe::Ready) {
            return Ok(self.known_health(probe));
        }
        let known = self.ids().into_iter().filter_map(|id| {
            // One that is gone since is of the fleet no more.
            let provider = self.provider(id.as_str()).ok()?;
            let kept = self.mainstay(id.as_str()).ok()?.failed_kept();
            Some((id, Health::new(provider).keeping(kept)))
        });
        let known: Vec<_> = known.collect();
        let databases = FleetHealth::check_each(known, probe, options, at_once).await?.databases;
        let status = self.status();
        let checked = databases.into_iter().map(|database| match status.store(&database.id) {
            Some(store) => database.with_entry(store),
            None => database,
        });
        let refused = status.stores.iter().filter(|store| store.state == StoreState::Refused);
        let refused = refused.map(|store| {
            let why = store.last_error.as_deref().unwrap_or_default();
            DatabaseHealth::unreachable(store.id.clone(), probe, store.id.clone(), why)
        });
        let databases = checked.chain(refused).collect();
        Ok(FleetHealth::new(databases, begun.elapsed()).of_process(probe, startup))
    }

    /// What this process knows of itself and its databases, without asking one: those that it works on, or looks at now and then, it knows. For probes, which
    /// come often and from anybody: neither does one that is silent hold up the answer, nor does an answer wake those that rest.
    ///
    /// [`Probe::Live`] tells of no database. [`Probe::Ready`] is healthy once the databases are known; those that do not work degrade it, unless none does.
    pub fn known_health(&self, probe: Probe) -> FleetHealth {
        let (begun, startup) = (Instant::now(), self.startup());
        let stores = match probe {
            Probe::Live => Vec::new(),
            _ => self.status().stores,
        };
        let databases = stores.iter().map(|store| {
            let provider = self.provider(store.id.as_str()).map_or("unknown", |provider| provider.kind());
            DatabaseHealth::known(store, probe, provider)
        });
        FleetHealth::new(databases.collect(), begun.elapsed()).of_process(probe, startup)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(of: &[HealthStatus], probe: Probe, startup: Startup) -> HealthStatus {
        let databases = of.iter().enumerate().map(|(index, status)| {
            let check = Check::new("connectivity", Finding::new(*status, ""), Duration::ZERO);
            DatabaseHealth::new(index.to_string(), HealthReport::new(probe, "", "").with_checks(vec![check]))
        });
        FleetHealth::new(databases.collect(), Duration::ZERO).of_process(probe, startup).status
    }

    #[test]
    fn a_database_that_is_down_does_not_take_the_others_away() {
        use HealthStatus::{Degraded, Healthy, Unhealthy, Unknown};
        let running = Startup::Running;
        assert_eq!(fleet(&[Healthy, Healthy], Probe::Ready, running), Healthy);
        assert_eq!(fleet(&[Healthy, Unhealthy, Unknown], Probe::Ready, running), Degraded);
        assert_eq!(fleet(&[Unhealthy, Unhealthy], Probe::Ready, running), Unhealthy);
        assert_eq!(fleet(&[Healthy, Unhealthy], Probe::Full, running), Unhealthy);
        assert_eq!(fleet(&[], Probe::Ready, running), Healthy, "there are none to work on");
    }

    #[test]
    fn what_is_known_of_a_database_needs_no_asking() {
        use BreakerState::{Closed, HalfOpen, Open};
        use HealthStatus::{Healthy, Unhealthy, Unknown};
        let told = |state, breaker, known| {
            let store = StoreStatus {
                id: "a".to_owned(),
                state,
                breaker,
                since: jiff::Timestamp::UNIX_EPOCH,
                failures: 3,
                last_error: Some("refused".to_owned()),
                last_error_kind: None,
                in_hand: 0,
                watched: false,
                known,
                entry_error: None,
            };
            let health = DatabaseHealth::known(&store, Probe::Ready, "sqlite");
            let changed = StoreStatus { entry_error: Some("no such scheme".to_owned()), ..store };
            if changed.state != StoreState::Refused && health.report.status == Healthy {
                let health = DatabaseHealth::known(&changed, Probe::Ready, "sqlite");
                assert_eq!(health.report.status, HealthStatus::Degraded);
                assert!(health.report.checks[0].summary.contains("no such scheme"));
            }
            (health.report.status, health.report.checks[0].summary.contains("refused"))
        };
        assert_eq!(told(StoreState::Cold, Closed, true), (Healthy, false), "an error that is over");
        assert_eq!(told(StoreState::Cold, Closed, false), (Unknown, false));
        assert_eq!(told(StoreState::Warm, HalfOpen, true), (Unhealthy, true));
        assert_eq!(told(StoreState::Cold, Open, true), (Unhealthy, true));
        assert_eq!(told(StoreState::Refused, Open, true), (Unhealthy, true));
        assert_eq!(told(StoreState::Elsewhere, Closed, false), (Healthy, false));
    }

    #[test]
    fn before_the_databases_are_known_it_is_alive_and_not_ready() {
        assert_eq!(fleet(&[], Probe::Live, Startup::Starting), HealthStatus::Healthy);
        for probe in [Probe::Ready, Probe::Full] {
            assert_eq!(fleet(&[], probe, Startup::Starting), HealthStatus::Unhealthy);
            assert_eq!(fleet(&[HealthStatus::Healthy], probe, Startup::Stopping), HealthStatus::Unhealthy);
        }
    }
}
