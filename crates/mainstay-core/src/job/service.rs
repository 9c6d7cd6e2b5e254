//! The scheduler: makes runs when their time comes, puts their messages into the outbox, and notes how they ended.
//!
//! Any number may run, in one process or in many: each step is one transaction that compares before it writes, so they share the
//! work and never double it. Between two steps nothing is held, and whoever dies leaves nothing that another does not pick up.
//! There is no tick: it sleeps until the next job or run is due, or until somebody changes something.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::id::OwnerToken;
use crate::outbox::Retention;
use crate::renewing::{TURN_LIMIT, attempt};
use crate::runtime::{Lifecycle, Service, Turn, Waited, Watch};
use crate::store::RunPlace;

use super::{Jobs, Materialised};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The rest between two looks for runs that are over.
const SWEEP: Duration = Duration::from_secs(5);

/// How far a scheduler has come looking for runs that are over.
#[derive(Debug, Default)]
struct Sweep {
    /// Where it goes on from; none is the beginning.
    place: Option<RunPlace>,
    /// It has just looked and found nothing.
    rests_until: Option<Instant>,
}

/// How a scheduler works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobOptions {
    /// Runs dispatched per transaction, 1 to 10,000. Defaults to 100.
    pub batch: u32,
    /// The first wait when nothing is due; it doubles as long as nothing happens. Defaults to 0.25 s. Only where the database
    /// can't notify (through a pooler) does it matter: a job that another process has changed is seen after it.
    pub poll_min: Duration,
    /// The longest wait when nothing is due and no notification comes, at most 24 h. Defaults to 30 s.
    pub poll_max: Duration,
    /// How long runs are remembered once they are over; none keeps all. Defaults to 90 days, failed ones for ever.
    pub retention: Option<Retention>,
}

impl Default for JobOptions {
    fn default() -> Self {
        Self {
            batch: 100,
            poll_min: Duration::from_millis(250),
            poll_max: Duration::from_secs(30),
            retention: Some(Retention::default().done(Some(90 * DAY))),
        }
    }
}

impl JobOptions {
    /// Refuses values outside their bounds.
    pub fn validate(&self) -> Result<()> {
        const CONFIG: &str = "job.options";
        if !(1..=10_000).contains(&self.batch) {
            let got = self.batch;
            return Err(Error::invalid(CONFIG, "batch", format_args!("must be 1 to 10,000, got {got}")));
        }
        let (min, max) = (self.poll_min, self.poll_max);
        if min.is_zero() || max < min || max > DAY {
            let reason = format_args!(
                "must be above zero and at most poll_max, which is at most 24 h, got {min:?} and {max:?}"
            );
            return Err(Error::invalid(CONFIG, "poll_min", reason));
        }
        self.retention.map_or(Ok(()), |retention| retention.validate())
    }
}

/// The scheduler. See [`Service`] for how it starts and stops.
#[derive(Debug)]
pub struct JobService {
    jobs: Jobs,
    options: JobOptions,
    call_limit: Duration,
}

impl JobService {
    pub(crate) const NAME: &'static str = "scheduler";

    /// A scheduler of these jobs.
    pub fn new(jobs: Jobs, options: JobOptions) -> Result<Self> {
        options.validate()?;
        Ok(Self { jobs, options, call_limit: TURN_LIMIT })
    }

    /// Gives each call up after so long. Defaults to 60 s.
    #[must_use]
    pub(crate) fn with_call_limit(mut self, limit: Duration) -> Self {
        self.call_limit = limit;
        self
    }

    /// Does everything that is to be done now.
    async fn turn(&self, owner: OwnerToken, sweep: &Mutex<Sweep>) -> Result<Turn> {
        // Each whatever became of the one before, and each with its own time limit.
        let made = attempt("job.materialise", self.call_limit, self.jobs.materialise(owner)).await;
        let dispatched =
            attempt("job.dispatch", self.call_limit, self.jobs.dispatch(owner, self.options.batch)).await;
        let swept = attempt("job.collect", self.call_limit, self.sweep(sweep)).await;
        let (made, dispatched, more) = (made?, dispatched?, swept?);
        Ok(match made == Materialised::default() && dispatched.is_empty() {
            _ if more => Turn::More,
            true => Turn::Nothing,
            false => Turn::Done,
        })
    }

    /// Notes the ends of runs that nobody else has noted: workers do for theirs, unless they die. Looks at some of those that are
    /// under way, and now and then only. Whether it is worth looking on at once.
    async fn sweep(&self, sweep: &Mutex<Sweep>) -> Result<bool> {
        // One turn at a time, so nobody waits here.
        let mut sweep = sweep.lock().await;
        if sweep.rests_until.is_some_and(|until| Instant::now() < until) {
            return Ok(false);
        }
        let place = sweep.place.take();
        let (ended, next) = self.jobs.collect_some(place.as_ref()).await?;
        let more = !ended.is_empty() && next.is_some();
        sweep.place = next;
        sweep.rests_until = (!more).then(|| Instant::now() + SWEEP);
        Ok(more)
    }
}

#[async_trait]
impl Service for JobService {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    async fn run(&self, lifecycle: Lifecycle) -> Result<()> {
        let watch = Watch {
            waited: Waited::Jobs(self.jobs.store().as_ref()),
            service: self.name(),
            operation: "schedule",
            poll: (self.options.poll_min, self.options.poll_max),
            call_limit: self.call_limit,
        };
        let sweep = Mutex::default();
        watch.run(&lifecycle, |owner| self.turn(owner, &sweep)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_bounded() {
        let field = |options: JobOptions| options.validate().unwrap_err().field().unwrap();
        let fine = JobOptions::default();
        fine.validate().unwrap();
        assert_eq!(field(JobOptions { batch: 0, ..fine }), "batch");
        assert_eq!(field(JobOptions { poll_min: Duration::ZERO, ..fine }), "poll_min");
        assert_eq!(field(JobOptions { poll_max: 2 * DAY, ..fine }), "poll_min");
        let retention = Some(Retention::default().batch(0));
        assert_eq!(field(JobOptions { retention, ..fine }), "batch");
    }
}
