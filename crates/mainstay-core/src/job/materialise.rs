//! Making runs of the occurrences that have come.
//!
//! What is to be done is calculated from the job's row and the database's clock alone; the store does it only if the row is still
//! that one. So any number of schedulers may do this at once, and one that dies midway leaves nothing half done.

use jiff::Timestamp;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerToken, WorkItemId};
use crate::store::{Advance, JobStore, Occurrence};
use crate::telemetry;

use super::aside::Aside;
use super::{GRACE, Job, Plan, plan};

/// Jobs looked at per call to the database.
const JOBS: u32 = 100;

/// So many jobs that fail are the database's trouble and not theirs. They are set aside, so the next look begins with others.
const FAILURES: u32 = 3;

/// What a look at the jobs has brought.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Materialised {
    /// The runs made.
    pub runs: Vec<WorkItemId>,
    /// Occurrences that did not run because they were late, by their jobs' misfire policies.
    pub misfired: u64,
    /// Occurrences recorded as skipped because an earlier run was not over.
    pub overlapped: u64,
}

/// Makes a run of every occurrence that has come, by each job's policies. A job that fails is set aside, and the others go on.
pub(super) async fn materialise(
    store: &dyn JobStore,
    owner: OwnerToken,
    aside: &Aside,
) -> Result<Materialised> {
    let mut sum = Materialised::default();
    let mut failures = 0;
    let mut last: Option<Job> = None;
    loop {
        let mut due = store.due(owner, last.as_ref(), JOBS).await?;
        for job in due.jobs.iter().chain(&due.troubled).filter(|job| !aside.has(job)) {
            let Err(error) = advance(store, job, due.now, aside, &mut sum).await else { continue };
            let pause = aside.failed(job);
            telemetry::job_failed(store.identifier(), &job.name, &error, pause);
            failures += 1;
            if failures == FAILURES || error.kind() == ErrorKind::Closed {
                return Err(error);
            }
        }
        if due.jobs.len() < JOBS as usize {
            return Ok(sum);
        }
        last = due.jobs.pop();
    }
}

/// Gives a job that has none its next nominal time, as from its last change. None if it is disabled, or somebody was faster.
pub(super) async fn calculate_next(store: &dyn JobStore, job: &Job) -> Result<Option<Timestamp>> {
    if !job.enabled || job.next_nominal_at.is_some() {
        return Ok(job.next_nominal_at);
    }
    let Some(next) = job.schedule()?.next_after(job.updated_at) else { return Ok(None) };
    let step = Advance {
        job: job.name.clone(),
        version: job.version,
        expected: None,
        next,
        last: None,
        occurrences: Vec::new(),
    };
    Ok(store.advance(&step).await?.map(|_| next))
}

async fn advance(
    store: &dyn JobStore,
    job: &Job,
    now: Timestamp,
    aside: &Aside,
    sum: &mut Materialised,
) -> Result<()> {
    let identifier = store.identifier();
    let (step, plan) = match step(job, now) {
        Ok(planned) => planned,
        Err(error) => {
            if job.problem.is_none() {
                store.reject(&job.name, job.version, error.message()).await?;
            }
            if aside.unreadable(job) {
                telemetry::job_rejected(identifier, &job.name, &error);
            }
            return Ok(());
        }
    };
    // Otherwise somebody else has it, or has done it, or has changed the job.
    let Some(advanced) = store.advance(&step).await? else { return Ok(()) };
    aside.fine(job);
    let late = plan.occurrences.iter().filter(|nominal| now.duration_since(**nominal) > grace());
    telemetry::materialised(identifier, &job.name, &advanced, late.count() as u64, plan.skipped);
    sum.misfired += plan.skipped;
    sum.overlapped += advanced.skipped.len() as u64;
    sum.runs.extend(advanced.made);
    Ok(())
}

fn grace() -> jiff::SignedDuration {
    // A minute fits.
    jiff::SignedDuration::try_from(GRACE).unwrap_or_default()
}

/// What is to be done about a job, by the database's clock. An error if it can't be read, or never fires again.
fn step(job: &Job, now: Timestamp) -> Result<(Advance, Plan)> {
    let schedule = job.schedule()?;
    let over = || Error::new(ErrorKind::InvalidArgument, "job.plan", "cron never fires again");
    // One without a next time has been changed; it counts from then, so that nothing is lost while no scheduler runs.
    let first = match job.next_nominal_at {
        Some(next) => next,
        None => schedule.next_after(job.updated_at).ok_or_else(over)?,
    };
    let plan = plan(&schedule, first, now, job.misfire);
    let last = plan.occurrences.last().copied().or(Some(first)).filter(|last| *last <= now);
    let occurrence = |nominal: &Timestamp| Occurrence { nominal_at: *nominal, due_at: job.due_at(*nominal) };
    let step = Advance {
        job: job.name.clone(),
        version: job.version,
        expected: job.next_nominal_at,
        next: plan.next.ok_or_else(over)?,
        last,
        occurrences: plan.occurrences.iter().map(occurrence).collect(),
    };
    Ok((step, plan))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobDefinition;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn job(cron: &str, changed: &str) -> Job {
        Job::new(JobDefinition::new("n", "t", cron), at(changed))
    }

    #[test]
    fn a_new_job_counts_from_its_registration() {
        let hourly = job("@hourly", "2027-01-01T10:30:00Z");
        let (step, _) = step(&hourly, at("2027-01-01T10:31:00Z")).unwrap();
        assert_eq!((step.next, step.last), (at("2027-01-01T11:00:00Z"), None));
        assert!(step.occurrences.is_empty());
        // Registered while no scheduler was running: what came since then is late, and not lost.
        let (step, plan) = super::step(&hourly, at("2027-01-01T12:10:00Z")).unwrap();
        assert_eq!(step.occurrences.len(), 1);
        assert_eq!(step.occurrences[0].nominal_at, at("2027-01-01T12:00:00Z"));
        assert_eq!((step.next, step.last), (at("2027-01-01T13:00:00Z"), Some(at("2027-01-01T12:00:00Z"))));
        assert_eq!(plan.skipped, 1);
    }

    #[test]
    fn a_step_goes_from_what_was_planned_with() {
        let mut hourly = job("@hourly", "2027-01-01T10:30:00Z");
        hourly.next_nominal_at = Some(at("2027-01-01T11:00:00Z"));
        hourly.version = 7;
        let (step, _) = step(&hourly, at("2027-01-01T11:00:00.5Z")).unwrap();
        assert_eq!((step.version, step.expected), (7, hourly.next_nominal_at));
        assert_eq!(step.occurrences.len(), 1);
        assert_eq!(step.next, at("2027-01-01T12:00:00Z"));
    }

    #[test]
    fn a_job_that_cannot_be_read_is_refused() {
        let error = step(&job("nonsense", "2027-01-01T10:30:00Z"), at("2027-01-01T11:00:00Z")).unwrap_err();
        assert_eq!(error.field(), Some("cron"));
    }
}
