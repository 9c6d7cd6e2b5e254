//! The application's handle on jobs.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerToken, WorkItemId};
use crate::outbox::{Limits, Page, Retention};
use crate::runtime::{SweepClock, purge_pages};
use crate::store::{Dispatched, EndedRun, JobStore, RunPlace};
use crate::telemetry;
use crate::text::{validate_name, validate_nul};

use super::aside::Aside;
use super::materialise::{calculate_next, materialise};
use super::{Expected, Job, JobDefinition, JobRun, Materialised, Registered, RunFilter};

/// How often a change is tried whose job somebody else changes at the same moment.
const ATTEMPTS: u32 = 10;

/// Rows per call to the database where all of them are wanted.
const PAGE: u32 = 500;

/// The application's handle on jobs. Cheap to clone.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless.
#[derive(Clone)]
pub struct Jobs {
    store: Arc<dyn JobStore>,
    limits: Limits,
    /// Shared by all clones.
    aside: Arc<Aside>,
    bell: Bell,
    /// Who changes things by hand.
    actor: Actor,
}

impl Jobs {
    /// The longest output of a run, in bytes.
    pub const OUTPUT_MAX: usize = 64 << 10;

    /// Jobs over a provider's store.
    pub fn new(store: Arc<dyn JobStore>) -> Self {
        let limits = Limits { nul_in_payload: store.capabilities().nul_in_payload, ..Limits::default() };
        let (aside, bell, actor) = (Arc::default(), Bell::default(), Actor::library());
        Self { store, limits, aside, bell, actor }
    }

    /// Bounds payloads to this many bytes. Defaults to 64 MiB.
    #[must_use]
    pub fn with_payload_limit(mut self, bytes: usize) -> Self {
        self.limits.payload_bytes = bytes;
        self
    }

