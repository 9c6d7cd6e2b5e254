//! Jobs and their runs.

use std::time::Duration;

use metrics::{counter, histogram};

use crate::error::Error;
use crate::id::WorkItemId;
use crate::job::Job;
use crate::store::{Advanced, Dispatched, EndedRun};

use super::names;

pub(crate) fn job_registered(store: &str, job: &Job) {
    let Job { name, version, enabled, .. } = job;
    let next = job.next_nominal_at.map(tracing::field::display);
    tracing::info!(store, job = name, version, enabled, next, "the job is registered");
}

/// What somebody did to a job.
pub(crate) fn job_administered(store: &str, action: &'static str, job: &str) {
    tracing::info!(store, action, job, "changed by an operator");
    counter!(names::JOB_ADMINISTERED, "store" => store.to_owned(), "action" => action).increment(1);
}

/// A scheduler can't work with a job. Told once for each version of it.
pub(crate) fn job_rejected(store: &str, job: &str, error: &Error) {
    tracing::error!(store, job, %error, "the job can't be scheduled by this program");
}

/// A scheduler's work on a job has failed; the others go on.
/// A job was written, but not when it is due next.
pub(crate) fn job_not_planned(store: &str, job: &str, error: &Error) {
    tracing::warn!(store, job, %error, "the next time of the job is left to a scheduler");
}

pub(crate) fn job_failed(store: &str, job: &str, error: &Error, pause: Duration) {
    tracing::warn!(store, job, %error, ?pause, "the job is left alone for a while");
}

/// Runs were made of a job's occurrences; `late` of them were late, and `misfired` others were passed over.
pub(crate) fn materialised(store: &str, job: &str, advanced: &Advanced, late: u64, misfired: u64) {
    let (made, overlapped) = (advanced.made.len() as u64, advanced.skipped.len() as u64);
    let count = |name, count: u64| {
        if count > 0 {
            counter!(name, "store" => store.to_owned(), "job" => job.to_owned()).increment(count);
        }
    };
    let skip = |reason: &'static str, count: u64| {
        if count > 0 {
            tracing::warn!(store, job, reason, count, "occurrences were skipped");
            counter!(names::JOB_SKIPPED, "store" => store.to_owned(), "job" => job.to_owned(), "reason" => reason)
                .increment(count);
        }
    };
    for id in &advanced.made {
        tracing::info!(store, job, run = %id, "a run was made");
    }
    count(names::JOB_MATERIALISED, made);
    count(names::JOB_LATE, late.min(made));
    skip("misfire", misfired);
    skip("overlap", overlapped);
}

pub(crate) fn dispatched(store: &str, runs: &[Dispatched]) {
    for run in runs {
        let job = run.job.as_deref().unwrap_or("");
        tracing::info!(store, job, run = %run.id, late = ?run.late, "a run was dispatched");
        counter!(names::JOB_DISPATCHED, "store" => store.to_owned(), "job" => job.to_owned()).increment(1);
        histogram!(names::JOB_LATENESS_SECONDS, "store" => store.to_owned(), "job" => job.to_owned())
            .record(run.late);
    }
}

pub(crate) fn runs_ended(store: &str, runs: &[EndedRun]) {
    for EndedRun { id, job, outcome, ran } in runs {
        let outcome = outcome.as_str();
        tracing::info!(store, job, run = %id, outcome, ?ran, "a run is over");
        counter!(names::JOB_ENDED, "store" => store.to_owned(), "job" => job.clone(), "outcome" => outcome)
            .increment(1);
        if let Some(ran) = ran {
            histogram!(names::JOB_RUN_SECONDS, "store" => store.to_owned(), "job" => job.clone(), "outcome" => outcome)
                .record(*ran);
        }
    }
}

pub(crate) fn runs_purged(store: &str, count: u64) {
    if count > 0 {
        tracing::info!(store, count, "deleted runs past their retention");
        counter!(names::JOB_RUNS_PURGED, "store" => store.to_owned()).increment(count);
    }
}

/// What is only for reading was not noted; the work goes on.
pub(crate) fn run_not_noted(store: &str, run: WorkItemId, what: &'static str, error: &Error) {
    tracing::warn!(store, run = %run, what, %error, "could not be noted of the run");
}
