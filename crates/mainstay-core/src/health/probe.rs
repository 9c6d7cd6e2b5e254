//! Asking a database, check by check.
//!
//! First whether it answers, then for its schema, then everything else side by side. Each has its own time, so the whole takes at most
//! three times that. What can't be asked is told as not known. Nothing here writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join_all, join4};
use serde::Serialize;

use crate::error::{Error, Result};
use crate::runtime::Mainstay;
use crate::store::{HealthStore, Provider, Queue};

use super::check::told;
use super::doctor::OF_THE_SURROUNDINGS;
use super::{
    Check, FailedKept, Finding, HealthOptions, HealthReport, StartupState, WorkSeen, connectivity, expiring,
    leases, overdue, paused, schema, stuck, workers,
};

/// What is to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// Whether it lives. Of a process: whether its services run, whatever the database does, since a restart would not help that. Of a
    /// database: whether it answers.
    Live,
    /// Whether it can work: it has started, the database answers, and the schema is the right one.
    Ready,
    /// All there is to tell.
    #[default]
    Full,
    /// All that, and what is around it: clocks, rights, the pooler, open transactions, waste, how far topics lag. Takes longer than a
    /// probe has time for.
    Doctor,
}

impl Probe {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Ready => "ready",
            Self::Full => "full",
            Self::Doctor => "doctor",
        }
    }
}

/// The checks that need the schema, in the order in which they are told.
const OF_THE_TABLES: [&str; 10] = [
    "workers",
    "stuck",
    "overdue.outbox",
    "overdue.inbox",
    "overdue.timers",
    "overdue.job_runs",
    "overdue.jobs",
    "overdue.joins",
    "leases",
    "paused",
];

/// The health of one database, and of the process that works on it.
#[derive(Clone)]
pub struct Health {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) startup: Option<Arc<StartupState>>,
    pub(super) options: HealthOptions,
    /// For how long this process keeps failed messages.
    pub(super) kept: FailedKept,
}

