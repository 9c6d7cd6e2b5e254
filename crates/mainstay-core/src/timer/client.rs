//! The application's handle on timers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::audit::Actor;
use crate::bell::Bell;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerToken, WorkItemId};
use crate::outbox::{
    EnqueueIn, EnqueueInBlocking, Enqueued, MessageFilter, Outbox, Page, PreparedMessage, Retention, When,
};
use crate::queue::{ClaimBatch, ClaimHandle, ClaimRequest, Settled};
use crate::store::{Provider, Queue, TimerStore};
use crate::telemetry;

use super::new::{SCHEDULE, take_ordering_key};
use super::{NewTimer, Timer, TimerStats};

/// The application's handle on timers. Cheap to clone.
///
/// A timer that is due becomes a message in the outbox, under the same ids: in one transaction, so that a crash neither loses
/// nor doubles it. That is done by a [`super::TimerService`], which `Mainstay::builder(…).timers(…)` starts.
///
/// All rules are checked here, once, before any provider sees a call. Dropping any of the futures is harmless: the operation
/// either happened as a whole or not at all.
#[derive(Clone)]
pub struct Timers {
    /// The engine over the timers' tables.
    queue: Outbox,
    store: Arc<dyn TimerStore>,
    /// Who changes timers by hand. None for an application that goes about its business.
    actor: Option<Actor>,
}

impl Timers {
    /// The timers of a database.
    pub fn new(provider: &(impl Provider + ?Sized)) -> Self {
        Self { queue: Outbox::new(provider.queue(Queue::Timers)), store: provider.timers(), actor: None }
    }

    /// Rings when timers have been scheduled, or given another time.
    #[must_use]
    pub(crate) fn with_bell(mut self, bell: Bell) -> Self {
        self.queue = self.queue.with_bell(bell);
        self
    }

    /// Bounds payloads to this many bytes. Defaults to 64 MiB.
    #[must_use]
    pub fn with_payload_limit(mut self, bytes: usize) -> Self {
        self.queue = self.queue.with_payload_limit(bytes);
        self
    }

    /// The same handle for somebody who changes timers by hand: what it cancels and reschedules is recorded in the audit trail as
    /// theirs. Defaults to nobody: an application that goes about its business leaves no record of that.
    #[must_use]
    pub fn by(&self, actor: impl Into<Actor>) -> Self {
        let actor = actor.into();
        Self { queue: self.queue.by(&actor), store: Arc::clone(&self.store), actor: Some(actor) }
    }

    /// The engine over the timers' tables, for what is not here: requeueing a timer that was cancelled, say.
    pub fn queue(&self) -> &Outbox {
        &self.queue
    }

    /// Schedules a timer in a transaction of its own. It is durable when this returns.
    pub async fn schedule(&self, timer: NewTimer) -> Result<Enqueued> {
        only(self.schedule_many(vec![timer]).await?)
    }

