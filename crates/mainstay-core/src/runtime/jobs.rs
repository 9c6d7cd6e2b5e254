//! Sets up the scheduler and the jobs that are registered at the start.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::job::{JobDefinition, JobOptions, JobService, Jobs};
use crate::outbox::{Limits, Outbox, Retention};

use super::builder::positive;
use super::{Gauges, Reaper, RetentionSweep, RunRetention, Service, SweepClock};

/// Sets up jobs.
#[derive(Debug)]
#[must_use = "return it from the closure"]
pub struct JobsBuilder {
    definitions: Vec<JobDefinition>,
    /// Whether there is anything about jobs.
    wanted: bool,
    /// Whether this process is a scheduler, if that was said.
    schedule: Option<bool>,
    options: JobOptions,
    reap_interval: Option<Duration>,
    gauge_interval: Option<Duration>,
}

impl Default for JobsBuilder {
    fn default() -> Self {
        Self {
            definitions: Vec::new(),
            wanted: false,
            schedule: None,
            options: JobOptions::default(),
            reap_interval: Some(Duration::from_secs(60)),
            gauge_interval: Some(Duration::from_secs(30)),
        }
    }
}

impl JobsBuilder {
    /// Registers a job at the start, or changes the one of its name.
    pub fn define(mut self, job: JobDefinition) -> Self {
        self.definitions.push(job);
        self.wanted()
    }

    /// Whether this process makes the runs of jobs. Defaults to true once there is anything about jobs; with false it only registers
    /// its own, and another process has to be the scheduler.
    pub fn schedule(mut self, schedule: bool) -> Self {
        self.schedule = Some(schedule);
        self
    }

    pub(super) fn wanted(mut self) -> Self {
        self.wanted = true;
        self
    }

    /// Changes the scheduler's options.
    pub fn options(mut self, change: impl FnOnce(&mut JobOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// How long runs are remembered once they are over; none keeps all. Defaults to 90 days, failed ones for ever.
    pub fn retention(self, retention: Option<Retention>) -> Self {
        self.options(|options| options.retention = retention)
    }

    /// How often lapsed leases of claimed runs are freed; none switches it off. Defaults to 60 s.
    pub fn reap_every(mut self, interval: Option<Duration>) -> Self {
        self.reap_interval = interval;
        self
    }

    /// How often the gauges are published; none switches it off. Defaults to 30 s.
    pub fn gauges_every(mut self, interval: Option<Duration>) -> Self {
        self.gauge_interval = interval;
        self
    }

    /// Checks everything, adds the services, and gives what is to be registered. `runs` is the queue runs wait in.
    pub(super) fn build(
        self,
        jobs: &Jobs,
        runs: &Outbox,
        clock: impl Fn(&'static str) -> SweepClock,
        call_limit: Duration,
        services: &mut Vec<Arc<dyn Service>>,
    ) -> Result<Vec<JobDefinition>> {
        self.options.validate()?;
        let reap = positive("jobs' reap interval", self.reap_interval)?;
        let gauges = positive("jobs' gauge interval", self.gauge_interval)?;
        // Whether a NUL can be stored is for the provider to say, when the job is registered.
        let limits = Limits { nul_in_payload: true, ..Limits::default() };
        for definition in &self.definitions {
            definition.validate(&limits)?;
        }
        if self.schedule.unwrap_or(self.wanted) {
            services.push(Arc::new(JobService::new(jobs.clone(), self.options)?.with_call_limit(call_limit)));
            if let Some(interval) = reap {
                services.push(Arc::new(Reaper::new(runs.clone(), interval)));
            }
            if let Some(interval) = gauges {
                services.push(Arc::new(Gauges::new(runs.clone(), interval).of_runs()));
            }
            if let Some(retention) = self.options.retention {
                services.push(Arc::new(RunRetention::new(jobs.clone(), retention, clock("job_runs"))));
                // For what somebody has put into the queue by other ways; the queue's rows of our own runs go with them.
                services.push(Arc::new(RetentionSweep::new(runs.clone(), retention, clock("job_run_queue"))));
            }
        }
        Ok(self.definitions)
    }
}
