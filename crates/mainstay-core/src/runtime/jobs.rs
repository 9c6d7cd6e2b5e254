//! Sets up the scheduler and the jobs that are registered at the start.

use std::sync::Arc;

use crate::error::Result;
use crate::job::{JobDefinition, JobOptions, JobService, Jobs};
use crate::outbox::{Limits, Retention};

use super::{RunRetention, Service};

/// Sets up jobs.
#[derive(Debug, Default)]
#[must_use = "return it from the closure"]
pub struct JobsBuilder {
    definitions: Vec<JobDefinition>,
    scheduling: bool,
    options: JobOptions,
}

impl JobsBuilder {
    /// Registers a job at the start, or changes the one of its name.
    pub fn define(mut self, job: JobDefinition) -> Self {
        self.definitions.push(job);
        self.scheduling()
    }

    /// Whether this process makes the runs of jobs. Defaults to true once there is anything about jobs; with false it only registers
    /// its own, and another process has to be the scheduler.
    pub fn schedule(mut self, schedule: bool) -> Self {
        self.scheduling = schedule;
        self
    }

    pub(super) fn scheduling(self) -> Self {
        self.schedule(true)
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

    /// Checks everything, adds the services, and gives what is to be registered.
    pub(super) fn build(
        self,
        jobs: &Jobs,
        services: &mut Vec<Arc<dyn Service>>,
    ) -> Result<Vec<JobDefinition>> {
        self.options.validate()?;
        // Whether a NUL can be stored is for the provider to say, when the job is registered.
        let limits = Limits { nul_in_payload: true, ..Limits::default() };
        for definition in &self.definitions {
            definition.validate(&limits)?;
        }
        if self.scheduling {
            services.push(Arc::new(JobService::new(jobs.clone(), self.options)?));
            if let Some(retention) = self.options.retention {
                services.push(Arc::new(RunRetention::new(jobs.clone(), retention)));
            }
        }
        Ok(self.definitions)
    }
}