    /// Schedules many timers: all or none. The results are in the order of the timers.
    pub async fn schedule_many(&self, timers: Vec<NewTimer>) -> Result<Vec<Enqueued>> {
        if timers.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&timers);
        let prepared = adding.within(|| self.prepare(timers))?;
        let scheduled = adding.run(self.queue.store().enqueue(&prepared)).await?;
        self.told(&prepared, &scheduled);
        Ok(scheduled)
    }

    /// Schedules a timer in the caller's transaction: it is there if and only if the caller commits.
    pub async fn schedule_in<Tx, Marker>(&self, tx: &mut Tx, timer: NewTimer) -> Result<Enqueued>
    where
        Tx: EnqueueIn<Marker>,
    {
        only(self.schedule_many_in(tx, vec![timer]).await?)
    }

    /// Schedules many timers in the caller's transaction.
    pub async fn schedule_many_in<Tx, Marker>(
        &self,
        tx: &mut Tx,
        timers: Vec<NewTimer>,
    ) -> Result<Vec<Enqueued>>
    where
        Tx: EnqueueIn<Marker>,
    {
        if timers.is_empty() {
            return Ok(Vec::new());
        }
        let adding = self.adding(&timers);
        let prepared = adding.within(|| self.prepare(timers))?;
        let scheduled = adding.run(tx.enqueue_in(self.queue.store().as_ref(), &prepared)).await?;
        self.told(&prepared, &scheduled);
        Ok(scheduled)
    }

    /// Schedules a timer in the caller's transaction on a driver that blocks.
    pub fn schedule_in_blocking<Tx, Marker>(&self, tx: &mut Tx, timer: NewTimer) -> Result<Enqueued>
    where
        Tx: EnqueueInBlocking<Marker>,
    {
        let adding = self.adding(std::slice::from_ref(&timer));
        let prepared = adding.within(|| self.prepare(vec![timer]))?;
        let scheduled = adding.within(|| tx.enqueue_in(self.queue.store().as_ref(), &prepared));
        adding.end(&scheduled);
        let scheduled = scheduled?;
        self.told(&prepared, &scheduled);
        only(scheduled)
    }

    /// Cancels a timer: it never fires. True once; false when it has fired, is cancelled already, is claimed, or never was.
    pub async fn cancel(&self, id: WorkItemId) -> Result<bool> {
        Ok(!self.cancel_many(&[id]).await?.is_empty())
    }

    /// Cancels many timers. Returns those that it has cancelled.
    pub async fn cancel_many(&self, ids: &[WorkItemId]) -> Result<Vec<WorkItemId>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let cancelled = self.queue.store().cancel(ids, self.actor("timers.cancel")?).await?;
        telemetry::timers_changed(self.queue.store().identifier(), "cancel", &cancelled);
        Ok(cancelled)
    }

    /// Gives a timer another due time, sooner or later than it had. False when it no longer waits: it has fired, is cancelled,
    /// is claimed, or never was.
    pub async fn reschedule(&self, id: WorkItemId, due: impl Into<When>) -> Result<bool> {
        let due = due.into();
        due.validate("timers.reschedule", "due")?;
        let changed = self.store.reschedule(id, due, self.actor("timers.reschedule")?).await?;
        telemetry::timers_changed(
            self.queue.store().identifier(),
            "reschedule",
            if changed { std::slice::from_ref(&id) } else { &[] },
        );
        self.queue.bell().ring();
        Ok(changed)
    }

    /// One timer, waiting or over.
    pub async fn get(&self, id: WorkItemId) -> Result<Option<Timer>> {
        Ok(self.queue.get(id).await?.map(Timer::from))
    }

    /// Timers that match, newest first.
    pub async fn list(&self, filter: &MessageFilter, page: Page) -> Result<Vec<Timer>> {
        Ok(self.queue.list(filter, page).await?.into_iter().map(Timer::from).collect())
    }

    /// When the next of all that is scheduled in this database is due, timers, job runs and jobs alike. In the past if it is
    /// overdue, none if there is nothing.
    pub async fn next_event_time(&self) -> Result<Option<Timestamp>> {
        self.store.next_event_time().await
    }

    /// How many timers stand where.
    pub async fn stats(&self) -> Result<TimerStats> {
        Ok(self.queue.stats().await?.into())
    }

    /// Deletes timers that are over and past their age, batch by batch, until none is left. Returns how many.
    pub async fn purge(&self, retention: &Retention) -> Result<u64> {
        self.queue.purge(retention).await
    }

    // ---- working on timers oneself, beside the service

    /// Claims due timers for `request.owner`: they are then the caller's, and do not become messages. Whoever is first has a
    /// timer, this or the service.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<ClaimBatch> {
        let mut batch = self.queue.claim(request).await?;
        for item in &mut batch.items {
            if let Some(key) = take_ordering_key(&mut item.headers) {
                item.ordering_key = Some(key);
            }
        }
        Ok(batch)
    }

    /// Ends claimed timers: they count as fired.
    pub async fn ack(&self, owner: OwnerToken, claims: &[ClaimHandle]) -> Result<Settled> {
        self.queue.ack(owner, claims).await
    }

    /// Gives claimed timers back, due again after `delay` or after the default backoff.
    pub async fn abandon(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        delay: Option<Duration>,
        error: Option<String>,
    ) -> Result<Settled> {
        self.queue.abandon(owner, claims, delay, error).await
    }

    /// Fails claimed timers for good.
    pub async fn fail(
        &self,
        owner: OwnerToken,
        claims: &[ClaimHandle],
        error: Option<String>,
    ) -> Result<Settled> {
        self.queue.fail(owner, claims, error).await
    }

    /// Extends claims to `lease` from now.
    pub async fn renew(&self, owner: OwnerToken, claims: &[ClaimHandle], lease: Duration) -> Result<Settled> {
        self.queue.renew(owner, claims, lease).await
    }

    /// Makes claimed timers whose lease has lapsed visible as ready. They fire, or can be claimed, without it (R2).
    pub async fn reap_expired(&self) -> Result<u64> {
        self.queue.reap_expired().await
    }

    fn actor(&self, operation: &'static str) -> Result<Option<&Actor>> {
        self.actor.as_ref().map(|actor| actor.validate(operation)).transpose()?;
        Ok(self.actor.as_ref())
    }

    fn adding(&self, timers: &[NewTimer]) -> telemetry::Adding {
        let messages = timers.iter().map(NewTimer::message);
        telemetry::Adding::begin(self.queue.store().identifier(), "schedule", messages)
    }

    fn prepare(&self, timers: Vec<NewTimer>) -> Result<Vec<PreparedMessage>> {
        timers.into_iter().map(|timer| timer.prepare(self.queue.limits())).collect()
    }

    fn told(&self, prepared: &[PreparedMessage], scheduled: &[Enqueued]) {
        telemetry::scheduled(self.queue.store().identifier(), prepared, scheduled);
        self.queue.bell().ring();
    }
}

impl fmt::Debug for Timers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers").field("store", &self.queue.store().identifier()).finish_non_exhaustive()
    }
}

fn only(scheduled: Vec<Enqueued>) -> Result<Enqueued> {
    let missing = || Error::new(ErrorKind::Internal, SCHEDULE, "the store returned no ids");
    scheduled.into_iter().next().ok_or_else(missing)
}