impl Health {
    /// Of a database, as anybody sees it.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider, startup: None, options: HealthOptions::default(), kept: FailedKept::default() }
    }

    /// Of this process and its database.
    pub fn of(mainstay: &Mainstay) -> Self {
        let startup = Some(Arc::clone(mainstay.startup_state()));
        Self { startup, ..Self::new(Arc::clone(mainstay.provider())).keeping(mainstay.failed_kept()) }
    }

    /// The same where failed messages are deleted after so long.
    pub(crate) fn keeping(mut self, kept: FailedKept) -> Self {
        self.kept = kept;
        self
    }

    /// The same with other limits. Refuses what is out of bounds.
    pub fn with_options(mut self, options: HealthOptions) -> Result<Self> {
        options.validate()?;
        self.options = options;
        Ok(self)
    }

    /// Asks. Always answers, within three times the time limit; four where retention deletes failed messages, and as a doctor eight.
    pub async fn check(&self, probe: Probe) -> HealthReport {
        let begun = Instant::now();
        let database = self.provider.outbox().identifier().to_owned();
        let mut report = HealthReport::new(probe, database, self.provider.kind());
        let mut checks = Vec::new();
        let mut of_database = true;
        if let Some(startup) = &self.startup {
            let state = startup.get();
            report.startup = Some(state);
            checks.push(Check::new("startup", state.judge(probe), Duration::ZERO));
            of_database = probe != Probe::Live;
        }
        if of_database {
            report.reached = Some(self.ask_database(probe, &mut checks).await);
        }
        report.with_checks(checks).took(begun.elapsed())
    }

    /// Whether the database answered.
    async fn ask_database(&self, probe: Probe, checks: &mut Vec<Check>) -> bool {
        let begun = Instant::now();
        let answer = tokio::time::timeout(self.options.timeout, self.provider.now()).await.ok();
        let took = begun.elapsed();
        let reached = matches!(answer, Some(Ok(_)));
        let finding = connectivity::judge(answer.as_ref(), took, &self.options);
        checks.push(Check::new("connectivity", finding, took));
        if probe == Probe::Live {
            return reached;
        }
        if !reached {
            checks.push(not_asked("schema", "the database can't be reached"));
            checks.extend(of_the_tables(probe).map(|name| not_asked(name, "the database can't be reached")));
            return false;
        }
        let store = self.provider.schema();
        let (status, took) = self.ask(store.status()).await;
        let finding = status.as_ref().map_or_else(Clone::clone, schema::judge);
        checks.push(Check::new("schema", finding, took));
        match status {
            _ if probe < Probe::Full => {}
            // Only a compatible program knows what the tables hold.
            Ok(other) if !other.is_usable() => {
                let why = "the schema is not this program's";
                checks.extend(of_the_tables(probe).map(|name| not_asked(name, why)));
            }
            // It may be the one thing that can't be told.
            Ok(_) | Err(_) => {
                self.ask_tables(checks).await;
                if probe == Probe::Doctor {
                    self.ask_surroundings(checks).await;
                }
            }
        }
        true
    }

    async fn ask_tables(&self, checks: &mut Vec<Check>) {
        let (store, patience) = (self.provider.health(), self.options.patience());
        let work = join_all(Queue::ALL.map(|queue| self.ask_queue(&*store, queue)));
        let ((work, work_took), (schedule, schedule_took), (held, held_took), (resting, resting_took)) =
            join4(
                timed(work),
                self.ask(store.schedule(&patience)),
                self.ask(store.leases(&patience)),
                self.ask(paused::seen(&*self.provider)),
            )
            .await;
        let options = &self.options;
        let (seen, times): (Vec<_>, Vec<_>) = work.into_iter().unzip();
        checks.push(Check::new("workers", workers::judge(&seen, options), work_took));
        checks.push(Check::new("stuck", stuck::judge(&seen, options), work_took));
        for ((queue, seen), took) in seen.iter().zip(times) {
            let finding = match seen {
                Ok(seen) => overdue::judge_queue(*queue, seen, options),
                Err(finding) => finding.clone(),
            };
            checks.push(Check::new(overdue::name(*queue), finding, took));
        }
        let of_schedule = |judge: fn(&_, &HealthOptions) -> Finding| match &schedule {
            Ok(seen) => judge(seen, options),
            Err(finding) => finding.clone(),
        };
        checks.push(Check::new("overdue.jobs", of_schedule(overdue::judge_jobs), schedule_took));
        checks.push(Check::new("overdue.joins", of_schedule(overdue::judge_joins), schedule_took));
        let finding = held.as_ref().map_or_else(Clone::clone, leases::judge);
        checks.push(Check::new("leases", finding, held_took));
        let finding = resting.map_or_else(|finding| finding, |topics| paused::judge(&topics));
        checks.push(Check::new("paused", finding, resting_took));
        if self.kept.ends() {
            let (seen, took) = self.ask(expiring::count(&*self.provider, self.kept, options)).await;
            let finding = seen.map_or_else(|finding| finding, |seen| expiring::judge(seen, options));
            checks.push(Check::new("expiring", finding, took));
        }
    }

    async fn ask_queue(
        &self,
        store: &dyn HealthStore,
        queue: Queue,
    ) -> ((Queue, Result<WorkSeen, Finding>), Duration) {
        let patience = self.options.patience();
        let (seen, took) = self.ask(store.work(queue, &patience)).await;
        ((queue, seen), took)
    }

    /// An answer, or why there is none, and how long that took.
    pub(super) async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, Error>>,
    ) -> (Result<T, Finding>, Duration) {
        let (answer, took) = timed(tokio::time::timeout(self.options.timeout, question)).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| Finding::failed(&error)),
            Err(_) => Err(Finding::unknown(format!("no answer within {}", told(self.options.timeout)))
                .advise("see what keeps the database busy, or holds a lock on its tables; a longer time limit may help")),
        };
        (answer, took)
    }
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Health").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What needs the schema, of all that is asked.
fn of_the_tables(probe: Probe) -> impl Iterator<Item = &'static str> {
    let (tables, surroundings): (&[_], &[_]) = match probe {
        Probe::Live | Probe::Ready => (&[], &[]),
        Probe::Full => (&OF_THE_TABLES, &[]),
        Probe::Doctor => (&OF_THE_TABLES, &OF_THE_SURROUNDINGS),
    };
    tables.iter().chain(surroundings).copied()
}

fn not_asked(name: &'static str, why: &str) -> Check {
    Check::new(name, Finding::unknown(format!("not looked at: {why}")), Duration::ZERO)
}

async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let begun = Instant::now();
    let done = work.await;
    (done, begun.elapsed())
}