    /// Rings when jobs or runs have been added or changed.
    #[must_use]
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.bell = bell;
        self
    }

    /// The same handle for somebody: what it changes by hand is recorded in the audit trail as theirs. Defaults to
    /// [`Actor::library`].
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        Self { actor: actor.into(), ..self.clone() }
    }

    /// The provider's store.
    pub fn store(&self) -> &Arc<dyn JobStore> {
        &self.store
    }

    /// Registers a job, or changes the one of its name. Runs that are made from now on follow the new definition; those that
    /// are there already stay as they are.
    ///
    /// The next nominal time stays too, unless expression or zone changed, or the job was disabled: then it is the first one
    /// from now on. Registering a job as it is changes nothing, so every start of a program may do it.
    ///
    /// Whatever is there is changed. Whoever has read a job to change it uses [`Self::update`], and whoever makes a new one
    /// [`Self::register`].
    pub async fn create_or_update(&self, job: JobDefinition) -> Result<Job> {
        Ok(self.register(job, Expected::Anything).await?.job)
    }

    /// The same, if what is there is what is expected: [`Expected::Nothing`] makes a new job and leaves one that is there alone.
    ///
    /// Otherwise nothing is written, and the error is of [`ErrorKind::Mismatch`] and has a [`super::JobMismatch`] as its source,
    /// which tells the version that is there. The database compares in the step that writes, so of two who register the same
    /// name at once, one is told that it exists.
    pub async fn register(&self, job: JobDefinition, expected: Expected) -> Result<Registered> {
        let prepared = job.prepare(&self.limits)?;
        self.actor.validate("job.create_or_update")?;
        let mut registered = self.store.upsert(&prepared, expected, &self.actor).await?;
        let job = &mut registered.job;
        job.next_nominal_at = self.plan(job).await;
        telemetry::job_registered(self.store.identifier(), job);
        self.bell.ring();
        Ok(registered)
    }

    /// The next nominal time of a job that was just written. It is written whatever becomes of this, so a failure here is none of the
    /// registration's: what is given up a scheduler does.
    async fn plan(&self, job: &Job) -> Option<Timestamp> {
        let planned = async {
            let next = calculate_next(self.store.as_ref(), job).await?;
            if next.is_some() || !job.enabled {
                return Ok(next);
            }
            // Somebody was faster. What they did to this very job is told; what became of it later is not.
            let now = self.store.get(&job.name).await?;
            Ok(now.filter(|now| Expected::from(job).is_met_by(Some(now))).and_then(|now| now.next_nominal_at))
        };
        planned.await.unwrap_or_else(|error: Error| {
            telemetry::job_not_planned(self.store.identifier(), &job.name, &error);
            None
        })
    }

    /// Changes a job: `change` makes the new definition of the job as it is, best with [`Job::definition`].
    ///
    /// It is called again with the job as it is then, up to ten times, should somebody else change, enable or disable the job at
    /// the same moment; so nobody's change is lost, and it should do nothing but calculate. `NotFound` if there is no such job,
    /// also if it is deleted meanwhile.
    ///
    /// ```
    /// # use mainstay_core::job::{Jobs, Registered};
    /// # async fn example(jobs: &Jobs) -> mainstay_core::Result<Registered> {
    /// jobs.update("nightly", |job| mainstay_core::Result::Ok(job.definition().cron("0 3 * * *"))).await
    /// # }
    /// ```
    pub async fn update<E: From<Error>>(
        &self,
        name: &str,
        mut change: impl FnMut(&Job) -> Result<JobDefinition, E>,
    ) -> Result<Registered, E> {
        const UPDATE: &str = "job.update";
        validate_name(UPDATE, "name", name)?;
        let unknown = || Error::new(ErrorKind::NotFound, UPDATE, format!("there is no job {name:?}"));
        let mut attempt = 1;
        loop {
            let before = self.store.get(name).await?.ok_or_else(unknown)?;
            let definition = change(&before)?;
            if definition.name != name {
                let reason = format_args!("must stay {name:?}, got {:?}", definition.name);
                return Err(Error::invalid(UPDATE, "name", reason).into());
            }
            match self.register(definition, Expected::from(&before)).await {
                Err(error) if error.kind() == ErrorKind::Mismatch && attempt < ATTEMPTS => attempt += 1,
                ended => return Ok(ended?),
            }
        }
    }

    /// Deletes a job and cancels its pending runs, those that are not dispatched yet. Its history stays. How many runs were
    /// cancelled; none if there is no such job.
    pub async fn delete(&self, name: &str) -> Result<Option<u64>> {
        validate_name("job.delete", "name", name)?;
        self.actor.validate("job.delete")?;
        let cancelled = self.store.delete(name, &self.actor).await?;
        if cancelled.is_some() {
            telemetry::job_administered(self.store.identifier(), "delete", name);
        }
        Ok(cancelled)
    }

    /// Enables a job. It goes on from now: what it missed while it was disabled does not run. Whether that changed anything;
    /// `NotFound` if there is no such job.
    pub async fn enable(&self, name: &str) -> Result<bool> {
        validate_name("job.enable", "name", name)?;
        self.actor.validate("job.enable")?;
        let changed = self.store.set_enabled(name, true, &self.actor).await?;
        if changed {
            match self.store.get(name).await {
                Ok(Some(job)) => drop(self.plan(&job).await),
                Ok(None) => {}
                Err(error) => telemetry::job_not_planned(self.store.identifier(), name, &error),
            }
            telemetry::job_administered(self.store.identifier(), "enable", name);
            self.bell.ring();
        }
        Ok(changed)
    }

    /// Disables a job. Runs that are there already go on. Whether that changed anything; `NotFound` if there is no such job.
    pub async fn disable(&self, name: &str) -> Result<bool> {
        validate_name("job.disable", "name", name)?;
        self.actor.validate("job.disable")?;
        let changed = self.store.set_enabled(name, false, &self.actor).await?;
        if changed {
            telemetry::job_administered(self.store.identifier(), "disable", name);
        }
        Ok(changed)
    }

    /// One job.
    pub async fn get(&self, name: &str) -> Result<Option<Job>> {
        validate_name("job.get", "name", name)?;
        self.store.get(name).await
    }

    /// Jobs by name, up to `limit` (1 to 10,000) of those whose names come after `after`. With their payloads, so mind their size.
    pub async fn list(&self, after: Option<&str>, limit: u32) -> Result<Vec<Job>> {
        const LIST: &str = "job.list";
        if !(1..=10_000).contains(&limit) {
            return Err(Error::invalid(LIST, "limit", format_args!("must be 1 to 10,000, got {limit}")));
        }
        self.store.list(after, limit).await
    }

    /// Makes a run now, whether the job is enabled or not. `NotFound` if there is no such job.
    ///
    /// The job's overlap policy holds here too: with [`super::Overlap::Skip`] the run that comes back is
    /// [`super::RunState::Skipped`] while an earlier one is not over.
    pub async fn trigger(&self, name: &str) -> Result<JobRun> {
        validate_name("job.trigger", "name", name)?;
        self.actor.validate("job.trigger")?;
        let run = self.store.trigger(name, &self.actor).await?;
        telemetry::job_administered(self.store.identifier(), "trigger", name);
        self.bell.ring();
        Ok(run)
    }

    /// Runs that match, newest nominal time first, under way or over.
    pub async fn runs(&self, filter: &RunFilter, page: Page) -> Result<Vec<JobRun>> {
        page.validate()?;
        let found = self.store.runs(filter, page).await?;
        if let Some(last) = page.before
            && found.is_empty()
            && self.store.run(last).await?.is_none()
        {
            return Err(Error::page_lost("job.runs", "before"));
        }
        Ok(found)
    }

    /// One run.
    pub async fn run(&self, id: WorkItemId) -> Result<Option<JobRun>> {
        self.store.run(id).await
    }

    /// Keeps a text with a run, for people to read; the last one counts. At most 64 KiB. `NotFound` if there is no such run.
    pub async fn record_output(&self, run: WorkItemId, output: &str) -> Result<()> {
        const OUTPUT: &str = "job.record_output";
        validate_nul(OUTPUT, "output", output)?;
        let (max, got) = (Self::OUTPUT_MAX, output.len());
        if got > max {
            return Err(Error::invalid(
                OUTPUT,
                "output",
                format_args!("must be at most {max} bytes, got {got}"),
            ));
        }
        match self.store.record_output(run, output).await? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::NotFound, OUTPUT, format!("there is no run {run}"))),
        }
    }

    /// Makes a run of every occurrence that has come, by each job's policies. What [`super::JobService`] does first.
    ///
    /// A job that somebody else holds is passed by. One that fails, or that this program can't read, is left alone for a while by
    /// this handle and its clones, and the others go on; an error is one of the database.
    pub async fn materialise(&self, owner: OwnerToken) -> Result<Materialised> {
        owner.validate("job.materialise")?;
        materialise(self.store.as_ref(), owner, &self.aside).await
    }

    /// Makes a message of every run that is due, `batch` per transaction. What [`super::JobService`] does next.
    pub async fn dispatch(&self, owner: OwnerToken, batch: u32) -> Result<Vec<Dispatched>> {
        const DISPATCH: &str = "job.dispatch";
        owner.validate(DISPATCH)?;
        if !(1..=10_000).contains(&batch) {
            return Err(Error::invalid(DISPATCH, "batch", format_args!("must be 1 to 10,000, got {batch}")));
        }
        let mut all = Vec::new();
        loop {
            let dispatched = self.store.dispatch(owner, batch).await?;
            let full = dispatched.len() >= batch as usize;
            telemetry::dispatched(self.store.identifier(), &dispatched);
            all.extend(dispatched);
            if !full {
                return Ok(all);
            }
        }
    }

    /// Notes the end of all runs whose messages have been settled. It looks at every run that is under way;
    /// [`super::JobService`] does so little by little, and workers with [`Self::collect_runs`]. Those who ask for a run are told
    /// its end before that, too.
    pub async fn collect(&self) -> Result<Vec<EndedRun>> {
        let mut all = Vec::new();
        let mut place = None;
        loop {
            let (ended, next) = self.collect_some(place.as_ref()).await?;
            all.extend(ended);
            place = next;
            if place.is_none() {
                return Ok(all);
            }
        }
    }

    /// Notes the end of those of these runs whose messages have been settled.
    pub async fn collect_runs(&self, runs: &[WorkItemId]) -> Result<Vec<EndedRun>> {
        let mut all = Vec::new();
        for page in runs.chunks(PAGE as usize) {
            let ended = self.store.collect(page).await?;
            telemetry::runs_ended(self.store.identifier(), &ended);
            all.extend(ended);
        }
        Ok(all)
    }

    /// Notes the ends among the next runs after `place`; and where to go on from, if there are more.
    pub(super) async fn collect_some(
        &self,
        place: Option<&RunPlace>,
    ) -> Result<(Vec<EndedRun>, Option<RunPlace>)> {
        let found = self.store.ended(place, PAGE).await?;
        Ok((self.collect_runs(&found.over).await?, found.next))
    }

    /// Forgets runs that ended longer ago than they are kept, batch by batch. Returns how many. Each batch leaves a record in the
    /// audit trail.
    pub async fn purge(&self, retention: &Retention) -> Result<u64> {
        self.actor.validate("job.purge")?;
        self.purge_by(*retention, Some(&self.actor), None).await
    }

    /// Deletes as retention does by itself: without a record of it.
    pub(crate) async fn sweep(&self, retention: Retention, clock: &SweepClock) -> Result<u64> {
        self.purge_by(retention, None, Some(clock)).await
    }

    async fn purge_by(
        &self,
        retention: Retention,
        by: Option<&Actor>,
        clock: Option<&SweepClock>,
    ) -> Result<u64> {
        retention.validate()?;
        let page = |retention| async move { self.store.purge(&retention, by).await };
        let purged = purge_pages("job.purge", retention, clock, page).await?;
        telemetry::runs_purged(self.store.identifier(), purged);
        Ok(purged)
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("store", &self.store.identifier()).finish_non_exhaustive()
    }
}
